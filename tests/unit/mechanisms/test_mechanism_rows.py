"""Rows are projected inward by exact arithmetic's measure, one by one, and targets are what they should be."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lethe.errors import InputError
from lethe.mechanisms.tables import projected_rows, targets_within
from lethe.run.losses.linear import class_targets, row_norm


@given(
    table=arrays(np.float64, (3, 4), elements=st.floats(-1e200, 1e200)),
    radius=st.floats(1e-3, 1e3),
)
def test_no_row_is_longer_than_the_bound_in_exact_arithmetic(table: np.ndarray, radius: float) -> None:
    for row in projected_rows(table, feature_norm=radius):
        assert sum(Fraction(entry) ** 2 for entry in row.tolist()) <= Fraction(radius) ** 2


@given(table=arrays(np.float64, (3, 2), elements=st.floats(-10.0, 10.0)))
def test_each_row_is_treated_by_itself_and_short_ones_stay(table: np.ndarray) -> None:
    rows = projected_rows(table, feature_norm=2.0, intercept=True)
    for index in range(3):
        assert (projected_rows(table[index : index + 1], feature_norm=2.0, intercept=True)[0] == rows[index]).all()
        if np.linalg.norm(table[index]) < 1.999:
            assert (rows[index, :2] == table[index]).all()
        else:
            assert np.linalg.norm(rows[index, :2]) == pytest.approx(min(2.0, np.linalg.norm(table[index])))
    assert (rows[:, 2] == 1.0).all()
    assert np.linalg.norm(rows, axis=1).max() <= row_norm(2.0, intercept=True)


def test_norms_and_targets() -> None:
    assert row_norm(2.0, intercept=False) == 2.0
    assert row_norm(2.0, intercept=True) == pytest.approx(math.sqrt(5.0))
    assert targets_within([-3, 0.5, 9], count=3, bound=2.0).tolist() == [-2.0, 0.5, 2.0]
    assert class_targets([0, 2.0, 1], count=3, classes=3).tolist() == [0, 2, 1]
    with pytest.raises(InputError, match=r"targets\[1\] = 3"):
        class_targets([0, 3], count=2, classes=3)
