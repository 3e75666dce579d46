"""Pooling in rounds and one by one: the same minorant as exact rational arithmetic, path by path, in linear time."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from how_many import by_night
from oracles import exact_shift

from lethe.theorems.shift import engine as shift
from lethe.theorems.shuffled import positions

GENERATOR = np.random.default_rng(2024)

# Each makes pooling in rounds do little, so that the rest goes one by one.
HARD = {
    "slopes rise, one tiny last": np.append(np.linspace(1.0, 2.0, 299), 1e-9),
    "one huge first": np.append(300.0, np.linspace(1.0, 2.0, 299)),
    "slopes fall": np.linspace(2.0, 1.0, 300),
    "all equal": np.ones(300),
    "teeth": np.tile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.5], 30),
    "rising teeth": np.tile(np.append(np.linspace(1, 2, 29), 0.9), 10) * np.repeat(np.linspace(1, 3, 10), 30),
    "falling teeth": np.tile(np.append(np.linspace(1, 2, 29), 0.9), 10) * np.repeat(np.linspace(3, 1, 10), 30),
    "rare touches": np.where(np.arange(300) % 37 == 5, GENERATOR.uniform(0, 1, 300), 0.0),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("lipschitz", [1.0, 1.0009765625, 0.9990234375])
def test_hard_patterns_against_rational_arithmetic(name: str, lipschitz: float) -> None:
    run = np.full(300, lipschitz), HARD[name], np.ones(300)
    exact, mu = sqrt(exact_shift(*run)), shift.solve(*run).mu
    assert exact * (1 - 2**-52) <= mu <= exact * (1 + 16 * 308 * 2.0**-53)  # the documented excess


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HARD)
def test_paths_do_not_disturb_each_other(name: str) -> None:
    # Three positions, each its own path, pooled together, are as each alone.
    touches = np.repeat(HARD[name], 3)
    factors, noise = np.ones(900), GENERATOR.uniform(0.5, 2.0, 900)
    together = positions.position_mus(factors, touches, noise, 3)
    alone = [shift.solve(factors, np.where(np.arange(900) % 3 == j, touches, 0.0), noise).mu for j in range(3)]
    assert together == pytest.approx(alone, rel=1e-12)  # 900 roundings of either


@pytest.mark.parametrize("last", ["tiny", "noisy"])
def test_a_million_steps_of_the_hardest_pattern(last: str) -> None:
    steps = 10**6 if by_night() else 2 * 10**5
    touches, noise = np.linspace(1.0, 2.0, steps), np.ones(steps)
    touches[-1] = 1e-9 if last == "tiny" else 0.0
    noise[-1] = 1.0 if last == "tiny" else 1e6  # so much noise that all steps become one segment, one by one
    mu = shift.solve(np.ones(steps), touches, noise).mu  # quadratic pooling would take hours, or half an hour by day
    if last == "tiny":
        end = 10_000  # the last touch pools with some two thousand before it; slopes further left increase and stay apart
        short = shift.solve(np.ones(end), touches[-end:], noise[-end:]).mu
        assert mu == pytest.approx(sqrt(np.sum(touches[:-end] ** 2) + short**2), rel=1e-8)
    else:
        assert mu == pytest.approx(touches.sum() / sqrt(np.sum(noise**2)), rel=1e-8)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("size", [1, 10, 100, 1000, 100_000])
def test_a_million_steps_of_all_kinds(size: int) -> None:
    steps = 10**6 if by_night() else 10**5
    generator = np.random.default_rng(size)
    run = generator.uniform(0.9, 1.1, steps), generator.uniform(0, 1, steps), generator.uniform(0.5, 2, steps)
    mu, worst = positions.worst_position(*run, size)
    alone = shift.solve(run[0], np.where(np.arange(steps) % size == worst - 1, run[1], 0.0), run[2]).mu
    assert mu == pytest.approx(alone, rel=1e-8)  # twice the documented excess
