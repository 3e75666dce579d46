"""Calibration and the bracket under it: never on the wrong side, frugal, and it says so when there is no answer."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.conversions import gdp_epsilon
from lethe.calculus.crossing import crossing, log_gap, smallest
from lethe.errors import CalibrationError


@given(st.floats(1e-3, 1e3), st.floats(0.3, 4.0), st.floats(1e-3, 1e3), st.floats(1e-6, 1e6))
def test_power_laws_are_met_and_met_tightly(scale: float, power: float, target: float, start: float) -> None:
    answer = smallest(lambda x: scale * x**-power, target, start=start)
    truth = (scale / target) ** (1 / power)
    assert scale * answer**-power <= target
    # The promised tolerance, and the rounding of the truth computed here.
    assert answer <= truth * (1 + 1e-6 + 1e-12)


def test_smallest_noise_of_a_gaussian_is_the_exact_one() -> None:
    # theory.md section 2: mu = 1 is (4.377178, 1e-5)-DP, so the smallest noise multiplier is 1 within the printed digits.
    asked: list[float] = []

    def epsilon(noise: float) -> float:
        asked.append(noise)
        return gdp_epsilon(1.0 / noise, 1e-5)

    answer = smallest(epsilon, 4.377178, start=20.0)
    assert answer == pytest.approx(1.0, abs=1e-6)
    assert answer in asked
    assert len(asked) <= 16  # frugal: an evaluation may take a second


@pytest.mark.parametrize("start", [1e-4, 1.0, 1e4])
def test_infinite_and_nan_bounds_are_failures(start: float) -> None:
    assert 2.0 <= smallest(lambda x: math.inf if x < 2.0 else 0.0, 1.0, start=start) <= 2.0 * (1 + 1e-6)
    assert 2.0 <= smallest(lambda x: math.nan if x < 2.0 else 1.0, 1.0, start=start) <= 2.0 * (1 + 1e-6)


@given(st.integers(0, 2**32))
def test_bound_that_is_not_monotone_is_still_met(seed: int) -> None:
    def bumpy(x: float) -> float:
        return 5.0 / x * (1.0 + 0.5 * math.sin(40.0 * math.log(x) + seed))

    assert bumpy(smallest(bumpy, 1.0, start=0.1)) <= 1.0


def test_target_met_everywhere_gives_the_end_of_the_search() -> None:
    assert smallest(lambda _: 0.0, 1.0, start=1.0) == pytest.approx(2.0**-200, rel=1e-9)  # documented end; exp and log round


def test_target_met_nowhere_is_an_error_with_its_parts() -> None:
    with pytest.raises(CalibrationError, match=r"needs to fall to 1(.|\n)*From: (.|\n)*Do: "):
        smallest(lambda _: 2.0, 1.0, start=1.0)


@given(st.floats(-50, 50), st.booleans())
def test_crossing_works_from_either_side(root: float, reverse: bool) -> None:
    sign = -1.0 if reverse else 1.0
    failing, passing = sign * -100.0, sign * 100.0
    answer = crossing(
        lambda u: math.atan(sign * (root - u)),
        failing,
        passing,
        resolution=1e-9,
        gap_failing=math.atan(sign * (root - failing)),
        gap_passing=math.atan(sign * (root - passing)),
    )
    assert 0.0 <= sign * (answer - root) <= 1e-9 + 1e-13  # the resolution, and one ulp of 100


def test_crossing_takes_no_more_evaluations_than_bisection_and_one() -> None:
    for shape in (lambda u: 1.0 - u**9, lambda u: math.exp(-40 * u) - 1e-9, lambda u: 1.0 if u < 1e-7 else -1e-9):
        asked: list[float] = []

        def gap(u: float, shape=shape, asked=asked) -> float:
            asked.append(u)
            return shape(u)

        crossing(gap, 0.0, 2.0, resolution=2.0**-20, gap_failing=1.0, gap_passing=-1.0)
        assert len(asked) <= 22  # log2(2 / 2^-20) = 21 halvings, and one


@given(st.floats(0, 1e300), st.floats(0, 1e300))
def test_log_gap_has_the_sign_of_the_comparison(value: float, target: float) -> None:
    assert (log_gap(value, target) <= 0.0) == (value <= target)
    assert not math.isnan(log_gap(value, target))
