"""Liang et al. 2025 (arXiv:2502.17772): four bounds as the paper states them, their orders and shares, and what they refuse."""

import math

import numpy as np
import pytest
from liang_2025_runs import THEOREMS, curve_of, liang_run

from lethe.calculus.sampled.order import largest_order, order_allowed, smallest_noise


def test_the_formulas_of_the_paper() -> None:
    """(12) to (15) in the paper's letters: C = 1, n = 100, b = 10, sigma = 1.2, eta = 0.5, L = 0.4, D = 0.06, T = 50."""
    n, b, sigma, eta, smoothness, diameter, steps = 100, 10, 1.2, 0.5, 0.4, 0.06, 50
    shift = (1 + eta * smoothness) ** 2 * diameter**2 / (2 * eta**2 * sigma**2)
    shares = np.linspace(1e-6, 1 - 1e-6, 1_000_001)
    first, second = 2 / (n * b * sigma**2), 8 / (n**2 * sigma**2)
    guarantees = [theorem.bound(liang_run()).guarantee for theorem in (THEOREMS[0], THEOREMS[2])]
    expected = [first * steps, float(np.min(first / shares + shift / (1 - shares)))]  # beta -> 1, and over a grid
    assert [getattr(guarantee, "rho", None) for guarantee in guarantees] == pytest.approx(expected, rel=1e-8)

    orders, values = curve_of(THEOREMS[1], liang_run())
    assert values == pytest.approx(second * steps * orders, rel=1e-12)
    assert orders.max() == pytest.approx(largest_order(0.1, b * sigma / 2), rel=1e-12)

    for order in (1.5, 4.0, 6.0, 9.0):
        orders, values = curve_of(THEOREMS[3], liang_run())
        place = int(np.abs(orders - order).argmin())
        allowed = (np.sqrt(shares) * b * sigma / 2 > 4) & order_allowed(b / n, np.sqrt(shares) * b * sigma / 2, orders[place])
        on_the_grid = float(np.min((second / shares + shift / (1 - shares))[allowed])) * orders[place]
        assert values[place] == pytest.approx(on_the_grid, rel=1e-4)  # the grid's step, at the edge of what is allowed
        assert values[place] <= on_the_grid * (1 + 1e-13)
    assert math.isinf(values[int(np.abs(orders - 30.0).argmin())])  # beyond alpha*


def test_the_largest_order() -> None:
    """Values of the two conditions of Mironov, Talwar & Zhang, and the conditions themselves on both sides of the order."""
    cases = [(0.2, 4.0, 4.0), (0.1, 4.0, 6.0), (0.01, 4.0, 14.3), (0.001, 4.0, 26.7), (0.01, 10.0, 50.6)]
    for q, z, expected in cases:
        highest = largest_order(q, z)
        assert highest == pytest.approx(expected, abs=0.05)  # one decimal is printed
        for order, good in ((highest * (1 - 1e-9), True), (highest * (1 + 1e-9), False)):
            k = math.log(1 + 1 / (q * (order - 1)))
            first = k * z**2 / 2 - 2 * math.log(z)
            second = (k**2 * z**2 / 2 - math.log(5) - 2 * math.log(z)) / (k + math.log(q * order) + 1 / (2 * z**2))
            assert (order <= min(first, second)) == good
        assert smallest_noise(q, [highest])[0] == pytest.approx(z, rel=1e-9)
    assert 1e60 < largest_order(0.2, 1e300) < math.inf
    assert largest_order(0.21, 10.0) == 1.0
    assert largest_order(0.1, 3.99) == 1.0


def test_the_allowed_orders_and_noises_are_intervals() -> None:
    """What bisection rests on."""
    orders, noises = 1 + np.geomspace(1e-6, 1e6, 400), np.geomspace(4.0, 1e4, 300)
    for q in (1e-9, 1e-4, 0.03, 0.2):
        table = order_allowed(q, noises[:, None], orders[None, :])
        assert np.all(np.diff(table.astype(int), axis=1) <= 0)
        assert np.all(np.diff(table.astype(int), axis=0) >= 0)
