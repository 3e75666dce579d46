"""The floating-point layer against sixty or more digits."""

import math

import mpmath
import numpy as np
import pytest
from exact_numbers import Exact

from lethe.calculus import normal


def exact_delta(mu: float, epsilon: float) -> Exact:
    """Balle & Wang 2018, Theorem 8, as printed."""
    m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
    return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", np.logspace(-8, 2, 21))
def test_log_gaussian_delta_is_just_above_eighty_digits(mu: float) -> None:
    with mpmath.workdps(80):
        for x in (-mu / 2, -mu / 4, 0.0, 1e-9, 0.3, 1.0, 5.0, 12.0, 19.9, 20.1, 30.0, 36.5):
            epsilon = mu * (x + mu / 2)
            exact = exact_delta(mu, epsilon)
            if epsilon < 0 or exact < mpmath.mpf(10) ** -300:
                continue
            relative = float(mpmath.exp(mpmath.mpf(float(normal.log_gaussian_delta(mu, epsilon)))) / exact - 1)
            # Never below; above by the documented margin of 1e-11 and the rounding of x at mu = 100.
            assert 0.0 <= relative <= 2e-11 or exact > 1 - 1e-11


def test_log_gaussian_delta_beyond_what_a_float_holds() -> None:
    with mpmath.workdps(80):
        for mu, epsilon in ((1e-8, 1.0), (0.1, 100.0), (1.0, 1e4)):
            exact = float(mpmath.log(exact_delta(mu, epsilon))) if mu > 1e-6 else -0.5 * (epsilon / mu - mu / 2) ** 2
            assert float(normal.log_gaussian_delta(mu, epsilon)) == pytest.approx(exact, rel=1e-12)  # log-space rounding, a few ulp


def test_log_gaussian_delta_at_its_edges() -> None:
    values = normal.log_gaussian_delta([0.0, math.inf, 1.0, math.inf, 1e-300, 1e200], [0.0, 3.0, math.inf, math.inf, 1.0, 0.0])
    assert values[:4].tolist() == [-math.inf, 0.0, -math.inf, 0.0]
    assert -math.inf < values[4] < -1e300  # smaller than any float, still positive
    assert values[5] == 0.0


@pytest.mark.parametrize(("weight", "x"), [(1e-18, 1e-5), (0.3, -40.0), (1e-300, 900.0), (0.5, 0.999), (1.0, 3.0), (0.0, 5.0)])
def test_log_mixture_against_fifty_digits(weight: float, x: float) -> None:
    with mpmath.workdps(50):
        exact = float(mpmath.log(1 - mpmath.mpf(weight) + mpmath.mpf(weight) * mpmath.exp(x)))
    assert float(normal.log_mixture(weight, x)) == pytest.approx(exact, rel=1e-14, abs=1e-300)  # a few ulp
