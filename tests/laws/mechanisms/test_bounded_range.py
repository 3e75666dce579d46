"""What a bounded range is worth, against a fine scan of all two-point pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit, ndtri

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, RDPCurve
from lethe.mechanisms.bounded_range import (
    guarantee_for,
    range_delta,
    range_mu,
    range_of_mu,
    range_of_target,
    range_renyi,
)

RANGES = (0.01, 0.3, 1.0, 4.0)


def two_point_pairs(epsilon: float, count: int = 20_001) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(upper ratio x, lower ratio, probability of the upper one) of pairs whose ratio takes the two ends of its range."""
    upper = np.exp(np.linspace(0.0, epsilon, count)[1:-1])
    lower = upper * math.exp(-epsilon)
    return upper, lower, (1.0 - lower) / (upper - lower)


@pytest.mark.parametrize("epsilon", RANGES)
@pytest.mark.parametrize("order", [1.05, 2.0, 5.5, 64.0])
def test_renyi_divergence_is_the_largest_of_all_pairs(epsilon, order):
    upper, lower, weight = two_point_pairs(epsilon)
    largest = float(np.log(weight * upper**order + (1.0 - weight) * lower**order).max()) / (order - 1.0)
    stated = float(range_renyi(epsilon, [order])[0])
    assert largest <= stated * (1.0 + 1e-12)
    assert stated <= largest * 1.001 + 1e-9  # the scan misses the maximum by its squared step
    assert stated <= order * epsilon**2 / 8.0 * (1.0 + 1e-12)


@pytest.mark.parametrize("epsilon", RANGES)
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_delta_is_the_largest_of_all_pairs(epsilon, fraction):
    upper, _, weight = two_point_pairs(epsilon)
    largest = float((weight * (upper - math.exp(fraction * epsilon))).max())
    stated = range_delta(epsilon, fraction * epsilon)
    assert largest <= stated <= largest * (1.0 + 1e-6)
    assert range_delta(epsilon, epsilon) == 0.0


@pytest.mark.parametrize("epsilon", RANGES)
def test_mu_is_the_smallest_that_all_pairs_meet(epsilon):
    _, lower, weight = two_point_pairs(epsilon)
    needed = -ndtri(weight) - ndtri((1.0 - weight) * lower)  # of the corner of each pair's trade-off
    assert needed.max() <= range_mu(epsilon) <= needed.max() * (1.0 + 1e-6)


def test_the_slope_of_probit_after_logistic_falls():
    points = np.linspace(0.0, 30.0, 3001)
    slope = np.gradient(ndtri(expit(-points)), points)
    assert (np.diff(slope) >= -1e-9).all()  # ndtri(expit(-u)) = -psi(u): psi' falls with u


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 5.0, 20.0])
def test_range_of_mu_is_the_inverse_rounded_down(mu):
    assert range_mu(range_of_mu(mu)) <= mu * (1.0 + 1e-9) + 1e-14
    assert range_of_mu(mu) == pytest.approx(1.5958 * mu, rel=0.02) or mu >= 1.0  # 4 / sqrt(2 pi)


TARGETS = (GDP(0.5), ZCDP(0.1), ApproxDP(1.0, 1e-5), ApproxDP(1.0, 0.0), ApproxDP(0.5, 0.1), RDPCurve((2.0, 8.0), (0.3, 1.0)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.describe())
def test_a_target_is_met_and_nearly_reached(target):
    epsilon = range_of_target(target)
    got = guarantee_for(epsilon, target)
    if isinstance(target, ApproxDP):
        assert got.delta(target.epsilon_bound) <= target.delta_bound
        above = epsilon * 1.01
        assert above > target.epsilon_bound
        assert range_delta(above, target.epsilon_bound) > target.delta_bound
    elif isinstance(target, RDPCurve):
        assert (range_renyi(epsilon, list(target.orders)) <= np.array(target.values)).all()
    elif isinstance(target, GDP):
        assert isinstance(got, GDP)
        assert got.mu <= target.mu < range_mu(1.01 * epsilon)
    else:
        assert isinstance(got, ZCDP)
        assert got.rho <= target.rho < (1.01 * epsilon) ** 2 / 8.0
