"""Private preprocessing: against numpy without noise, what it costs, what comes out whatever comes in, and scikit-learn's checks."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from constant_noise import Constant
from excused_checks import SEEDED
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st
from private_cases import build, cloned, stated
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
from lethe.estimators.inputs.norms import released_norm
from lethe.estimators.inputs.ranges import private_ranges
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.preprocessing.components import noisy_mean
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


@pytest.mark.parametrize("transformer", ALL, ids=repr)
def test_no_records_are_kept_and_noise_is_fresh(transformer: PrivateTransformer) -> None:
    X = table(20_000)
    one, two = cloned(transformer).fit(X), cloned(transformer).fit(X)
    assert len(pickle.dumps(one)) < 20_000  # less than a byte a record
    assert (pickle.loads(pickle.dumps(one)).transform(X[:5]) == one.transform(X[:5])).all()
    assert (one.transform(X) != two.transform(X)).any()
    seeded = [cloned(transformer).set_params(**SEEDED).fit(X).transform(X) for _ in range(2)]
    assert (seeded[0] == seeded[1]).all()


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
def test_a_pipeline_adds_up() -> None:
    X = table()
    y = X[:, 0] - X[:, 1]
    pipeline = make_pipeline(PrivateStandardScaler(), PrivateQuantileClipper(tail=None, norm_quantile=0.7), PrivatePCA(2, feature_norm=1.0))
    model = make_pipeline(
        *pipeline, LinearRegression(feature_norm=1.0, target_bound=10.0, options=EstimatorOptions(mechanism="cyclic"))
    ).fit(X, y)
    mus = [mu_of(step.statement_.guarantee) for _, step in model.steps]
    assert mu_of(privacy_of(model).guarantee) == pytest.approx(math.sqrt(math.fsum(mu * mu for mu in mus)))
    assert mu_of(privacy_of([model[0], model[0]]).guarantee) == pytest.approx(math.sqrt(2.0) * mus[0])


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


def test_columns_are_clipped_where_nine_tenths_end() -> None:
    X = table(20_000)
    clipper = PrivateQuantileClipper(epsilon=3.0, norm_quantile=0.75).fit(X)
    np.testing.assert_allclose(clipper.low_, np.quantile(X, 0.05, axis=0), atol=0.3)
    np.testing.assert_allclose(clipper.high_, np.quantile(X, 0.95, axis=0), atol=0.3)
    clipped = np.clip(X, clipper.low_, clipper.high_)
    assert clipper.feature_norm_ == pytest.approx(np.quantile(np.linalg.norm(clipped, axis=1), 0.75), rel=0.05)
    limits = np.minimum(1.0, clipper.feature_norm_ / np.linalg.norm(clipped, axis=1))
    np.testing.assert_allclose(clipper.transform(X), clipped * limits[:, None] / clipper.feature_norm_)


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


def test_components_are_orthonormal_and_named() -> None:
    pca = PrivatePCA(2, epsilon=0.1).fit(table(100))
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(2), atol=1e-12)
    assert pca.get_feature_names_out().tolist() == ["privatepca0", "privatepca1"]
    assert PrivateStandardScaler().fit(table()).get_feature_names_out(["a", "b", "c"]).tolist() == ["a", "b", "c"]
    assert (np.diff(pca.explained_variance_) <= 0.0).all()


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


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_ranges_cost_their_share(neighbours: Any) -> None:
    found = private_ranges(table(), tail=0.1, share=GDP(0.3), name="ranges", give="bounds", neighbours=neighbours, generator=None)
    assert 0.299 < mu_of(found.statement.guarantee) <= 0.3
    assert (found.low < found.high).all()


def test_the_norm_of_rows_of_one_norm_is_found() -> None:
    for _ in range(20):
        norm, _ = released_norm(np.full(5000, 3.0), quantile=0.75, share=GDP(0.06), neighbours="replace_one", generator=None)
        assert norm == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        *(
            (PrivateStandardScaler, {"bounds": bad})
            for bad in (None, 1.0, "wide", (0.0,), (1.0, 0.0), (0.0, math.inf), ([0, 0], [1, 1]), (0.0, True))
        ),
        *((PrivateQuantileClipper, {"tail": bad}) for bad in (0.0, 0.5, -0.1, math.nan, "x", True)),
        *((PrivateQuantileClipper, {"norm_quantile": bad}) for bad in (0.0, 1.0, math.nan, "x")),
        (PrivateQuantileClipper, {"tail": None}),
        *((PrivatePCA, {"n_components": bad}) for bad in (0, 4, -1, 1.0, True, "x")),
        *((PrivatePCA, {"feature_norm": bad}) for bad in (None, 0.0, math.inf, "x")),
        (PrivatePCA, {"centre": "yes"}),
        *((PrivateWhitening, {"channels": bad}) for bad in (0, 2, 4, -1, 1.0, True, "x")),
        *((PrivateWhitening, {"feature_norm": bad}) for bad in (None, 0.0, math.inf, "x")),
        *((PrivateWhitening, {"floor": bad}) for bad in (0.0, math.nan, "x")),
        *((PrivatePCA, {"epsilon": bad}) for bad in (0.0, -1.0, math.nan, None)),
        *((PrivateStandardScaler, {"delta": bad}) for bad in (0.0, 1.0, math.nan)),
        (PrivateStandardScaler, {"neighbours": "add_or_remove"}),
        (PrivateQuantileClipper, {"seed_noise": True}),
    ],
)
def test_bad_parameters_are_refused_in_fit(make: type[Any], bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        build(make, **bad).fit(table())


@pytest.mark.parametrize(
    "rows",
    [table(50) * 1e300, table(50) * 1e-200, np.zeros((50, 3)), np.ones((2, 3)), table(20).T],
    ids=["huge", "tiny", "zeros", "two", "wide"],
)
@pytest.mark.parametrize("transformer", ALL, ids=repr)
@pytest.mark.filterwarnings("ignore::lethe.estimators.inputs.range_warnings.RangeEndWarning")
def test_odd_tables_give_finite_numbers(transformer: PrivateTransformer, rows: np.ndarray) -> None:
    one = cloned(transformer).fit(rows)
    assert np.isfinite(one.transform(rows)).all()
    assert one.epsilon_ <= 1.0


@pytest.mark.parametrize("frames", ["pandas", "polars"])
def test_frames_keep_their_columns(frames: str) -> None:
    library = pytest.importorskip(frames)
    frame = library.DataFrame(dict(zip("abc", table().T, strict=True)))
    for transformer in ALL:
        one = cloned(transformer).set_output(transform=frames).fit(frame)
        assert one.feature_names_in_.tolist() == ["a", "b", "c"]
        assert list(one.transform(frame).columns) == one.get_feature_names_out().tolist()


@pytest.mark.parametrize("sensitivity", [1.0, 0.1, 1 / 3, 7.3e-5, 1e9 + 0.1])
@pytest.mark.parametrize("epsilon", [0.01, 0.7, 1.0, 8.0])
def test_a_gaussian_mechanism_costs_no_more_than_was_planned_whatever_its_sensitivity(epsilon: float, sensitivity: float) -> None:
    """A released norm sets it, and the last bit of what is stated with it: once in thousands of fits epsilon_ was above epsilon."""
    goal = ApproxDP(epsilon, 1e-5)
    stated = gaussian_guarantee(sensitivity, gaussian_noise_std(sensitivity, goal))
    assert isinstance(stated, GDP)
    assert stated.mu < gaussian_cost(goal).mu
    assert stated.epsilon(1e-5) < gaussian_cost(goal).epsilon(1e-5)
