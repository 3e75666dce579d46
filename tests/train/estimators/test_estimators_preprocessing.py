"""Private preprocessing: against numpy without noise, what it costs, what comes out whatever comes in, and scikit-learn's checks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from constant_noise import Constant
from excused_checks import SEEDED
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st
from private_cases import cloned, stated
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.errors import InputError
from lethe.estimators import (
    LinearRegression,
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateStandardScaler,
    PrivateWhitening,
    privacy_of,
    split_budget,
)
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.preprocessing.moments import noisy_mean
from lethe.estimators.preprocessing.transformer import PrivateTransformer, gaussian_cost
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std

NO_NOISE = {"epsilon": 1e12, "delta": 1e-5}
ALL = (
    PrivateStandardScaler(),
    PrivateStandardScaler(bounds=(-5, 20)),
    PrivateQuantileClipper(),
    PrivateQuantileClipper(tail=None, norm_quantile=0.7),
    PrivateQuantileClipper(norm_quantile=0.7),
    PrivatePCA(2),
    PrivatePCA(feature_norm=20.0, centre=False),
    PrivateWhitening(),
    PrivateWhitening(feature_norm=20.0, floor=0.1),
)


def table(records: int = 2000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((records, 3)) * [1.0, 2.0, 3.0] + [5.0, 0.0, -1.0]


FRESH = "it compares two fits, and the noise of each is fresh; passes with seed_noise"


@pytest.mark.sampled(8)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning", "ignore::sklearn.exceptions.EstimatorCheckFailedWarning")
@parametrize_with_checks(
    [*(cloned(one).set_params(**SEEDED) for one in ALL), PrivatePCA(), PrivateStandardScaler()],
    expected_failed_checks=lambda one: {} if one.seed_noise else {"check_fit_idempotent": FRESH},
)
def test_every_transformer_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("transformer", ALL, ids=repr)
def test_the_target_is_met_and_nothing_is_declared(transformer: PrivateTransformer, neighbours: str) -> None:
    one = cloned(transformer).set_params(epsilon=0.7, delta=4e-5, neighbours=neighbours).fit(table())
    assert 0.69 < one.epsilon_ <= 0.7
    assert one.delta_ == 4e-5
    assert {finding.evidence for finding in one.certificate_.findings} <= {"checked", "enforced"}
    assert stated(one) == one.statement_
    assert one.statement_.neighbours == neighbours


def test_without_noise_a_scaler_is_numpys() -> None:
    X = np.clip(table(), -10.0, 10.0)
    scaler = PrivateStandardScaler(bounds=(-10.0, 10.0), **NO_NOISE).fit(X)
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(scaler.scale_, X.std(axis=0), atol=1e-3)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, atol=1e-9)
    assert scaler.transform([[1e9, 0.0, -1e9]]) == pytest.approx(scaler.transform([[10.0, 0.0, -10.0]]))


def test_private_bounds_hold_most_of_every_column_whatever_its_unit() -> None:
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(20_000)
    X = np.stack(
        [normal, 1e4 * normal - 1e5, 1e-3 * normal, rng.integers(0, 2, 20_000), np.full(20_000, 7.0), rng.integers(0, 5, 20_000)], axis=1
    )
    scaler = PrivateStandardScaler(epsilon=1.0).fit(X)
    inside = ((scaler.low_ <= X) & (scaler.high_ >= X)).mean(axis=0)
    assert (inside > 0.95).all()
    assert ((scaler.high_ - scaler.low_) < 12.0 * np.maximum(X.std(axis=0), [0, 0, 0, 0, 0.01, 0])).all()
    # No column, constant ones and rare values included, comes out larger than ten standard deviations.
    assert np.abs(scaler.transform(X * [1.0, 1.0, 1.0, 1.0, 50.0, 1.0])).max() <= 10.0


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("total", [0.1, 1.0, 8.0])
def test_gaussian_steps_split_a_total_exactly(total: float) -> None:
    X = table()
    steps = [
        PrivateStandardScaler(),
        PrivatePCA(2),
        LinearRegression(options=EstimatorOptions(mechanism="pass_ends"), feature_norm=3.0, target_bound=5.0),
    ]
    model = make_pipeline(*split_budget(steps, total, 1e-5, shares=[0.3, 0.2, 0.5])).fit(X, X[:, 0])
    assert 0.999 * total < privacy_of(model).epsilon(1e-5) <= total
    for bad in ([], [0.6, 0.6, 0.1], [0.5, 0.0, 0.5], [math.nan, 0.1, 0.1], ["x", 0.1, 0.1], [0.5, 0.5]):
        with pytest.raises(InputError, match="shares"):
            split_budget(steps, total, 1e-5, shares=bad)
    for others in ([], [LinearRegression], "steps", [steps[0], object()]):
        with pytest.raises(InputError, match="steps"):
            split_budget(others, total, 1e-5, shares=[0.5, 0.5])  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
@given(scale=st.floats(1e-120, 1e120), quantile=st.floats(0.05, 0.95))
def test_no_row_leaves_the_clipper_longer_than_one(scale: float, quantile: float) -> None:
    X = table(50)
    clipper = PrivateQuantileClipper(tail=None, norm_quantile=quantile).fit(X)
    rows = clipper.transform(np.clip(scale * X, -1e300, 1e300))
    assert max(np.linalg.norm(row.astype(np.longdouble)) for row in rows) <= 1.0


def test_sparse_tables_are_taken_where_zeros_stay_zeros() -> None:
    X = np.where(np.random.default_rng(0).random((2000, 3)) < 0.3, table(), 0.0)
    clipper = PrivateQuantileClipper(tail=None, norm_quantile=0.8, **SEEDED)
    rows = clipper.fit_transform(sparse.csr_array(X))
    assert isinstance(rows, sparse.csr_array)
    np.testing.assert_allclose(rows.toarray(), cloned(clipper).fit_transform(X))
    for dense in (PrivateQuantileClipper(), PrivateStandardScaler(), PrivatePCA(), PrivateWhitening()):
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            dense.fit(sparse.csr_array(X))


def test_without_noise_components_are_scikit_learns() -> None:
    X = table()
    ours, theirs = PrivatePCA(2, feature_norm=50.0, **NO_NOISE).fit(X), PCA(2).fit(X)
    np.testing.assert_allclose(np.abs(np.sum(ours.components_ * theirs.components_, axis=1)), 1.0, atol=1e-3)
    np.testing.assert_allclose(ours.mean_, X.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=0.01)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=0.01)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), theirs.inverse_transform(theirs.transform(X)), atol=0.05)
    around_zero = PrivatePCA(1, feature_norm=50.0, centre=False, **NO_NOISE).fit(X)
    assert (around_zero.mean_ == 0.0).all()
    assert abs(around_zero.components_[0] @ np.linalg.eigh(X.T @ X)[1][:, -1]) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("neighbours", "sharp"), [("replace_one", 4.0), ("zero_out", 2.0)])
def test_the_mean_has_the_noise_that_its_sensitivity_needs(neighbours: Any, sharp: float) -> None:
    def total(rows: np.ndarray, noise: float) -> np.ndarray:
        return len(rows) * noisy_mean(rows, norm=2.0, target=GDP(0.5), neighbours=neighbours, generator=Constant(noise))[0]

    X = table(100)
    moved = 0.0
    for row in ([9.0, 0.0, 0.0], [-9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 9.0, 0.0]):
        one, two = X.copy(), X.copy()
        one[0], two[0] = [9.0, 0.0, 0.0], row if neighbours == "replace_one" else np.zeros(3)
        moved = max(moved, float(np.linalg.norm(total(one, 0.0) - total(two, 0.0))))
    assert moved == pytest.approx(sharp)
    # All at once one standard deviation: mu is how far the sum moves over it.
    noise_std = total(X, 1.0) - total(X, 0.0)
    np.testing.assert_allclose(noise_std, moved / 0.5)
    _, statement = noisy_mean(X, norm=2.0, target=GDP(0.5), neighbours=neighbours, generator=None)
    assert mu_of(statement.guarantee) == pytest.approx(0.5)


@pytest.mark.parametrize("sensitivity", [1.0, 0.1, 1 / 3, 7.3e-5, 1e9 + 0.1])
@pytest.mark.parametrize("epsilon", [0.01, 0.7, 1.0, 8.0])
def test_a_gaussian_mechanism_costs_no_more_than_was_planned_whatever_its_sensitivity(epsilon: float, sensitivity: float) -> None:
    """A released norm sets it, and the last bit of what is stated with it: once in thousands of fits epsilon_ was above epsilon."""
    goal = ApproxDP(epsilon, 1e-5)
    stated = gaussian_guarantee(sensitivity, gaussian_noise_std(sensitivity, goal))
    assert isinstance(stated, GDP)
    assert stated.mu < gaussian_cost(goal).mu
    assert stated.epsilon(1e-5) < gaussian_cost(goal).epsilon(1e-5)
