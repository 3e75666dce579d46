"""Images that come in, and random features: shapes, ranges, blocks, the kernel they stand for, their definition, and norms."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from lethe.errors import InputError
from lethe.estimators.features.images import synthetic_images
from lethe.estimators.features.modules import RandomConvolutions2d
from lethe.features import PublicWhitening, RandomConvolutionFeatures, RandomFourierFeatures, RecordNormalizer, ScatteringFeatures

BYTES = np.random.default_rng(0).integers(0, 256, (5, 9, 8)).astype(np.uint8)
BOTH = pytest.mark.parametrize("make", [ScatteringFeatures, RandomConvolutionFeatures])


@BOTH
def test_one_image_in_any_form_has_the_same_features(make: Any) -> None:
    expected = make().fit_transform(BYTES)
    assert expected.dtype == np.float32
    rows = BYTES.reshape(5, -1)
    for X, shape in (
        (BYTES[:, None], None),
        (BYTES.astype(np.int64), None),
        (BYTES / np.float32(255), None),
        (rows, (9, 8)),
        (rows, [1, 9, 8]),
        (rows.tolist(), (np.int64(9), 8)),
        (pd.DataFrame(rows), (9, 8)),
        (BYTES.tolist(), None),
        (np.asfortranarray(BYTES), None),
    ):
        np.testing.assert_array_equal(make(shape).fit_transform(X), expected)
    np.testing.assert_allclose(make().fit_transform(BYTES / 255.0), expected, atol=1e-6)
    assert np.array_equal(make().fit_transform(BYTES > 100), make().fit_transform((BYTES > 100).astype(float)))


@BOTH
def test_the_shape_is_all_that_is_kept_and_a_fit_is_not_needed(make: Any) -> None:
    one = make().fit(BYTES)
    assert set(vars(one)) - set(one.get_params()) == {"image_shape_", "n_features_in_", "_n_features_out"}
    assert (one.image_shape_, one.n_features_in_) == ((1, 9, 8), 72)
    np.testing.assert_array_equal(make().transform(BYTES), one.transform(BYTES))
    names = one.get_feature_names_out()
    assert (len(names), names[0]) == (one.transform(BYTES).shape[1], f"{make.__name__.lower()}0")
    copy: Any = clone(one)
    assert copy.get_params() == one.get_params()
    with pytest.raises(InputError, match=r"images of shape \(1, 8, 9\).*was fitted to \(1, 9, 8\)"):
        one.transform(BYTES.transpose(0, 2, 1))


@BOTH
def test_every_record_is_by_itself_in_blocks_of_any_size(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    many = np.random.default_rng(1).random((70, 9, 8)).astype(np.float32)
    whole = make().transform(many)
    np.testing.assert_allclose(whole[63:66], make().transform(many[63:66]), atol=1e-6)
    monkeypatch.setattr(make, "_block", 30)
    np.testing.assert_allclose(make().transform(many), whole, atol=1e-6)
    assert make().transform(many[:0]).shape == (0, whole.shape[1])


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (np.nan, np.float64, r"image 3, channel 0, pixel \(2, 5\) is out of range; it needs finite numbers within 1e\+06"),
        (np.inf, np.float32, "finite numbers"),
        (-2e6, np.float64, "finite numbers"),
        (256, np.int64, "whole numbers from 0 to 255"),
        (-1, np.int16, "whole numbers from 0 to 255(?s:.)*numpy.uint8"),
    ],
)
def test_pixels_out_of_range_are_refused_by_their_place(value: float, dtype: Any, message: str) -> None:
    images = BYTES.astype(dtype)
    images[3, 2, 5] = value
    with pytest.raises(InputError, match=message):
        ScatteringFeatures().transform(images)


def test_inner_products_are_the_kernel_s_within_hoeffding_s_bound() -> None:
    """For one pair each the bound fails with probability 1e-9; there are 435 pairs."""
    rows, gamma, count = np.random.default_rng(0).standard_normal((30, 5)), 0.2, 4000
    found = RandomFourierFeatures(count // 2, gamma=gamma, seed=7).fit_transform(rows).astype(np.float64)
    off = np.abs(found @ found.T - rbf_kernel(rows, gamma=gamma))
    assert off.max() < math.sqrt(4.0 * math.log(2.0 / 1e-9) / count)
    assert off.max() < 0.1 < np.abs(found @ found.T - rbf_kernel(rows, gamma=2.0 * gamma)).max()


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e30, 1e300])
def test_rows_have_norm_one_and_never_more(scale: float) -> None:
    rows = scale * np.random.default_rng(1).uniform(-1.0, 1.0, (200, 3))
    norms = np.linalg.norm(RandomFourierFeatures(250).fit_transform(rows).astype(np.float64), axis=1)
    assert norms.max() <= 1.0
    assert norms.min() > 1.0 - 1e-5


def test_the_seed_is_all_that_the_frequencies_are_made_of() -> None:
    rows = np.random.default_rng(2).standard_normal((2000, 4)).astype(np.float32)
    one, two = RandomFourierFeatures(1024, seed=3).fit(rows), RandomFourierFeatures(1024, seed=3).fit(5.0 * rows[:10])
    np.testing.assert_array_equal(one.frequencies_, two.frequencies_)
    assert (one.frequencies_ != RandomFourierFeatures(1024, seed=4).fit(rows).frequencies_).all()
    np.testing.assert_allclose(one.transform(rows)[1500:1503], one.transform(rows[1500:1503]), atol=1e-6)  # more than a block
    assert one.frequencies_.std() == pytest.approx(math.sqrt(2.0), rel=0.05)


def test_responses_are_by_their_definition() -> None:
    images = np.random.default_rng(3).random((2, 3, 7, 6))
    images[0] += 5.0
    module = RandomConvolutions2d(3, filters=4, kernel_size=3, cells=2, threshold=0.2, seed=1, dtype=torch.float64)
    filters = module.weights.numpy()
    np.testing.assert_allclose(filters.sum(axis=(1, 2, 3)), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.square(filters).sum(axis=(1, 2, 3)), 1.0)
    responses = np.empty((2, 4, 5, 4))
    for y in range(5):
        for x in range(4):
            patches = images[:, :, y : y + 3, x : x + 3].reshape(2, -1)
            contrast = np.sqrt(patches.var(axis=1) + 10.0 / 255.0**2)
            responses[:, :, y, x] = patches @ filters.reshape(4, -1).T / contrast[:, None]
    both = np.concatenate([np.maximum(responses - 0.2, 0.0), np.maximum(-responses - 0.2, 0.0)], axis=1)
    cells = np.stack([both[:, :, top, left].mean(axis=(2, 3)) for top in (slice(0, 3), slice(2, 5)) for left in (slice(0, 2), slice(2, 4))])
    found = module(torch.tensor(images)).numpy()
    np.testing.assert_allclose(found, cells.transpose(1, 2, 0).reshape(2, 8, 2, 2), atol=1e-9)
    table = RandomConvolutionFeatures(filters=4, kernel_size=3, cells=2, threshold=0.2, seed=1).fit_transform(images)
    np.testing.assert_allclose(table, found.reshape(2, -1), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [None, 1, 3, 6])
def test_records_come_out_with_one_norm_and_groups_with_mean_0_and_variance_1(groups: int | None, dtype: Any) -> None:
    rows = (np.random.default_rng(4).standard_normal((400, 12)) * [[3.0]] + 2.0).astype(dtype)
    found = RecordNormalizer(2.5, groups=groups).fit_transform(rows)
    assert found.dtype == dtype
    norms = np.sqrt(np.square(found.astype(np.longdouble)).sum(axis=1))
    assert norms.max() <= 2.5
    assert norms.min() > 2.5 * (1.0 - 3e-6)
    if groups is None:
        np.testing.assert_allclose(found, 2.5 * rows / np.linalg.norm(rows, axis=1, keepdims=True), rtol=1e-5)
        assert np.array_equal(RecordNormalizer(None).fit_transform(rows), rows)
        return
    split = RecordNormalizer(None, groups=groups).fit_transform(rows).reshape(400, groups, -1)
    np.testing.assert_allclose(split.mean(axis=2), 0.0, atol=1e-5)
    if groups < 6:  # of two numbers a spread may be so small that it is smoothed
        np.testing.assert_allclose(split.var(axis=2), 1.0, atol=0.05)
    expected = torch.nn.functional.group_norm(torch.tensor(rows.astype(np.float64)), groups, eps=1e-5)
    np.testing.assert_allclose(split.reshape(400, -1), expected, atol=1e-5)


def test_records_of_zeros_stay_zeros_and_enormous_ones_have_the_norm_too() -> None:
    rows = np.array([[0.0, 0.0], [1e300, -1e300], [1e-300, 0.0]])
    found = RecordNormalizer(3.0).fit_transform(rows)
    np.testing.assert_allclose(np.linalg.norm(found[:2], axis=1), [0.0, 3.0])
    assert np.isfinite(found).all()


def test_synthetic_images_are_the_seed_s_and_have_edges() -> None:
    images = synthetic_images((3, 12, 10), images=20, seed=5)
    assert (images.shape, images.dtype) == ((20, 3, 12, 10), np.float32)
    assert images.min() >= 0.0
    assert images.max() <= 1.0
    np.testing.assert_array_equal(images, synthetic_images([3, 12, 10], images=20, seed=5))  # pyright: ignore[reportArgumentType]
    assert (images != synthetic_images((3, 12, 10), images=20, seed=6)).any()
    steps = np.abs(np.diff(images, axis=-1))
    assert 0.1 < (steps > 0.01).mean() < 0.9
    scattering = ScatteringFeatures(angles=4)
    one, two = (PublicWhitening.of_synthetic_images(scattering, (12, 10), channels=25, images=30) for _ in range(2))
    np.testing.assert_array_equal(one.covariance, two.covariance)
    assert one.transform(scattering.transform(images[:, 0])).shape == (20, 25 * 6)
