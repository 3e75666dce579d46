"""Private preprocessing: scalers, clippers, components and whitening, what comes out and at what price."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from excused_checks import SEEDED
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st
from private_cases import cloned, stated
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.errors import InputError
from lethe.estimators import (
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateStandardScaler,
    PrivateWhitening,
    SoftmaxRegression,
    privacy_of,
    privacy_report_of,
    split_budget,
)
from lethe.estimators.features.images import synthetic_images
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.preprocessing.scaler import gaussian_cost
from lethe.features import PublicWhitening, RecordNormalizer, ScatteringFeatures
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std

NO_NOISE = {"epsilon": 1e12, "delta": 1e-5}


def table(records: int = 2000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((records, 3)) * [1.0, 2.0, 3.0] + [5.0, 0.0, -1.0]


def test_without_noise_a_scaler_is_numpys() -> None:
    X = np.clip(table(), -10.0, 10.0)
    scaler = PrivateStandardScaler(bounds=(-10.0, 10.0), **NO_NOISE).fit(X)
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(scaler.scale_, X.std(axis=0), atol=1e-3)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, atol=1e-9)
    assert scaler.transform([[1e9, 0.0, -1e9]]) == pytest.approx(scaler.transform([[10.0, 0.0, -10.0]]))


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
    private = PrivateWhitening(3, epsilon=1e9, delta=1e-5, feature_norm=100.0, floor=1e-9).fit(rows)
    for one, tolerance in ((public, 1e-3), (private, 0.02)):
        found = one.transform(rows)
        assert found.dtype == dtype
        np.testing.assert_allclose(by_channel(found).mean(axis=0), 0.0, atol=tolerance)
        np.testing.assert_allclose(np.cov(by_channel(found).T), np.eye(3), atol=tolerance)
        # The matrix is the same at every position, and a block is like any other.
        np.testing.assert_allclose(one.transform(rows[1234:1236]), found[1234:1236], rtol=1e-4, atol=1e-5)
        swapped = rows.reshape(-1, 3, 4)[:, :, ::-1].reshape(len(rows), -1)
        np.testing.assert_allclose(one.transform(swapped).reshape(-1, 3, 4)[:, :, ::-1].reshape(found.shape), found, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(private.mean_, public.mean, atol=0.01)
    np.testing.assert_allclose(private.covariance_, public.covariance, atol=0.05)


def test_what_noise_alone_could_have_made_is_not_whitened() -> None:
    """With so little privacy budget every direction is, and all are scaled by one number."""
    rows = RecordNormalizer().fit_transform(channel_table(400))
    one = PrivateWhitening(3, epsilon=0.001, feature_norm=1.0, delta=1e-5, neighbours="replace_one").fit(rows)
    values = np.linalg.eigvalsh(one.whitening_)
    assert np.isfinite(one.transform(rows)).all()
    assert values.min() > 0.0
    noise = math.sqrt(6.0) / 4.0 * (2.5 / math.sqrt(2.0)) / mu_of(one.statement_.guarantee) / 400
    assert values.max() == pytest.approx(1.0 / math.sqrt(noise), rel=1e-6)


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("feature_norm", ["auto", 6.0])
def test_the_budget_is_met_and_the_statement_says_what_it_rests_on(neighbours: Any, feature_norm: Any) -> None:
    one = PrivateWhitening(3, epsilon=0.7, delta=4e-5, neighbours=neighbours, feature_norm=feature_norm).fit(channel_table())
    assert 0.69 < one.epsilon_ <= 0.7
    assert {finding.evidence for finding in one.statement_.findings} <= {"checked", "enforced"}
    assert "12 columns, and their names: 3 channels of 4" in one.privacy_report_
    assert "averaged over its 4 positions" in one.privacy_report_
    assert stated(one) == one.statement_


def test_synthetic_images_are_the_seed_s_and_have_edges() -> None:
    images = synthetic_images((3, 12, 10), images=20, seed=5)
    assert (images.shape, images.dtype) == ((20, 3, 12, 10), np.float32)
    assert images.min() >= 0.0
    assert images.max() <= 1.0
    np.testing.assert_array_equal(images, synthetic_images([3, 12, 10], images=20, seed=5))  # pyright: ignore[reportArgumentType]
    assert (images != synthetic_images((3, 12, 10), images=20, seed=6)).any()
    steps = np.abs(np.diff(images, axis=-1))
    assert 0.1 < (steps > 0.01).mean() < 0.9
    for shape, count in (((12, 10), 1), (None, 5), ((0, 3), 5)):
        with pytest.raises(InputError):
            synthetic_images(shape, images=count)  # pyright: ignore[reportArgumentType]
    scattering = ScatteringFeatures(angles=4)
    one, two = (PublicWhitening.of_synthetic_images(scattering, (12, 10), channels=25, images=30) for _ in range(2))
    np.testing.assert_array_equal(one.covariance, two.covariance)
    assert one.transform(scattering.transform(images[:, 0])).shape == (20, 25 * 6)
    with pytest.raises(InputError, match="features = "):
        PublicWhitening.of_synthetic_images(RecordNormalizer(), (12, 10), channels=25)  # pyright: ignore[reportArgumentType]


def _pipeline(epsilon: float, shares: list[float]) -> Any:
    scattering = ScatteringFeatures()
    free = PublicWhitening.of_synthetic_images(scattering, (8, 8), channels=81, images=200)
    paid, model = split_budget(
        [
            PrivateWhitening(81, feature_norm=1.0),
            SoftmaxRegression(options=EstimatorOptions(mechanism="pass_ends", passes=3), feature_norm=1.0, classes=list(range(10))),
        ],
        epsilon,
        1e-5,
        shares=shares,
    )
    return make_pipeline(scattering, free, RecordNormalizer(), paid, RecordNormalizer(), model)


def test_a_pipeline_states_the_whole_price_and_what_is_free() -> None:
    digits: Any = load_digits()
    images, labels = digits.images / 16.0, digits.target
    model = _pipeline(4.0, [0.1, 0.9]).fit(images[:800], labels[:800])
    total = privacy_of(model)
    assert 3.99 < total.epsilon(1e-5) <= 4.0
    mus = [mu_of(model[place].statement_.guarantee) for place in (3, 5)]
    assert mu_of(total.guarantee) == pytest.approx(math.hypot(*mus))
    assert mus[0] ** 2 == pytest.approx(0.1 * mu_of(total.guarantee) ** 2, rel=2e-5)  # training keeps 1e-5 of its noise in reserve
    report = privacy_report_of(model, 1e-5)
    for name in ("scatteringfeatures", "publicwhitening", "recordnormalizer-1", "recordnormalizer-2"):
        assert f"    {name} > " in report
    assert "means and covariances" in report
    assert model.score(images[1500:], labels[1500:]) > 0.7
