"""Chernoff's law for long reshuffled runs: never below the exact law, and close to it where there are many passes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lethe.calculus.guarantees import GDPMixture
from lethe.theorems.shift.engine import Path, checked_path
from lethe.theorems.shuffled.laws import tail_law
from lethe.theorems.shuffled.passes import Passes, TouchCosts
from lethe.theorems.shuffled.reshuffled import reshuffled


def _costs(path: Path, size: int) -> TouchCosts:
    return TouchCosts.of(Passes.of(path, size))


def _exact(path: Path, size: int) -> list[tuple[float, float]]:
    """Every path of positions with the sum of its touch costs, each cost from its own definition, and its probability."""
    passes, rest = divmod(path.steps, size)
    found = []
    for places in product(range(size), repeat=passes + (rest > 0)):
        touches = [e * size + j for e, j in enumerate(places) if e < passes or j < rest]
        ends = [*touches[1:], path.steps]
        total = 0.0
        for begin, end in zip(touches, ends, strict=True):
            weight = np.append(np.cumprod(path.lipschitz[begin + 1 : end][::-1])[::-1], 1.0)
            total += (weight[0] * path.sensitivity[begin]) ** 2 / np.sum((weight * path.noise_std[begin:end]) ** 2)
        found.append((total, 1.0 / size ** len(places)))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_it_is_stochastically_larger_than_the_exact_law(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size, steps = int(generator.integers(2, 5)), int(generator.integers(5, 16))
    path = checked_path(generator.uniform(0.8, 1.3, steps), generator.uniform(0.2, 1, steps), generator.uniform(0.5, 2, steps))
    values, weights = tail_law(_costs(path, size), np.inf)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(weights >= 0)
    exact = _exact(path, size)
    for value in sorted({total for total, _ in exact}):
        truth = sum(probability for total, probability in exact if total >= value * (1 - 1e-12))
        assert weights[values >= value * (1 - 1e-9)].sum() >= truth * (1 - 1e-9)


@pytest.mark.parametrize("size", [58, 61, 66])
def test_rare_costly_stretches_do_not_underflow(size: int) -> None:
    """Noise almost everywhere enormous: only a touch at the very end of a pass followed by one at the start of the next costs anything.
    Four passes of which two cost 1: the chance is that of two such pairs, or one pair and a last touch at the end."""
    noise = np.tile(np.append(np.full(size - 1, 1e9), 1.0), 4)
    path = checked_path(np.ones(4 * size), np.ones(4 * size), noise)
    values, weights = tail_law(_costs(path, size), np.inf)
    # A touch at the end of a pass (chance 1/l) costs 1 if the next is at the start of its pass or it is the last; exactly:
    state = {(False, 0): 1 - 1 / size, (True, 0): 1 / size}
    for _ in range(3):
        following: dict[tuple[bool, int], float] = {}
        for (late, paid), chance in state.items():
            for early, share in ((True, 1 / size), (False, (size - 2) / size), (None, 1 / size)):
                key = (early is None, paid + (1 if late and early else 0))
                following[key] = following.get(key, 0.0) + chance * share
        state = following
    truth = sum(chance for (late, paid), chance in state.items() if paid + late >= 2)
    assert weights[values >= 2 * (1 - 1e-6)].sum() >= truth


def _homogeneous(size: int, passes: int, touch: float, lipschitz: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    steps = size * passes
    return np.full(steps, lipschitz), np.full(steps, touch), np.ones(steps)


def test_long_clipped_runs_are_not_below_the_sampled_law_and_near_it() -> None:
    # 100 batches, 1000 passes, s / tau = .1, clipped steps with h = .05: Monte Carlo over paths, touches paid one by one: 1.824 +- .003.
    run = _homogeneous(100, 1000, 0.1, 1 / np.sqrt(1 - 0.05 / 4))
    mus, weights = reshuffled(*run, 100)
    epsilon = GDPMixture(tuple(mus.tolist()), tuple(weights.tolist())).epsilon(1e-5)
    assert 1.824 - 0.01 <= epsilon <= 1.03 * 1.824
