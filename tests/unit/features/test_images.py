"""Images that come in: shapes, ranges, blocks; and what transformers of images keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from lethe.errors import InputError
from lethe.features import RandomConvolutionFeatures, ScatteringFeatures

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
    assert {name for name in vars(one) if name.endswith("_") or name.startswith("_")} == {
        "image_shape_",
        "n_features_in_",
        "_n_features_out",
    }
    assert (one.image_shape_, one.n_features_in_) == ((1, 9, 8), 72)
    np.testing.assert_array_equal(make().transform(BYTES), one.transform(BYTES))
    names = one.get_feature_names_out()
    assert (len(names), names[0]) == (one.transform(BYTES).shape[1], f"{make.__name__.lower()}0")
    copy: Any = clone(one)
    assert copy.get_params() == one.get_params()
    with pytest.raises(InputError, match=r"images of shape \(1, 8, 9\).*was fitted to \(1, 9, 8\)"):
        one.transform(BYTES.transpose(0, 2, 1))


@pytest.mark.slow
@BOTH
def test_every_record_is_by_itself_in_blocks_of_any_size(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    many = np.random.default_rng(1).random((150, 9, 8)).astype(np.float32)
    whole = make().transform(many)
    np.testing.assert_allclose(whole[70:72], make().transform(many[70:72]), atol=1e-6)
    monkeypatch.setattr(make, "_block", 7)
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
