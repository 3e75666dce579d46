"""Positions of a record in a pass: each against the engine on its own path, and the published tables."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from oracles import mixture_epsilon

from lethe.theorems.shift import engine as shift
from lethe.theorems.shuffled import positions

DELTA = 1e-5


def random_passes(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Any lengths, partial last passes, zeros among constants, sensitivities and noise."""
    generator = np.random.default_rng(seed)
    steps, size = int(generator.integers(1, 25)), int(generator.integers(1, 9))
    factors = generator.choice([0.0, 0.5, 0.9, 1.0, 1.1, 2.0], steps) if seed % 2 else generator.uniform(0.5, 1.6, steps)
    touches = generator.uniform(0, 1, steps) * (generator.random(steps) < 0.8)
    noise = generator.uniform(0.3, 2, steps) * (generator.random(steps) < 0.8)
    return factors, touches, noise, size


def one_by_one(
    factors: np.ndarray, touches: np.ndarray, noise: np.ndarray, size: int, diameter: np.ndarray | float | None = None
) -> list[float]:
    turn = np.arange(factors.size) % size
    return [shift.solve(factors, np.where(turn == j, touches, 0.0), noise, diameter).mu for j in range(size)]


def homogeneous(size: int, passes: int, ratio: float, lipschitz: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    steps = size * passes
    return np.full(steps, lipschitz), np.full(steps, ratio), np.ones(steps), size


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(150))
def test_each_position_is_the_engine_on_its_own_path(seed: int) -> None:
    run = random_passes(seed)
    assert positions.position_mus(*run) == pytest.approx(one_by_one(*run), rel=1e-12)  # 25 roundings, taken in another order


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(100))
def test_with_a_diameter_all_starts_are_found_where_no_step_expands(seed: int) -> None:
    factors, touches, noise, size = random_passes(seed + 1000)
    factors = np.minimum(factors, 1.0)
    diameter = np.random.default_rng(seed).uniform(0.1, 2.0)
    run = factors, touches, noise, size
    assert positions.position_mus(*run, diameter) == pytest.approx(one_by_one(*run, diameter), rel=1e-12)


def test_a_ridge_with_decreasing_steps_is_such_a_case_too() -> None:
    # Diameter D / c_t in the units of the shift, c_t = 1 / (1 + step_t): it decreases, but no faster than the distance.
    steps = 0.5 / np.sqrt(np.arange(1, 31))
    contraction = 1 / (1 + steps)
    factors = np.concatenate(([1.0], contraction[:-1]))
    run = factors, steps, steps * 2, 5
    assert positions.position_mus(*run, 0.3 / contraction) == pytest.approx(one_by_one(*run, 0.3 / contraction), rel=1e-12)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(100))
def test_with_any_diameter_never_below_the_best_start_and_never_above_no_start(seed: int) -> None:
    run = random_passes(seed + 2000)
    diameter = np.random.default_rng(seed).uniform(0.1, 3.0, run[0].size)
    found = positions.position_mus(*run, diameter)
    best, none = np.array(one_by_one(*run, diameter)), positions.position_mus(*run)
    assert (found >= best * (1 - 1e-12)).all()
    assert (found <= none).all()


# theory.md section 3, delta = 1e-5, l = 40, s / tau = 2/3: (L, E, cyclic, shuffled once, composition), three decimals (composition: two).
TABLE = [
    (1.0, 50, 4.349, 3.492, 30.51),
    (1.0, 100, 5.641, 4.835, 49.88),
    (1.0, 200, 7.789, 7.102, 83.83),
    (0.9999, 50, 4.339, 3.483, 30.51),
    (0.9999, 100, 5.601, 4.793, 49.88),
    (0.9999, 200, 7.579, 6.882, 83.83),
    (0.9998, 50, 4.321, 3.464, 30.51),
    (0.9998, 100, 5.506, 4.691, 49.88),
    (0.9998, 200, 7.086, 6.363, 83.83),
]


@pytest.mark.parametrize(("lipschitz", "passes", "cyclic", "once", "composition"), TABLE)
def test_the_reference_table(lipschitz: float, passes: int, cyclic: float, once: float, composition: float) -> None:
    run = homogeneous(40, passes, 2 / 3, lipschitz)
    assert mixture_epsilon([positions.worst_position(*run)[0]], [1.0], DELTA) == pytest.approx(cyclic, abs=5.1e-4)
    assert mixture_epsilon(*positions.shuffled_once(*run), DELTA) == pytest.approx(once, abs=5.1e-4)
    assert mixture_epsilon([2 / 3 * sqrt(passes)], [1.0], DELTA) == pytest.approx(composition, abs=5.1e-3)


def test_noise_at_the_end_of_a_pass_makes_all_positions_alike() -> None:
    # theory.md section 6: with L = 1 a pass is one map, mu^2 = E (s / tau)^2.
    noise = np.tile([0.0, 0.0, 0.0, 2.0], 6)
    found = positions.position_mus(np.ones(24), np.ones(24), noise, 4)
    assert found == pytest.approx([sqrt(6) / 2] * 4, rel=1e-13)
