"""A fresh order in every pass, against all paths of small runs and samples of large ones; Chernoff's law for long ones."""

from itertools import pairwise, product

import numpy as np
import pytest
from oracles import gaussian_delta, mixture_delta, mixture_epsilon, weights
from random_steps import random_passes
from reshuffled_bounds import touch_by_touch, worst_path

from lethe.calculus.guarantees import GDPMixture
from lethe.theorems.shift import engine as shift
from lethe.theorems.shift.engine import Path, checked_path
from lethe.theorems.shuffled.laws import SquaredLaw, tail_law
from lethe.theorems.shuffled.passes import Passes, TouchCosts
from lethe.theorems.shuffled.reshuffled import reshuffled

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)


def touched_at(places: tuple[int, ...], steps: int, size: int) -> list[int]:
    return [t for t in (e * size + place for e, place in enumerate(places)) if t < steps]


def paid_one_by_one(factors: np.ndarray, touches: np.ndarray, noise: np.ndarray, times: list[int]) -> float:
    """sum R^2 / V from each touch to the step before the next, by its definition."""
    total = 0.0
    for first, end in pairwise([*times, factors.size]):
        w = weights(factors[first:end])
        rise, run = w[0] * touches[first], float(np.sum((w * noise[first:end]) ** 2))
        total += 0.0 if rise == 0.0 else np.inf if run == 0.0 else rise**2 / run
    return total


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(30))
def test_never_below_the_mean_over_all_paths(seed: int) -> None:
    factors, touches, noise, size = random_passes(seed + 100)
    size = min(size, 4)
    steps = min(factors.size, 4 * size - seed % 2)  # at most 4^4 paths, with and without a partial last pass
    factors, touches, noise = factors[:steps], touches[:steps], noise[:steps]
    if seed % 3 == 0:
        noise = np.where(np.arange(steps) % size == size - 1, noise + 0.5, 0.0)  # noise at pass ends only
    diameter = None if seed % 5 else 0.7
    paths = [touched_at(places, steps, size) for places in product(range(size), repeat=-(-steps // size))]
    exact = [shift.solve(factors, np.where(np.isin(np.arange(steps), times), touches, 0.0), noise, diameter).mu for times in paths]
    one_by_one = np.sqrt([paid_one_by_one(factors, touches, noise, times) for times in paths])
    found = reshuffled(factors, touches, noise, size, diameter)
    unpooled = touch_by_touch(factors, touches, noise, size)
    for mus, probabilities in (found, unpooled):
        assert (np.diff(mus) >= 0).all()
        assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)  # as many roundings as there are cells
    for epsilon in EPSILONS:
        # The slack is the rounding of the means here.
        assert mixture_delta(*found, epsilon) >= gaussian_delta(exact, epsilon).mean() * (1 - 1e-12) - 1e-15
        truth = gaussian_delta(one_by_one, epsilon).mean()
        assert mixture_delta(*unpooled, epsilon) >= truth * (1 - 1e-12) - 1e-15
        # Rounded up by 1 % of mu^2, which is about 1 % of delta or more where delta is small.
        assert mixture_delta(*unpooled, epsilon) <= truth * 1.05 + 1e-7
    assert worst_path(factors, touches, noise, size, diameter) >= max(exact) * (1 - 1e-12)
    assert found[0][-1] <= worst_path(factors, touches, noise, size, diameter) * (1 + 1e-12)


@pytest.mark.parametrize("left_out", [0, 1, 7, 9])
def test_a_long_run_is_the_mixture_over_its_last_touch(left_out: int) -> None:
    # L = 1, passes of 10: virtual touches at the ends of the earlier passes, one true touch at j in the last (docs/theory.md, section 4).
    size, passes = 10, 40
    steps = size * passes - left_out
    noise = np.random.default_rng(left_out).uniform(0.5, 2.0, steps)
    last_size = size - left_out

    def ending(e: int, j: int) -> float:
        touches = np.zeros(steps)
        touches[np.arange(1, e + 1) * size - 1] = 1.0
        touches[e * size + j] = 1.0
        return shift.solve(np.ones(steps), touches, noise).mu

    mus = [ending(passes - 1, j) for j in range(last_size)]
    probabilities = [1 / size] * last_size
    if left_out:
        mus += [ending(passes - 2, j) for j in range(size)]
        probabilities += [left_out / size / size] * size
    found = reshuffled(np.ones(steps), np.ones(steps), noise, size)
    for epsilon in EPSILONS:
        assert mixture_delta(*found, epsilon) == pytest.approx(mixture_delta(mus, probabilities, epsilon), rel=1e-9, abs=1e-15)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [110, 300])
def test_positions_in_buckets_against_all_pairs(size: int) -> None:
    generator = np.random.default_rng(size)
    steps = 2 * size
    factors, touches, noise = generator.uniform(0.99, 1.02, steps), generator.uniform(0.2, 1, steps), generator.uniform(0.5, 2, steps)
    w = weights(factors)
    rise, run = w * touches, np.concatenate(([0.0], np.cumsum((w * noise) ** 2)))  # both relative to the end: the ratio is the same
    first, second = np.arange(size)[:, None], size + np.arange(size)[None, :]
    squared = rise[first] ** 2 / (run[second] - run[first]) + rise[second] ** 2 / (run[-1] - run[second])
    found = touch_by_touch(factors, touches, noise, size)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        truth = gaussian_delta(np.sqrt(squared).ravel(), epsilon).mean()
        # Touches of random size differ within a bucket by up to a factor 5, and the largest counts.
        assert truth <= mixture_delta(*found, epsilon) <= 2 * truth
    constant = touch_by_touch(np.ones(steps), np.ones(steps), np.ones(steps), size)
    gaps = second - first
    truth = mixture_epsilon(np.sqrt(1 / gaps + 1 / (steps - second)).ravel(), np.full(size * size, 1 / size**2), 1e-5)
    assert truth <= mixture_epsilon(*constant, 1e-5) <= 1.02 * truth  # buckets are fine where costs are high


def test_a_grid_made_coarser_never_loses_mass_and_never_moves_it_down() -> None:
    # Costs a thousand times the step and more: the window must be made coarser on the way.
    generator = np.random.default_rng(0)
    law = SquaredLaw.start(np.full(3, 1 / 3), step=1e-4, ceiling=np.inf, moves=6)
    sums = np.zeros((3, 1))
    for _ in range(5):
        costs = generator.exponential(size=(3, 3)) ** 3
        law = law.moved(costs, np.full(3, 1 / 3))
        sums = np.stack([np.concatenate([sums[i] + costs[i, j] for i in range(3)]) for j in range(3)])
    last = np.zeros(3)
    values, probabilities = law.ended(last, np.full(3, np.inf))
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    exact = np.sort(sums.ravel())
    for level in np.linspace(0, exact[-1], 50):
        assert probabilities[values > level].sum() >= (exact > level).mean() - 1e-9  # what is raised at the bottom is within that
    mean = float(probabilities[:-3] @ values[:-3])
    assert exact.mean() <= mean <= exact.mean() * 1.02


def test_without_noise_at_the_end_some_positions_are_lost() -> None:
    noise = np.ones(12)
    noise[-1] = 0.0
    mus, probabilities = reshuffled(np.ones(12), np.ones(12), noise, 4)
    assert probabilities[np.isinf(mus)].sum() == pytest.approx(0.25, abs=1e-12)  # touched by the very last step
    assert worst_path(np.ones(12), np.ones(12), noise, 4) == np.inf


def _exact(path: Path, size: int) -> list[float]:
    """The sum of the touch costs of every path of positions, all as likely."""
    ways = product(range(size), repeat=-(-path.steps // size))
    return [paid_one_by_one(path.lipschitz, path.sensitivity, path.noise_std, touched_at(way, path.steps, size)) for way in ways]


@pytest.mark.parametrize("seed", range(12))
def test_it_is_stochastically_larger_than_the_exact_law(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size, steps = int(generator.integers(2, 5)), int(generator.integers(5, 16))
    path = checked_path(generator.uniform(0.8, 1.3, steps), generator.uniform(0.2, 1, steps), generator.uniform(0.5, 2, steps))
    values, weights = tail_law(TouchCosts.of(Passes.of(path, size)), np.inf)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(weights >= 0)
    exact = np.array(_exact(path, size))
    for value in np.unique(exact):
        truth = float(np.mean(exact >= value * (1 - 1e-12)))
        assert weights[values >= value * (1 - 1e-9)].sum() >= truth * (1 - 1e-9)


@pytest.mark.parametrize("size", [58, 61, 66])
def test_rare_costly_stretches_do_not_underflow(size: int) -> None:
    """Noise almost everywhere enormous: only a touch at the very end of a pass followed by one at the start of the next costs anything.
    Four passes of which two cost 1: the chance is that of two such pairs, or one pair and a last touch at the end."""
    noise = np.tile(np.append(np.full(size - 1, 1e9), 1.0), 4)
    path = checked_path(np.ones(4 * size), np.ones(4 * size), noise)
    values, weights = tail_law(TouchCosts.of(Passes.of(path, size)), np.inf)
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


def test_long_clipped_runs_are_not_below_the_sampled_law_and_near_it() -> None:
    # 100 batches, 1000 passes, s / tau = .1, clipped steps with h = .05: Monte Carlo over paths, touches paid one by one: 1.824 +- .003.
    ones = np.ones(100_000)
    mus, weights = reshuffled(ones / np.sqrt(1 - 0.05 / 4), 0.1 * ones, ones, 100)
    epsilon = GDPMixture(tuple(mus.tolist()), tuple(weights.tolist())).epsilon(1e-5)
    assert 1.824 - 0.01 <= epsilon <= 1.03 * 1.824
