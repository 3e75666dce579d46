"""Composition: exact for equal kinds, sound for mixed ones."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.composition import compose_gdp, compose_zcdp


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_gdp_sum_is_the_root_of_squares_from_above(mus: list[float]) -> None:
    exact = math.hypot(*mus)  # neither overflows nor underflows on the way
    assert exact * (1 - 4e-16) <= compose_gdp(mus) <= exact * (1 + 3e-15) + 5e-324 * len(mus)  # rounded up by 1e-15


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_gdp_sum_neither_overflows_nor_underflows(scale: float) -> None:
    assert compose_gdp([3 * scale, 4 * scale]) == pytest.approx(5 * scale, rel=3e-15)  # rounding up by 1e-15


def test_sums_at_their_edges() -> None:
    assert compose_gdp([0.0, 0.7, 0.0]) == 0.7
    assert compose_gdp([0.0]) == compose_zcdp([0.0, 0.0]) == 0.0
    assert compose_gdp([1.0, math.inf]) == compose_zcdp([1.0, math.inf]) == math.inf
    assert compose_zcdp([1e308, 1e308]) == math.inf
    assert compose_zcdp([0.1] * 10) >= 1.0
