"""Preprocessing, by public ranges and by released ones: what comes out, at what price, and what is said of ranges that tell little."""

import math
from typing import Any

import numpy as np
import pytest
from excused_checks import SEEDED
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st
from private_cases import build, cloned
from scipy import sparse
from sklearn.decomposition import PCA

import lethe.estimators as private
from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.estimators.inputs.ranges import RangeEndWarning, UndetectedRangeWarning, private_ranges, released_norm
from lethe.estimators.preprocessing.scaler import gaussian_cost
from lethe.features import PublicWhitening, RecordNormalizer
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std
from lethe.mechanisms.quantiles.located_quantiles import LARGEST, SMALLEST, LocatedQuantiles

NO_NOISE = {"epsilon": 1e12, "delta": 1e-5}


def table(records: int = 2000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((records, 3)) * [1.0, 2.0, 3.0] + [5.0, 0.0, -1.0]


def test_without_noise_a_scaler_is_numpys() -> None:
    X = np.clip(table(), -10.0, 10.0)
    scaler = private.PrivateStandardScaler(bounds=(-10.0, 10.0), **NO_NOISE).fit(X)
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(scaler.scale_, X.std(axis=0), atol=1e-3)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, atol=1e-9)
    assert scaler.transform([[1e9, 0.0, -1e9]]) == pytest.approx(scaler.transform([[10.0, 0.0, -10.0]]))


@given(scale=st.floats(1e-120, 1e120), quantile=st.floats(0.05, 0.95))
def test_no_row_leaves_the_clipper_longer_than_one(scale: float, quantile: float) -> None:
    X = table(50)
    clipper = private.PrivateQuantileClipper(tail=None, norm_quantile=quantile).fit(X)
    rows = clipper.transform(np.clip(scale * X, -1e300, 1e300))
    assert max(np.linalg.norm(row.astype(np.longdouble)) for row in rows) <= 1.0


def test_sparse_tables_are_taken_where_zeros_stay_zeros() -> None:
    X = np.where(np.random.default_rng(0).random((2000, 3)) < 0.3, table(), 0.0)
    clipper = private.PrivateQuantileClipper(tail=None, norm_quantile=0.8, **SEEDED)
    rows = clipper.fit_transform(sparse.csr_array(X))
    assert isinstance(rows, sparse.csr_array)
    np.testing.assert_allclose(rows.toarray(), cloned(clipper).fit_transform(X))
    for dense in (private.PrivateQuantileClipper(), private.PrivateStandardScaler(), private.PrivatePCA(), private.PrivateWhitening()):
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            dense.fit(sparse.csr_array(X))


def test_without_noise_components_are_scikit_learns() -> None:
    X = table()
    ours, theirs = private.PrivatePCA(2, feature_norm=50.0, **NO_NOISE).fit(X), PCA(2).fit(X)
    np.testing.assert_allclose(np.abs(np.sum(ours.components_ * theirs.components_, axis=1)), 1.0, atol=1e-3)
    np.testing.assert_allclose(ours.mean_, X.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=0.01)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=0.01)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), theirs.inverse_transform(theirs.transform(X)), atol=0.05)
    around_zero = private.PrivatePCA(1, feature_norm=50.0, centre=False, **NO_NOISE).fit(X)
    assert (around_zero.mean_ == 0.0).all()
    assert abs(around_zero.components_[0] @ np.linalg.eigh(X.T @ X)[1][:, -1]) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("sensitivity", [1.0, 0.1, 1 / 3, 7.3e-5, 1e9 + 0.1])
@pytest.mark.parametrize("epsilon", [0.01, 0.7, 1.0, 8.0])
def test_a_gaussian_mechanism_costs_no_more_than_was_planned_whatever_its_sensitivity(epsilon: float, sensitivity: float) -> None:
    """A released norm sets it, and the last bit of what is stated with it: once in thousands of fits epsilon_ was above epsilon."""
    goal = ApproxDP(epsilon, 1e-5)
    stated = gaussian_guarantee(sensitivity, gaussian_noise_std(sensitivity, goal))
    assert isinstance(stated, GDP)
    assert stated.mu < gaussian_cost(goal).mu
    assert stated.epsilon(1e-5) < gaussian_cost(goal).epsilon(1e-5)


MIXED = np.array([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [-0.3, 0.2, 0.1]])


