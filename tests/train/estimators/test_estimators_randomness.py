"""What is repeatable, what is not, and what a fitted estimator keeps."""

import io
import math
import pickle
from typing import Any

import numpy as np
import pytest
from private_cases import fitted, two_blobs
from sklearn.base import clone

from lethe.errors import InputError
from lethe.estimators import LogisticRegression
from lethe.estimators.options import EstimatorOptions

# So little noise that two fits differ by their batches only.
LOUD = {"epsilon": 1e7, "delta": 1e-5, "mechanism": "cyclic", "passes": 1, "batches": "cyclic"}


@pytest.mark.slow
def test_random_state_repeats_batches_but_not_noise() -> None:
    one, same, other = (fitted(random_state=state, **LOUD).coef_ for state in (1, 1, 2))
    assert (one != same).all()
    assert np.abs(one - same).max() < 0.1 * np.abs(one - other).max()


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cyclic", "poisson", "objective_perturbation"])
@pytest.mark.parametrize("norm", [4.0, "auto"])
def test_seed_noise_repeats_everything_and_is_no_release(name: str, norm: float | str) -> None:
    models = [fitted(mechanism=name, feature_norm=norm, random_state=5, seed_noise=True) for _ in range(2)]
    assert (models[0].coef_ == models[1].coef_).all()
    declared = {finding.name for finding in models[0].certificate_.findings if finding.evidence == "declared"}
    assert declared == ({"secrecy"} if name == "poisson" else set())
    assert models[0].epsilon_ == math.inf
    assert "NOT PRIVATE: no release: " in models[0].privacy_report_
    assert (fitted(mechanism=name, feature_norm=norm, random_state=5).coef_ != models[0].coef_).any()


def test_seeding_the_noise_needs_a_seed() -> None:
    with pytest.raises(InputError, match="seed_noise"):
        fitted(seed_noise=True)
    with pytest.raises(InputError, match="seed_noise"):
        fitted(seed_noise="yes", random_state=0)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cyclic", "objective_perturbation", "output_perturbation"])
def test_a_pickle_is_small_and_works(name: str) -> None:
    X, y = two_blobs(records=20_000, columns=4)
    passes: Any = "auto" if name.endswith("perturbation") else 2
    model = LogisticRegression(feature_norm=4.0, options=EstimatorOptions(mechanism=name, passes=passes), random_state=0).fit(X, y)
    stored = pickle.dumps(model)
    assert len(stored) < 40_000  # less than two bytes a record: no array of n rows, no generator
    assert (pickle.load(io.BytesIO(stored)).predict(X) == model.predict(X)).all()
    unfitted = clone(model)
    assert not hasattr(unfitted, "coef_")


@pytest.mark.slow
def test_nothing_but_what_was_released_or_is_public_is_kept() -> None:
    assert {name for name in vars(fitted(random_state=0)) if name.endswith("_")} == {
        "classes_",
        "coef_",
        "delta_",
        "epsilon_",
        "feature_norm_",
        "intercept_",
        "mechanism_",
        "n_features_in_",
        "n_iter_",
        "n_averaged_",
        "n_samples_seen_",
        "privacy_report_",
        "run_",
        "statement_",
        "whitened_",
    }


@pytest.mark.parametrize("state", [np.random.default_rng(0), np.random.SeedSequence(0), "a", -1, 2**32, 0.5])
def test_a_random_state_that_makes_no_numbers_is_refused(state: Any) -> None:
    with pytest.raises(InputError, match="random_state"):
        fitted(random_state=state)
