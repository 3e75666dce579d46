"""Outward rounding: never inward, exact numbers stay, and nothing that is no number becomes 0."""

import math
from fractions import Fraction

import numpy as np

from lethe.calculus import rounding

NOT_BOUNDS = (math.nan, -1.0, -5e-324, -math.inf)
NUMBERS = (5e-324, 1e-310, 1e-200, 1e-3, 1.0, 1 + 2**-52, 3.7, 1e200, 1.7976931348623157e308)


def test_rounding_moves_outward_and_keeps_what_is_exact() -> None:
    assert rounding.round_up(1.0) > 1.0 > rounding.round_down(1.0)
    assert rounding.round_up(-1.0) > -1.0
    assert rounding.round_up(0.0) == rounding.round_down(0.0) == 0.0
    assert rounding.round_up(math.inf) == math.inf
    assert rounding.round_up(1.0, 1e-3) >= 1.001


def test_an_upper_bound_that_is_no_number_is_infinite() -> None:
    assert rounding.round_up(math.nan) == math.inf
    assert rounding.round_down(math.nan) == -math.inf
    for rule in (rounding.above, rounding.raised, rounding.root_above):
        assert np.isposinf(rule(np.array(NOT_BOUNDS), 1e-15)).all()
        assert np.isposinf(rule(math.inf))
    assert rounding.exp_above(math.nan) == rounding.exp_above(math.inf) == rounding.exp_above(1e9) == math.inf


def test_arrays_move_outward_too() -> None:
    values = np.array(NUMBERS)
    for relative in (0.0, 1e-12):
        assert (rounding.above(values, relative) > values).all()
        assert (rounding.raised(values, relative) > values).all()
        assert (rounding.root_above(values, relative) >= np.sqrt(values)).all()
        roots = rounding.root_above(values).tolist()
        assert all(Fraction(root) ** 2 >= Fraction(value) for root, value in zip(roots, NUMBERS, strict=True))
    assert rounding.above(0.0) == 5e-324
    assert rounding.raised(0.0) == rounding.root_above(0.0) == rounding.exp_above(-math.inf) == 0.0
    assert rounding.exp_above(-800.0) == 5e-324


def test_a_count_is_never_below_its_quotient() -> None:
    most = rounding.MOST_COUNT
    quotients = [0.0, 0.1, 1.0, 1.5, 2.0**53, 2.0**60 + 512, 2.0**61, 1e19, 1e300, math.inf, math.nan, -1.0, -math.inf]
    counted = rounding.count_above(np.array(quotients), most).tolist()
    assert counted == [0, 1, 1, 2, 2**53, 2**60 + 512, *[most] * 7]
    assert rounding.count_above(math.nan, 0) == 0