def channel_table(records: int = 400, positions: int = 4, seed: int = 0) -> np.ndarray:
    """Three channels that hang together, at as many positions, channels first."""
    values = np.random.default_rng(seed).standard_normal((records, positions, 3)) @ MIXED.T + [1.0, -2.0, 0.5]
    return values.transpose(0, 2, 1).reshape(records, -1)


def by_channel(rows: np.ndarray, channels: int = 3) -> np.ndarray:
    return np.moveaxis(rows.reshape(len(rows), channels, -1), 1, 2).reshape(-1, channels)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_channels_come_out_centred_and_uncorrelated(dtype: Any) -> None:
    rows = channel_table(3000).astype(dtype)
    public = PublicWhitening.of_public_data(rows, channels=3, floor=1e-9).fit(rows)
    paid = private.PrivateWhitening(3, epsilon=1e9, delta=1e-5, feature_norm=100.0, floor=1e-9).fit(rows)
    for one, tolerance in ((public, 1e-3), (paid, 0.02)):
        found = one.transform(rows)
        assert found.dtype == dtype
        np.testing.assert_allclose(by_channel(found).mean(axis=0), 0.0, atol=tolerance)
        np.testing.assert_allclose(np.cov(by_channel(found).T), np.eye(3), atol=tolerance)
        # The matrix is the same at every position, and a block is like any other.
        np.testing.assert_allclose(one.transform(rows[1234:1236]), found[1234:1236], rtol=1e-4, atol=1e-5)
        swapped = rows.reshape(-1, 3, 4)[:, :, ::-1].reshape(len(rows), -1)
        np.testing.assert_allclose(one.transform(swapped).reshape(-1, 3, 4)[:, :, ::-1].reshape(found.shape), found, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(paid.mean_, public.mean, atol=0.01)
    np.testing.assert_allclose(paid.covariance_, public.covariance, atol=0.05)


def test_what_noise_alone_could_have_made_is_not_whitened() -> None:
    """With so little privacy budget every direction is, and all are scaled by one number."""
    rows = RecordNormalizer().fit_transform(channel_table(400))
    one = private.PrivateWhitening(3, epsilon=0.001, feature_norm=1.0, delta=1e-5, neighbours="replace_one").fit(rows)
    values = np.linalg.eigvalsh(one.whitening_)
    assert np.isfinite(one.transform(rows)).all()
    assert values.min() > 0.0
    noise = math.sqrt(6.0) / 4.0 * (2.5 / math.sqrt(2.0)) / mu_of(one.statement_.guarantee) / 400
    assert values.max() == pytest.approx(1.0 / math.sqrt(noise), rel=1e-6)


TABLE = np.array([[0.0, 10.0, -4.0], [50.0, 20.0, 4.0], [100.0, 40.0, 9.0], [200.0, 0.0, np.nan]])


def test_ranges_become_minus_one_to_one_and_what_is_beyond_is_clipped() -> None:
    scaler = private.PublicScaler([0.0, 0.0, -8.0], [100.0, 40.0, 8.0])
    expected = np.array([[-1.0, -0.5, -0.5], [0.0, 0.0, 0.5], [1.0, 1.0, 1.0], [1.0, -1.0, np.nan]])
    assert np.array_equal(scaler.fit_transform(TABLE), expected, equal_nan=True)
    open_ended = private.PublicScaler(scaler.low, scaler.high, clip=False).fit(TABLE)
    assert open_ended.transform(TABLE)[3, 0] == 3.0
    assert np.allclose(open_ended.inverse_transform(open_ended.transform(TABLE)), TABLE, equal_nan=True)
    assert scaler.inverse_transform(expected)[3, 0] == 100.0
    # Nothing of the records is kept, so it need not be fitted.
    assert np.array_equal(private.PublicScaler(scaler.low, scaler.high).transform(TABLE), expected, equal_nan=True)
    assert set(vars(scaler)) == {"low", "high", "clip", "n_features_in_"}


@given(
    low=st.floats(-1e100, 1e100),
    width=st.floats(1e-200, 1e100),
    entry=st.floats(allow_nan=False, allow_infinity=False),
    single=st.booleans(),
)
def test_entries_are_within_one_whatever_they_are(low: float, width: float, entry: float, single: bool) -> None:
    high = low + width
    if not low < high <= 1e100 or not (high - low) / 2.0 > 0.0:
        return
    with np.errstate(over="ignore"):
        table = np.array([[entry]], dtype=np.float32 if single else np.float64)
    if np.isfinite(table).all():
        assert abs(private.PublicScaler(low, high).transform(table)[0, 0]) <= 1.0


LARGE = 1.7e308


def ranges(column: np.ndarray, share: GDP, seed: int = 0) -> LocatedQuantiles:
    table = column if column.ndim == 2 else column[:, None]
    settings: dict[str, Any] = {"tail": 0.05, "share": share, "name": "ranges", "give": "bounds", "neighbours": "replace_one"}
    return private_ranges(table, generator=np.random.default_rng(seed), **settings)


def norm(sizes: np.ndarray, share: GDP, seed: int = 0) -> float:
    generator = np.random.default_rng(seed)
    return released_norm(sizes, quantile=0.75, share=share, neighbours="replace_one", generator=generator)[0]


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_what_is_beyond_an_end_is_released_at_it_with_a_warning(sign: float) -> None:
    column = sign * np.linspace(10.0 * LARGEST, 20.0 * LARGEST, 1000)
    for seed in range(20):
        with pytest.warns(RangeEndWarning, match=r"end of the public range, 1\.1e\+12\. Larger values"):
            found = ranges(column, GDP(0.9), seed)
        assert max(np.abs([found.low[0], found.high[0]])) == pytest.approx(LARGEST, rel=1e-3)
        with pytest.warns(RangeEndWarning, match="Larger ones"):
            assert norm(np.abs(column), GDP(0.2), seed) == pytest.approx(LARGEST, rel=1e-2)


def test_too_few_records_are_warned_of_with_the_remedy() -> None:
    rng = np.random.default_rng(0)
    with pytest.warns(UndetectedRangeWarning, match=r"60 records are too few .* Give public bounds, target_bound=\(low, high\); or more"):
        model = private.LinearRegression(epsilon=0.3, feature_norm=1.0, delta=1e-6, **SEEDED).fit(
            X := rng.uniform(-1.0, 1.0, (60, 2)), X[:, 0]
        )
    assert np.abs(model.target_range_).max() <= 2.0 * SMALLEST  # predictions next to 0, whatever the noise
    with pytest.warns(UndetectedRangeWarning, match=r"columns 0, 1, 2, counted from 0: 60 records .* bounds=\(low, high\)") as shown:
        private.PrivateStandardScaler(epsilon=0.3, delta=1e-6, **SEEDED).fit(rng.standard_normal((60, 3)))
    assert [one.filename for one in shown] == [__file__]
    with pytest.warns(UndetectedRangeWarning, match=r"60 records .* feature_norm=R"):
        private.LogisticRegression(epsilon=0.3, delta=1e-6, classes=[0, 1], **SEEDED).fit(X, (X[:, 0] > 0.0).astype(int))
    with pytest.warns(UndetectedRangeWarning, match="may be several times too wide, or too narrow"):
        ranges(np.full(200, 3.0), GDP(0.12))


def with_one(values: np.ndarray, far: float) -> np.ndarray:
    changed = values.copy()
    changed[7] = far
    return changed


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_one_enormous_record_is_one_at_the_end(sign: float) -> None:
    """It made the release raise, and so showed."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (400, 2))
    y = X @ [1.0, -1.0]
    for make, mechanism in ((private.LinearRegression, "adassp"), (private.HuberRegressor, "output_perturbation")):
        models = [
            build(make, epsilon=3.0, mechanism=mechanism, **SEEDED).fit(X, with_one(y, value)) for value in (sign * LARGE, sign * 1e13)
        ]
        assert models[0].target_range_ == models[1].target_range_
        np.testing.assert_allclose(
            models[0].coef_, models[1].coef_, rtol=1e-5
        )  # a slope is cut, not the target: the solver rounds otherwise
        norms = [models[0].fit(with_one(X, value), y).feature_norm_ for value in (sign * LARGE, sign * 1e13)]
        assert norms[0] == norms[1]
    for make, parameters in (
        (private.PrivateStandardScaler, {}),
        (private.PrivateQuantileClipper, {}),
        (private.PrivateQuantileClipper, {"norm_quantile": 0.7}),
    ):
        transformer = build(make, **parameters, **SEEDED)
        far, end = (transformer.fit(with_one(X, value)).transform(X) for value in (sign * LARGE, sign * 1e13))
        np.testing.assert_array_equal(far, end)
