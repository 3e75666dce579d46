"""What is drawn afresh, what a seed repeats, and what a fit keeps: no two releases share noise, and one that may says that it is none."""

import io
import math
import multiprocessing
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from every_release import CASES, fitted, quick_ones, released, shared
from joblib import Parallel, delayed
from private_cases import fitted as blobs_fitted
from private_cases import two_blobs
from sklearn.base import BaseEstimator

from lethe import estimators
from lethe.accounting.certify import certify
from lethe.calculus.guarantees import NotPrivate
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import FRESH_NOISE
from lethe.certificates.statement import Statement
from lethe.estimators import LogisticRegression, privacy_of
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.options import EstimatorOptions, options_of
from lethe.estimators.private_estimator import PrivateEstimator

OTHERS = {"PublicScaler"}  # which learns nothing


def test_every_estimator_and_every_mechanism_is_a_case() -> None:
    public = {
        name for name in estimators.__all__ if isinstance(kind := getattr(estimators, name), type) and issubclass(kind, BaseEstimator)
    }
    assert {type(model).__name__ for model, _ in CASES.values()} == public - OTHERS
    named = {options_of(model).mechanism for model, _ in CASES.values()}
    assert set(MECHANISMS) - {"auto", "sgd"} <= named


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", list(CASES))
def test_two_fits_with_the_same_random_state_share_no_number(name: str) -> None:
    assert not shared(released(name), released(name))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["classifier by cyclic", *("LinearRegression", "LinearSVC", "PrivateMean", "PrivatePCA", "PrivateSearch")])
def test_with_seeded_noise_they_share_every_number(name: str) -> None:
    first, second = (released(name, seed_noise=True) for _ in range(2))
    assert len(shared(first, second)) == sum(map(len, first.values()))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("how", ["fork", pytest.param("joblib", marks=pytest.mark.nightly)])  # joblib's workers import everything anew
def test_two_processes_share_no_number(how: str) -> None:
    """Two children of this very process, which has loaded everything and drawn many numbers; and two workers of joblib."""
    if how == "fork":
        with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
            first, second = pool.map_async(quick_ones, range(2), chunksize=1).get(timeout=300)
    else:
        first, second = Parallel(n_jobs=2)(delayed(quick_ones)(place) for place in range(2))
    assert len(first) > 12
    assert {name: common for name in first if (common := shared(first[name], second[name]))} == {}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", ["cyclic_poisson_correlated", "poisson"])
def test_secret_batches_do_not_follow_random_state(design: str) -> None:
    """Almost without noise: what fits differ by is the permutation, or the samples, by hundreds of standard deviations."""
    loud = {"epsilon": 1e9, "delta": 1e-5, "options__passes": 1}
    models = [fitted(f"classifier by {design}", **loud) for _ in range(3)]
    noise = max(float(np.sqrt(np.sum(np.square(model.run_.uncorrelated.noise_stds)))) for model in models)
    apart = np.ptp([model.coef_ for model in models], axis=0).max() * models[0].feature_norm_
    assert apart > 20.0 * noise  # of 200 pairs of fits one came as near as 37
    seeded = [fitted(f"classifier by {design}", seed_noise=True, **loud).coef_ for _ in range(2)]
    assert (seeded[0] == seeded[1]).all()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_no_fit_with_seeded_noise_has_a_guarantee(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a part says is kept apart from what the estimator says of the whole: either alone would do."""
    parts, stated = list[Statement](), PrivateEstimator._state

    def watched(self: PrivateEstimator, given: Sequence[Statement], *rest: Any, **named: Any) -> None:
        parts.extend(given)
        stated(self, given, *rest, **named)

    monkeypatch.setattr(PrivateEstimator, "_state", watched)
    model = fitted(name, seed_noise=True)
    assert parts
    assert all(part.seeded and part.epsilon(1e-5) == math.inf for part in parts)
    assert model.epsilon_ == model.statement_.epsilon(model.delta_) == math.inf
    if isinstance(model.certificate_, Certificate):
        assert model.certificate_.epsilon == model.certificate_.epsilon_at(model.delta_) == math.inf
    assert model.statement_.guarantee == NotPrivate()
    assert 0.0 < model.statement_.planned.epsilon(model.delta_) <= model.epsilon  # what fresh noise would have cost
    for findings in (model.statement_.findings, model.certificate_.findings):
        assert [finding.name for finding in findings if finding.status == "fails"] == [FRESH_NOISE]
        assert not any(finding.name == "secrecy" and finding.evidence == "enforced" for finding in findings)
    assert "\nNOT PRIVATE: no release: " in model.privacy_report_
    assert model.privacy_report_.startswith("(infinity, ")
    assert privacy_of(model).epsilon(model.delta_) == math.inf
    run: Any = getattr(model, "run_", None)
    if run is not None:
        assert run.seeded
        assert certify(run, model.delta_).epsilon == math.inf


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_random_state_alone_is_public_and_seeds_nothing(name: str) -> None:
    model = fitted(name, random_state=np.random.RandomState(3))
    assert not model.statement_.seeded
    assert model.epsilon_ <= model.epsilon
    assert all(finding.status == "holds" for finding in model.statement_.findings)
    run: Any = getattr(model, "run_", None)
    assert run is None or not run.seeded


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["cyclic", "objective_perturbation", "output_perturbation"])
def test_a_pickle_is_small_and_works(name: str) -> None:
    X, y = two_blobs(records=20_000, columns=4)
    passes: Any = "auto" if name.endswith("perturbation") else 2
    model = LogisticRegression(feature_norm=4.0, options=EstimatorOptions(mechanism=name, passes=passes), random_state=0).fit(X, y)
    stored = pickle.dumps(model)
    assert len(stored) < 40_000  # less than two bytes a record: no array of n rows, no generator
    assert (pickle.load(io.BytesIO(stored)).predict(X) == model.predict(X)).all()


def test_nothing_but_what_was_released_or_is_public_is_kept() -> None:
    released = "classes_ coef_ feature_norm_ intercept_ mechanism_ n_iter_ n_averaged_ privacy_report_ run_ statement_ whitened_"
    public = "delta_ epsilon_ n_features_in_ n_samples_seen_"
    assert {name for name in vars(blobs_fitted(random_state=0)) if name.endswith("_")} == set(f"{released} {public}".split())
