"""Discrete losses that dominate a guarantee: never below what has the guarantee, and hardly above."""

import math

import numpy as np
import pytest

import lethe
from lethe.calculus.guarantees import Tightest, WithSlack
from lethe.calculus.privacy_losses.distributions import Losses
from lethe.calculus.privacy_losses.dominating import dominating_factor

INTERVAL = 1e-3
LEVELS = (0.0, 1e-4, 0.3, 0.3005, 0.99, 1.7, 3.0, 6.0, 40.0)


def profile(guarantee: lethe.guarantees.Guarantee, epsilon: float) -> float:
    """Delta by its definition, and the same in the other direction, which the mirror image must agree with."""
    (losses,) = dominating_factor(guarantee, 1).losses(INTERVAL, 1e-16)
    assert isinstance(losses, Losses)
    places = (losses.lowest + np.arange(losses.masses.size)) * INTERVAL
    ahead = losses.infinite + float(losses.masses @ np.maximum(-np.expm1(epsilon - places), 0.0))
    back = losses.infinite + float(losses.masses @ np.maximum(np.exp(-places) - math.exp(epsilon), 0.0))
    assert back == pytest.approx(ahead, rel=1e-9, abs=1e-12)
    assert losses.masses.sum() + losses.infinite == pytest.approx(1.0, abs=1e-11)
    return ahead


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_gaussian_pairs_are_met(mu: float) -> None:
    for epsilon in LEVELS:
        exact = lethe.guarantees.GDP(mu).delta(epsilon)
        assert exact * (1 - 1e-9) - 1e-15 <= profile(lethe.guarantees.GDP(mu), epsilon) <= exact * (1 + 1e-3) + 1e-15


@pytest.mark.slow
def test_mixtures_are_met_and_missing_weight_reveals_nothing() -> None:
    mixture = lethe.guarantees.GDPMixture((0.3, 2.0), (0.6, 0.1))
    for epsilon in LEVELS:
        exact = 0.6 * lethe.guarantees.GDP(0.3).delta(epsilon) + 0.1 * lethe.guarantees.GDP(2.0).delta(epsilon)
        assert exact * (1 - 1e-9) - 1e-15 <= profile(mixture, epsilon) <= exact * (1 + 1e-3) + 1e-15


@pytest.mark.parametrize(("epsilon_bound", "delta_bound"), [(1.0, 0.1), (1.0, 0.0), (3.0, 1e-6), (0.0, 0.2)])
def test_a_single_point_is_its_extreme_mechanism(epsilon_bound: float, delta_bound: float) -> None:
    # Randomised response that tells the truth aloud with probability delta: Kairouz, Oh, Viswanath 2015, arXiv:1311.0776.
    for epsilon in LEVELS:
        honest = max(math.exp(epsilon_bound) - math.exp(epsilon), 0.0) / (math.exp(epsilon_bound) + 1.0)
        exact = delta_bound + (1.0 - delta_bound) * honest
        # Its kink may lie within a grid interval of a thousandth.
        assert exact * (1 - 1e-12) <= profile(lethe.guarantees.ApproxDP(epsilon_bound, delta_bound), epsilon) <= exact * (1 + 1e-12) + 1e-3


@pytest.mark.slow
def test_slack_is_there_at_every_epsilon() -> None:
    for epsilon in LEVELS:
        exact = (1 - 1e-3) * lethe.guarantees.GDP(1.0).delta(epsilon) + 1e-3  # fails with this probability, and says all
        assert exact * (1 - 1e-9) <= profile(WithSlack(lethe.guarantees.GDP(1.0), 1e-3), epsilon) <= exact * 1.004


@pytest.mark.slow
def test_of_several_bounds_the_convex_hull_counts() -> None:
    both = Tightest((lethe.guarantees.GDP(2.0), WithSlack(lethe.guarantees.GDP(1.0), 1e-3)))
    for epsilon in LEVELS:
        least = lethe.guarantees.GDP(1.0).delta(epsilon)  # has both guarantees
        most = min(part.delta(epsilon) for part in both.parts)
        assert least * (1 - 1e-9) - 1e-15 <= profile(both, epsilon) <= most * (1 + 1e-3) + 1e-15
    # The Gaussian at distance 2 has less than the slack from 6 on.
    assert profile(both, 40.0) < 1e-15


@pytest.mark.slow
def test_losses_beyond_all_use_count_as_infinite() -> None:
    assert profile(lethe.guarantees.GDP(60.0), 40.0) >= lethe.guarantees.GDP(60.0).delta(40.0) * (1 - 1e-9)
    (losses,) = dominating_factor(lethe.guarantees.GDP(60.0), 1).losses(0.01, 1e-16)
    assert losses.infinite >= lethe.guarantees.GDP(60.0).delta(500.0)
