"""The known epsilons that audits are held against: published digits."""

import math

import pytest
from audit_truths import linear_last_iterate_epsilon, projected_walk_epsilon

from lethe.calculus.conversions import gdp_epsilon


@pytest.mark.parametrize(
    ("steps", "q", "noise", "epsilon"), [(100, 1.0, 10.0, 4.377178), (100, 0.1, 1.0, 5.358223), (1000, 0.01, 0.8, 1.663891)]
)
def test_linear_last_iterate_values(steps: int, q: float, noise: float, epsilon: float) -> None:
    found = linear_last_iterate_epsilon(steps=steps, sampling_probability=q, noise_multiplier=noise, delta=1e-5)
    assert found == pytest.approx(epsilon, abs=6e-7)  # six decimals are given


@pytest.mark.parametrize(
    ("steps", "epsilon", "composed"),
    [(1, 0.732651, 0.926342), (2, 0.822818, 1.356467), (10, 1.367648, 3.341409), (100, 1.763475, 13.206712)],
)
def test_projected_walk_values(steps: int, epsilon: float, composed: float) -> None:
    found = projected_walk_epsilon(steps=steps, diameter=1.0, shift=0.05, noise_std=0.2, start=0.5, delta=1e-5)
    assert found == pytest.approx(epsilon, abs=2e-6)  # quadrature across the kink
    assert gdp_epsilon(0.25 * math.sqrt(steps), 1e-5) == pytest.approx(composed, abs=6e-7)
