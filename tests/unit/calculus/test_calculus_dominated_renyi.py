"""The excess over one pair's moment, where no pair dominates a step, against quadrature; at small rates it is nearly exact."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from lethe.calculus.sampled.quadrature import replaced_excess, zeroed_excess

RATE = 1e-4
ORDERS = (1.5, 2.0, 3.0, 6.0)
NOISES = (1.0, 2.0, 5.0)
GAUSS = np.polynomial.legendre.leggauss(20)


def _normal(x: float, mean: float) -> float:
    return math.exp(-0.5 * (x - mean) ** 2) / math.sqrt(2.0 * math.pi)


def _over(integrand: Callable[[float], float], low: float, high: float) -> float:
    ends = np.linspace(low, high, 41)
    half = 0.5 * (ends[1] - ends[0])
    return half * math.fsum(w * integrand(a + half * (1.0 + x)) for a in ends[:-1] for x, w in zip(*GAUSS, strict=True))


def _above(order: float, mean: float) -> float:
    """V(H(M || N_0)) = E_{N_0}[y^(1 - alpha) - 1 + (alpha - 1)(y - 1); y > 1], y = 1 + q(r - 1); r > 1 from half the mean on."""

    def integrand(x: float) -> float:
        away = RATE * math.expm1(mean * x - 0.5 * mean * mean)
        return _normal(x, 0.0) * (math.expm1((1.0 - order) * math.log1p(away)) + (order - 1.0) * away)

    return _over(integrand, 0.5 * mean, 12.0 + 2.0 * mean)


def _spared(order: float, first: float, common: float, second: float) -> float:
    """E_Q[x^alpha - 1 - alpha(x - 1); x < 1], x = P/Q: P = (1 - q)N(common) + qN(first), Q the same with `second` for `first`."""

    def integrand(x: float) -> float:
        rest = (1.0 - RATE) * _normal(x, common) + RATE * _normal(x, second)
        away = RATE * (_normal(x, first) - _normal(x, second)) / rest
        return rest * (math.expm1(order * math.log1p(away)) - order * away)

    return _over(integrand, -12.0 + min(common, second), 0.5 * (first + second))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_replaced_record_s_excess_is_no_smaller_than_it_is(order: float, noise: float) -> None:
    mean = 2.0 / noise
    exact = _above(order, mean) - _spared(order, mean, 0.0, 0.0)
    stated = float(replaced_excess(RATE, np.array([noise]), np.array([order]))[0, 0])
    assert exact * (1.0 - 1e-6) <= stated <= exact * 1.05


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_zeroed_record_s_excess_is_no_smaller_than_it_is(order: float, noise: float) -> None:
    mean = 1.0 / noise
    exact = _above(order, mean) - _spared(order, mean, -mean, 0.0)
    stated = float(zeroed_excess(RATE, np.array([noise]), np.array([order]))[0, 0])
    assert max(exact, 0.0) * (1.0 - 1e-6) <= stated <= max(exact, 0.0) * 1.05
