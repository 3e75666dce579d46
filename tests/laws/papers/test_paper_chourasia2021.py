"""Chourasia, Ye, Shokri 2021 (arXiv:2102.05855): the printed formula, why any start will do, and what is exact instead."""

import math

import numpy as np
import pytest
from helpers import make_run
from oracles import linear_gaussian_mu_same_direction

import lethe
from lethe.theorems.literature.chourasia_2021 import Chourasia2021, full_batch_rho

LOSS = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.9, "gradient_bound": 1.0}
# The ball keeps every gradient of a strongly convex loss below 1, without which nothing is known of a record taken away.
RUN = make_run(batches={"design": "full"}, loss=LOSS, passes=30, regulariser={"kind": "ball", "radius": 5.0})
# Step 0.5, z = 5, replace one: s / tau = 2/5, step * convexity = 0.05.


def test_the_formula_of_the_paper() -> None:
    """4 alpha L^2 / (lambda sigma_C^2 n^2) (1 - exp(-lambda eta K / 2)) with iterate noise sqrt(2 eta) sigma_C = eta z L / n."""
    records, lipschitz, convexity, step, steps, z = 100, 1.0, 0.1, 0.5, 30, 5.0
    sigma_squared = (step * z * lipschitz / records) ** 2 / (2 * step)
    expected = 4 * lipschitz**2 / (convexity * sigma_squared * records**2) * (1 - math.exp(-convexity * step * steps / 2))
    guarantee = Chourasia2021().bound(RUN).guarantee
    assert isinstance(guarantee, lethe.guarantees.ZCDP)
    assert guarantee.rho == pytest.approx(expected, rel=1e-12)  # a dozen operations
    assert guarantee.rho >= expected * (1 - 1e-15)


def test_half_the_distance_costs_a_quarter() -> None:
    zeroed = Chourasia2021().bound(RUN.replace(neighbours="zero_out")).guarantee
    assert isinstance(zeroed, lethe.guarantees.ZCDP)
    assert zeroed.rho == pytest.approx(full_batch_rho(5.0, 0.05, 30), rel=1e-15)
    assert zeroed.rho == pytest.approx(full_batch_rho(2.5, 0.05, 30) / 4, rel=1e-12)


def test_without_contraction_it_is_twice_composition() -> None:
    """2 / h (1 - exp(-h K / 2)) -> K as h -> 0; composition of K Gaussian steps is K / 2."""
    assert full_batch_rho(1.0, 1e-300, 1000) == pytest.approx(1000, rel=1e-12)
    assert full_batch_rho(1.0, 5e-324, 1) == pytest.approx(1, rel=1e-12)
    assert full_batch_rho(1.0, 1e-9, 1000) == pytest.approx(1000 * (1 - 2.5e-7), rel=1e-12)  # the next term is (h K)^2 / 24


def test_never_below_the_exact_privacy_from_a_fixed_start() -> None:
    """Quadratic losses from x_0 = 0 end Gaussian (oracles.py), so no law of the start is behind the number. Ratio at least 1.57."""
    generator = np.random.default_rng(1)
    for _ in range(300):
        contraction, steps = 10 ** generator.uniform(-4, 0) * 0.9999, int(generator.integers(1, 300))
        exact = linear_gaussian_mu_same_direction(np.full(steps, 1 - contraction), np.ones(steps), np.ones(steps))
        assert full_batch_rho(1.0, contraction, steps) >= 1.57 * exact**2 / 2


@pytest.mark.parametrize("contraction", [1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-9])
def test_the_two_halves_of_the_proof_that_any_start_will_do(contraction: float) -> None:
    """(2-h) (1-c^T)/(1+c^T) <= min(h T, 2), and 4 (1 - e^-x) >= min(2x, 2): the docstring's argument, number by number."""
    steps = np.unique(np.geomspace(1, 1e7, 400).astype(int))
    power = np.exp(steps * math.log1p(-contraction))
    exact = (2 - contraction) * (1 - power) / (1 + power)
    assert np.all(exact <= np.minimum(contraction * steps, 2.0) * (1 + 1e-9))  # 1 - power cancels at 1e-6
    x = contraction * steps / 2
    assert np.all(-4 * np.expm1(-x) >= np.minimum(2 * x, 2.0))
