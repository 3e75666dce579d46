"""The shuffled oracles again by hand, from the same random numbers and the constants of the closed form; and their laws, exactly.

A simulated mean sees a bias of five standard errors; these see any in the last digits.
"""

import math

import numpy as np
import pytest

from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.shuffled_oracles import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.heavy_tailed.shuffled_sums import ScalarProtocol, local_messages, simulated_ones

EPSILON, DELTA, SIZE = 3.0, 1e-2, 1.5
ROWS = np.random.default_rng(0).standard_t(2, size=(13, 2)) * np.where(np.arange(13) % 2, 2.0, 0.3)[:, None]


def closed_form(users: int, epsilon: float, delta: float, least: int) -> tuple[int, int, float]:
    """g, b and p of Lemma 56: 90 g^2 ln(2/delta) / (epsilon^2 s) expected ones of a user."""
    levels = max(math.ceil(math.sqrt(users)), least, math.ceil(epsilon))
    expected = 90.0 * levels**2 * math.log(2.0 / delta) / (epsilon**2 * users)
    bits = math.floor(2.0 * expected) + 1
    return levels, bits, expected / bits


def noisy_sum(values: Array, top: float, constants: tuple[int, int, float], rng: np.random.Generator) -> float:
    """Algorithm 14 in [0, top]: rounded up with the chance of the fraction, plus coins, less what the coins come to on average."""
    levels, bits, chance = constants
    scaled = values / top * levels
    up = rng.random(len(values)) < scaled % 1.0
    ones = int((np.floor(scaled) + up).sum()) + int(rng.binomial(bits * len(values), chance))
    return top / levels * (ones - chance * bits * len(values))


def test_a_mean_of_clipped_rows() -> None:
    """Algorithms 10 and 11: epsilon/(4 sqrt(2 ln(2/delta))), delta/4 and two levels at least for each of two coordinates."""
    oracle = ShuffledClippedMean(clip_norm=SIZE, epsilon=EPSILON, delta=DELTA)
    constants = closed_form(13, EPSILON / (4.0 * math.sqrt(2.0 * math.log(2.0 / DELTA))), DELTA / 4.0, math.ceil(2.0 * math.sqrt(2.0)))
    norms = np.linalg.norm(ROWS, axis=1)
    assert 3 < np.count_nonzero(norms > SIZE) < 10
    clipped = ROWS * np.minimum(1.0, SIZE / norms)[:, None]
    ours, theirs = np.random.default_rng(2), np.random.default_rng(2)
    for _ in range(60):  # a hundredth of the clip norm changes a rounding now and then
        expected = [noisy_sum(clipped[:, j] + SIZE, 2.0 * SIZE, constants, ours) / 13 - SIZE for j in range(2)]
        assert oracle.mean(ROWS, theirs) == pytest.approx(expected, rel=1e-9)
    levels, bits, chance = constants
    deviation = 2.0 * SIZE / levels * math.sqrt(bits * 13 * chance * (1.0 - chance)) / 13
    assert oracle.release(13, 2).noise_std == pytest.approx(deviation, rel=1e-12)


def test_a_median_of_group_means() -> None:
    """Algorithm 13: three groups of 4 of 13 rows, epsilon/(4 sqrt(2 d ln(2d/delta))), delta/(2d) and two levels at least."""
    oracle = ShuffledCoordinateMedian(threshold=SIZE, groups=3, epsilon=EPSILON, delta=DELTA)
    constants = closed_form(4, EPSILON / (4.0 * math.sqrt(4.0 * math.log(4.0 / DELTA))), DELTA / 4.0, 2)
    ours, theirs, means = np.random.default_rng(2), np.random.default_rng(2), np.empty((3, 2))
    for _ in range(60):
        for group in range(3):
            for j in range(2):
                values = np.clip(ROWS[4 * group : 4 * group + 4, j], -SIZE, SIZE) + SIZE
                means[group, j] = noisy_sum(values, 2.0 * SIZE, constants, ours) / 4 - SIZE
        assert oracle.mean(ROWS, theirs) == pytest.approx(np.sort(means, axis=0)[1], rel=1e-9)
    levels, bits, chance = constants
    deviation = 2.0 * SIZE / levels * math.sqrt(bits * 4 * chance * (1.0 - chance)) / 4
    assert oracle.release(13, 2).noise_std == pytest.approx(deviation, rel=1e-12)


def test_one_user_s_bits() -> None:
    """The rounding and the coins are two draws: their number of ones again, for many values, some of them out of range."""
    protocol = ScalarProtocol(users=40, range=2.0, levels=7, bits=400, probability=0.3)
    ours, theirs = np.random.default_rng(5), np.random.default_rng(5)
    for value in np.linspace(-0.5, 4.0, 90):
        scaled = min(max(value, 0.0), 2.0) / 2.0 * 7
        ones = math.floor(scaled) + (ours.random() < scaled % 1.0) + ours.binomial(400, 0.3)
        assert np.count_nonzero(local_messages(float(value), protocol, theirs)) == ones


def test_the_simulated_count_has_the_mean_and_the_variance_of_the_law() -> None:
    """By its own draws, replayed: neither can be a hundredth off."""
    protocol = ScalarProtocol(users=300, range=1.0, levels=18, bits=900, probability=0.45)
    values, ours, theirs = 1.4 * np.random.default_rng(1).random(300) - 0.2, np.random.default_rng(6), np.random.default_rng(6)
    for _ in range(20):
        scaled = np.clip(values, 0.0, 1.0) * 18
        expected = (np.floor(scaled) + (ours.random(300) < scaled % 1.0)).sum() + ours.binomial(900 * 300, 0.45)
        assert simulated_ones(values, protocol, theirs) == expected
