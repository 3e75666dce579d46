"""A bounded domain: the best start, against every start by brute force and against an exact projected chain."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import ProjectedChain, brute_force_windows, gaussian_delta, law_delta, law_epsilon, projected_chain_delta, projected_chain_laws
from random_steps import random_run

import lethe
from lethe.theorems.shift import engine as shift


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(120))
def test_every_start_by_brute_force(seed: int) -> None:
    run = random_run(seed + 7000)
    generator = np.random.default_rng(seed)
    diameter = generator.uniform(0.05, 2.0) if seed % 2 else generator.uniform(0.05, 2.0, run[0].size)
    expected = brute_force_windows(*run, diameter)
    assert shift.solve(*run, diameter).mu == pytest.approx(expected, rel=1e-7, abs=1e-12)  # the accuracy of the least squares


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", range(20))
def test_long_runs_against_every_start_by_the_engine_itself(seed: int) -> None:
    factors, touches, noise = random_run(seed + 9000, longest=150)
    diameter = np.random.default_rng(seed).uniform(0.2, 3.0)
    tracked, best = 0.0, np.inf
    for start in range(factors.size):
        if start:
            tracked = min(diameter, factors[start - 1] * tracked + touches[start - 1])
        after = touches[start:].copy()
        after[0] += factors[start] * tracked
        best = min(best, shift.solve(factors[start:], after, noise[start:]).mu)
    assert shift.solve(factors, touches, noise, diameter).mu == pytest.approx(best, rel=1e-12)  # a few roundings a step


def test_bounds_at_some_steps_only() -> None:
    caps = np.full(10, np.inf)
    caps[6] = 0.5
    # From 0.5 after step 7, three touches of 1 and three steps of noise 1: 3.5 / sqrt 3.
    assert shift.solve([1.0] * 10, [1.0] * 10, [1.0] * 10, caps).mu == pytest.approx(3.5 / np.sqrt(3), rel=1e-13)


@pytest.mark.parametrize("seed", range(30))
def test_payments_after_the_window(seed: int) -> None:
    factors, touches, noise = random_run(seed + 400, longest=80)
    diameter = 0.4
    solved = shift.solve(factors, touches, noise, diameter)
    start, paid, left = solved.window, solved.payments, solved.shifts
    assert (paid[:start] == 0).all()
    before = np.concatenate(([0.0], left[:-1]))
    # Until the window the distance is tracked, cut at the diameter; after it, the recursion (S) with the roundings of 80 steps.
    assert left[:start] == pytest.approx(np.minimum(diameter, factors * before + touches)[:start], rel=1e-12)
    assert left[start:] == pytest.approx((factors * before + touches - paid)[start:], rel=1e-11, abs=1e-12)
    assert left[-1] == 0.0
    assert np.sum((paid / noise) ** 2) == pytest.approx(solved.mu**2, rel=1e-12)


@pytest.mark.parametrize(("steps", "epsilon"), [(1, 0.732651), (2, 0.822818), (10, 1.367648), (100, 1.763475)])
def test_the_exact_projected_chain_and_the_engine_above_it(steps: int, epsilon: float) -> None:
    """D = 1, noise .2, a shift of .05 at every step, from the middle: the exact epsilon at delta = 1e-5, to the digits of the source,
    where a Markov chain of 1000 cells agrees with it to 4e-6."""
    chain = ProjectedChain(1.0, 0.5)
    touched, untouched = (chain.law([0.2] * steps, [[(1.0, shift)]] * steps) for shift in (0.05, 0.0))
    exact = law_epsilon(touched, untouched, 1e-5)
    assert exact == pytest.approx(epsilon, abs=6e-7)
    certified = lethe.guarantees.GDP(shift.solve(np.ones(steps), np.full(steps, 0.05), np.full(steps, 0.2), 1.0).mu).epsilon(1e-5)
    assert certified >= exact


@pytest.mark.parametrize(
    ("diameter", "noise", "first", "second"),
    [
        (1.0, 0.5, [0.3] * 6, [0.0] * 6),
        (1.0, 0.5, [0.15] * 8, [-0.15] * 8),
        (0.5, 1.0, [2.0] * 4, [-2.0] * 4),  # pushed into opposite corners: the two runs are a diameter apart
        (2.0, 0.7, [0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]),
        (24.0, 1.0, [0.2] * 5, [0.0] * 5),  # the domain does not matter: the certificate is exact there
    ],
)
def test_never_below_an_exact_projected_chain(diameter: float, noise: float, first: list[float], second: list[float]) -> None:
    apart = np.abs(np.subtract(first, second))
    mu = shift.solve(np.ones(apart.size), apart, np.full(apart.size, noise), diameter).mu
    laws = projected_chain_laws(diameter, noise, first, second)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        certified = gaussian_delta(mu, epsilon)[0]
        truth = law_delta(*laws, epsilon)
        assert truth <= certified + 2e-6  # the oracle's quadrature where the two densities cross
        if diameter == 24.0:
            assert truth >= 0.99 * certified - 2e-6  # so a bound too small by 1 % would fail


def test_corners_catch_a_bound_that_is_one_per_cent_too_small() -> None:
    # Pushed into opposite corners with little noise, then one noisy step: apart by exactly D, so mu = D / tau = .5.
    mu = shift.solve([1.0, 1.0], [4.0, 0.0], [0.1, 1.0], 0.5).mu
    assert mu == pytest.approx(0.5, rel=1e-14)
    truth = projected_chain_delta(0.5, [0.1, 1.0], [2.0, 0.0], [-2.0, 0.0], 0.05)
    assert gaussian_delta(0.99 * mu, 0.05)[0] < truth <= gaussian_delta(mu, 0.05)[0]
