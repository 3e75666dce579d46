"""Whitening over channels: what comes out, of which numbers, at what price, alone and in a pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from private_cases import stated
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.errors import InputError
from lethe.estimators import SoftmaxRegression, privacy_of, privacy_report_of, split_budget
from lethe.estimators.features.images import synthetic_images
from lethe.estimators.options import EstimatorOptions
from lethe.features import PrivateWhitening, PublicWhitening, RecordNormalizer, ScatteringFeatures

MIXED = np.array([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [-0.3, 0.2, 0.1]])


def table(records: int = 400, positions: int = 4, seed: int = 0) -> np.ndarray:
    """Three channels that hang together, at as many positions, channels first."""
    values = np.random.default_rng(seed).standard_normal((records, positions, 3)) @ MIXED.T + [1.0, -2.0, 0.5]
    return values.transpose(0, 2, 1).reshape(records, -1)


def by_channel(rows: np.ndarray, channels: int = 3) -> np.ndarray:
    return np.moveaxis(rows.reshape(len(rows), channels, -1), 1, 2).reshape(-1, channels)


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([PublicWhitening([0.5], [[4.0]])])
def test_it_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_channels_come_out_centred_and_uncorrelated(dtype: Any) -> None:
    rows = table(3000).astype(dtype)
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
    rows = RecordNormalizer().fit_transform(table(400))
    one = PrivateWhitening(3, epsilon=0.001, feature_norm=1.0, delta=1e-5, neighbours="replace_one").fit(rows)
    values = np.linalg.eigvalsh(one.whitening_)
    assert np.isfinite(one.transform(rows)).all()
    assert values.min() > 0.0
    noise = math.sqrt(6.0) / 4.0 * (2.5 / math.sqrt(2.0)) / mu_of(one.statement_.guarantee) / 400
    assert values.max() == pytest.approx(1.0 / math.sqrt(noise), rel=1e-6)


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("feature_norm", ["auto", 6.0])
def test_the_budget_is_met_and_the_statement_says_what_it_rests_on(neighbours: Any, feature_norm: Any) -> None:
    one = PrivateWhitening(3, epsilon=0.7, delta=4e-5, neighbours=neighbours, feature_norm=feature_norm).fit(table())
    assert 0.69 < one.epsilon_ <= 0.7
    assert {finding.evidence for finding in one.statement_.findings} <= {"checked", "enforced"}
    assert "12 columns, and their names: 3 channels of 4" in one.privacy_report_
    assert "averaged over its 4 positions" in one.privacy_report_
    assert stated(one) == one.statement_


def test_positions_make_the_noise_no_larger() -> None:
    """Four times the positions, each record four times as long in squares: what is released is as exact as before."""
    few, many = (PrivateWhitening(3, feature_norm=norm, epsilon=1.0, delta=1e-5).fit(table(400, p)) for p, norm in ((4, 6.0), (16, 12.0)))
    assert few.statement_.guarantee == many.statement_.guarantee
    derivations = [one.statement_.derivation.parameters for one in (few, many)]
    assert derivations[0]["noise_std"] == pytest.approx(derivations[1]["noise_std"])


@pytest.mark.slow
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


@pytest.mark.slow
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
