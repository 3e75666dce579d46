"""Noise and secret draws are fresh at every fit, whatever random_state says, and in every process."""

import multiprocessing

import numpy as np
import pytest
from every_release import CASES, fitted, quick_ones, released, shared
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator

from lethe import estimators
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.options import options_of

OTHERS = {"PublicScaler"}  # which learns nothing


def test_every_estimator_and_every_mechanism_is_a_case() -> None:
    public = {
        name for name in estimators.__all__ if isinstance(kind := getattr(estimators, name), type) and issubclass(kind, BaseEstimator)
    }
    assert {type(model).__name__ for model, _ in CASES.values()} == public - OTHERS
    named = {options_of(model).mechanism for model, _ in CASES.values()}
    assert set(MECHANISMS) - {"auto", "sgd"} <= named


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_two_fits_with_the_same_random_state_share_no_number(name: str) -> None:
    assert not shared(released(name), released(name))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("classifier by cyclic", marks=pytest.mark.slow),
        *("LinearRegression", "LinearSVC", "PrivateMean", "PrivatePCA", "PrivateSearch"),
    ],
)
def test_with_seeded_noise_they_share_every_number(name: str) -> None:
    first, second = (released(name, seed_noise=True) for _ in range(2))
    assert len(shared(first, second)) == sum(map(len, first.values()))


@pytest.mark.slow
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
@pytest.mark.slow
@pytest.mark.parametrize("design", ["cyclic_poisson", "poisson"])
def test_secret_batches_do_not_follow_random_state(design: str) -> None:
    """Almost without noise: what fits differ by is the permutation, or the samples, by hundreds of standard deviations."""
    loud = {"epsilon": 1e9, "delta": 1e-5, "options__passes": 1}
    models = [fitted(f"classifier by {design}", **loud) for _ in range(3)]
    noise = max(float(np.sqrt(np.sum(np.square(model.run_.noise_stds)))) for model in models)
    apart = np.ptp([model.coef_ for model in models], axis=0).max() * models[0].feature_norm_
    assert apart > 20.0 * noise  # of 200 pairs of fits one came as near as 37
    seeded = [fitted(f"classifier by {design}", seed_noise=True, **loud).coef_ for _ in range(2)]
    assert (seeded[0] == seeded[1]).all()
