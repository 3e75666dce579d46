"""The shuffle protocol by exact calculation in small cases, by hand from the same random numbers, and the oracles built of it."""

import math
from functools import reduce

import numpy as np
import pytest
from how_many import by_night, examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import advanced_composition
from scipy import stats
from solver_problems import QUADRATIC

from lethe.errors import CalibrationError, InputError
from lethe.heavy_tailed import multi_pass
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.shuffled_oracles import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.heavy_tailed.shuffled_sums import (
    ScalarProtocol,
    all_shifts_delta,
    analyse,
    binomial_delta,
    calibrated_protocol,
    chosen_protocol,
    least_fair_trials,
    local_messages,
    shuffled,
    simulated_ones,
)


def law_of_ones(values: Array, protocol: ScalarProtocol) -> Array:
    """The exact law of the number of ones, by convolving every user's rounding with the binomial noise."""
    laws = [stats.binom.pmf(np.arange(protocol.users * protocol.bits + 1), protocol.users * protocol.bits, protocol.probability)]
    for value in values:
        scaled = value / protocol.range * protocol.levels
        law = np.zeros(protocol.levels + 1)
        law[math.floor(scaled)] += 1 - scaled % 1
        if scaled % 1:
            law[math.floor(scaled) + 1] += scaled % 1
        laws.append(law)
    return reduce(np.convolve, laws)


def hockey_stick(first: Array, second: Array, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def variance(values: Array, protocol: ScalarProtocol) -> float:
    r"""Of the analyser's sum: (tau/g)^2 times the sum of phi(1 - phi), phi the fractional part of z g/tau, and of the coins."""
    fractions = values * protocol.levels / protocol.range % 1.0
    return (protocol.range / protocol.levels) ** 2 * float((fractions * (1.0 - fractions)).sum()) + protocol.noise_variance


def exact_delta(protocol: ScalarProtocol, epsilon: float) -> float:
    return binomial_delta(protocol.users * protocol.bits, protocol.probability, protocol.levels, epsilon)


def implied_epsilon(protocol: ScalarProtocol, delta: float) -> float:
    """The epsilon that the coins of a chosen protocol pay for: b s p = 90 g^2 ln(2/delta) / epsilon^2."""
    coins = protocol.users * protocol.bits * protocol.probability
    return protocol.levels * math.sqrt(90 * math.log(2 / delta) / coins)


def test_the_messages_and_the_simulation_have_the_exact_law() -> None:
    """The whole protocol, bits and all, against the convolution; and so the simulation."""
    protocol = ScalarProtocol(users=3, range=2.0, levels=2, bits=3, probability=0.3)
    values, rng = np.array([0.3, 1.7, 2.0]), np.random.default_rng(1)
    exact, runs = law_of_ones(values, protocol), 5_000 if by_night() else 1_500
    counts = np.zeros((2, len(exact)))
    for _ in range(runs):
        messages = np.array([local_messages(float(value), protocol, rng) for value in values])
        assert messages.shape == (3, protocol.levels + protocol.bits)
        counts[0, np.count_nonzero(shuffled(messages, rng))] += 1
        counts[1, simulated_ones(values, protocol, rng)] += 1
    errors = np.abs(counts / runs - exact) / np.sqrt(np.maximum(exact * (1 - exact), 1e-4) / runs)
    assert errors.max() < 5
    totals = np.arange(len(exact))
    sums = np.array([analyse(int(total), protocol) for total in totals])
    assert exact @ sums == pytest.approx(values.sum(), abs=1e-12)  # unbiased, exactly
    assert exact @ (sums - values.sum()) ** 2 == pytest.approx(variance(values, protocol), rel=1e-12)


def test_the_shuffler_hides_who_sent_what() -> None:
    """Given the number of ones, every arrangement is as likely as any other: of 3 ones in 8 bits, each place has 3/8."""
    rng = np.random.default_rng(2)
    messages = np.array([[True, True, True, False], [False] * 4])
    places = np.mean([shuffled(messages, rng) for _ in range(8000)], axis=0)
    assert places == pytest.approx(np.full(8, 3 / 8), abs=5 * math.sqrt(0.375 * 0.625 / 8000))
    assert messages[0, 0]  # what was given is not changed


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("users", "epsilon", "delta"), [(2, 1.0, 1e-2), (3, 0.7, 1e-3), (4, 3.0, 1e-6), (5, 15.0, 1e-3), (1, 15.0, 0.5), (1, 4.0, 1e-3)]
)
def test_the_chosen_protocol_is_private_by_exact_calculation(users: int, epsilon: float, delta: float) -> None:
    """All pairs of values of one user on a grid, the others fixed: at most epsilon (2/g + |z - z'|/tau)."""
    protocol = chosen_protocol(users, 1.0, epsilon, delta)
    rest = np.linspace(0.1, 0.9, users - 1)
    grid = np.linspace(0.0, 1.0, 5)
    laws = [law_of_ones(np.append(rest, value), protocol) for value in grid]
    worst = 0.0
    for a, first in zip(grid, laws, strict=True):
        for b, second in zip(grid, laws, strict=True):
            length = max(len(first), len(second))
            pair = [np.pad(law, (0, length - len(law))) for law in (first, second)]
            assert hockey_stick(pair[0], pair[1], epsilon * (2 / protocol.levels + abs(a - b))) <= delta
            worst = max(worst, hockey_stick(pair[0], pair[1], epsilon))
    assert worst <= exact_delta(protocol, epsilon) * (1 + 1e-9)


def test_the_printed_lemma_is_refuted_where_levels_are_few() -> None:
    """g = sqrt(s) = 1 < epsilon = 15: the printed constants, and the event that no coin is a one."""
    for delta, bits in ((0.5, 2), (1e-3, 7)):
        half = 90 * math.log(2 / delta) / 225
        assert math.floor(2 * half) + 1 == bits
        printed = ScalarProtocol(users=1, range=1.0, levels=1, bits=bits, probability=half / bits)
        laws = [law_of_ones(np.array([value]), printed) for value in (0.0, 1.0)]
        assert hockey_stick(laws[0], laws[1], 45.0) > delta
        assert exact_delta(printed, 45.0) > delta


@settings(max_examples=examples(150), deadline=None)
@given(users=st.integers(1, 10**6), epsilon=st.floats(0.1, 15.0), exponent=st.floats(-30.0, -0.1), least=st.integers(1, 400))
def test_the_chosen_constants_always_give_their_cost(users: int, epsilon: float, exponent: float, least: int) -> None:
    delta = 10.0**exponent
    protocol = chosen_protocol(users, 1.0, epsilon, delta, least_levels=least)
    assert protocol.noise_variance <= 90 * math.log(2 / delta) / epsilon**2
    assert protocol.probability <= 0.5


@settings(max_examples=examples(80), deadline=None)
@example(trials=1, chance=0.9, levels=1, epsilon=8.0)  # reached to one part in a thousand: 1 % too small would show
@given(trials=st.integers(1, 400), chance=st.floats(0.1, 0.9), levels=st.integers(1, 8), epsilon=st.floats(0.01, 8.0))
def test_the_bound_for_all_shifts_is_one(trials: int, chance: float, levels: int, epsilon: float) -> None:
    bound = all_shifts_delta(trials, chance, levels, epsilon)
    for shift in range(1, levels + 1):
        assert binomial_delta(trials, chance, shift, epsilon * shift / levels) <= bound * (1 + 1e-7) + 1e-200


@settings(max_examples=examples(80), deadline=None)
@given(trials=st.integers(1, 300), chance=st.floats(0.02, 0.98), shift=st.integers(1, 12), epsilon=st.floats(0.0, 4.0))
def test_binomial_delta_is_the_exact_one_from_above(trials: int, chance: float, shift: int, epsilon: float) -> None:
    law = np.pad(stats.binom.pmf(np.arange(trials + 1), trials, chance), (shift, shift))
    stayed, raised = law[shift:], law[:-shift]  # of X, and of X + shift, on the same numbers
    exact = max(hockey_stick(raised, stayed, epsilon), hockey_stick(stayed, raised, epsilon))
    found = binomial_delta(trials, chance, shift, epsilon)
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-6) + 1e-7 * min(1.0, exact**0.5) + 1e-280
    assert found >= binomial_delta(trials, chance, shift - 1, epsilon) * (1 - 1e-8)


def test_exact_calibration_needs_far_less_noise() -> None:
    """7148 coins in all where the closed form tosses 261 200; one fewer does not do."""
    assert least_fair_trials(10, 1.0, 1e-6) == 7148
    assert binomial_delta(7148, 0.5, 10, 1.0) <= 1e-6 < binomial_delta(7147, 0.5, 10, 1.0)
    assert exact_delta(chosen_protocol(100, 2.0, 1.0, 1e-6), 1.0) == pytest.approx(9.46e-147, rel=1e-3)
    protocol = calibrated_protocol(100, 2.0, 1.0, 1e-6)
    assert (protocol.bits, protocol.levels, protocol.probability) == (72, 10, 0.5)
    values, rng = np.full(100, 0.37), np.random.default_rng(3)
    sums = np.array([analyse(simulated_ones(values, protocol, rng), protocol) for _ in range(1000)])
    assert sums.mean() == pytest.approx(37.0, abs=5 * math.sqrt(variance(values, protocol) / 1000))
    with pytest.raises(CalibrationError, match="fair coins"):
        least_fair_trials(10**5, 1e-3, 1e-9)


def test_the_vector_protocol_at_the_worked_point() -> None:
    oracle = ShuffledClippedMean(clip_norm=1.0, epsilon=1.0, delta=1e-6)
    protocol = oracle.protocol(1000, 10)
    assert 1.0 / (4 * math.sqrt(2 * math.log(2e6))) == pytest.approx(0.0464100, rel=1e-6)
    assert (protocol.levels, protocol.bits) == (32, 1497948)
    assert protocol.probability == pytest.approx(0.499999907, abs=5e-10)
    assert oracle.release(1000, 10).noise_std == pytest.approx(1.2, rel=0.05)  # vacuous at this size
    each = 0.0464100 * (2 / 32 + np.full(10, 10**-0.5))
    assert advanced_composition(each, 5e-7) == pytest.approx(0.302527, rel=1e-5)


@pytest.mark.parametrize(("epsilon", "composed"), [(1.0, 0.467354), (29.0173, 24.752118), (116.0693, 1047.068730)])
def test_the_printed_range_of_the_coordinate_protocol_is_refuted(epsilon: float, composed: float) -> None:
    """Proposition 53 allows up to 8 ln(2d/delta) = 116.07, where ten coordinates compose to nine times the target."""
    each = epsilon / (4 * math.sqrt(20 * math.log(2e6)))
    assert advanced_composition(np.full(10, 2 * each), 5e-6) == pytest.approx(composed, rel=1e-5)
    oracle = ShuffledCoordinateMedian(threshold=1.0, groups=1, epsilon=epsilon, delta=1e-5)
    if epsilon > 100:
        with pytest.raises(InputError, match="at most"):
            oracle.protocol(50, 10)
    else:
        assert composed <= epsilon


@settings(max_examples=examples(40), deadline=None)
@given(dimension=st.integers(1, 60), share=st.floats(0.01, 1.0), exponent=st.floats(-12, -0.5), seed=st.integers(0, 10**6))
def test_the_oracles_meet_their_target_for_every_change(dimension: int, share: float, exponent: float, seed: int) -> None:
    """Advanced composition with what each coordinate costs, for random changes of one row, up to the largest epsilon allowed."""
    delta, rng = 10.0**exponent, np.random.default_rng(seed)
    log_one, log_all = math.log(2 / delta), math.log(2 * dimension / delta)
    most = min(2 * log_one, 2.5 * math.sqrt(2 * log_one))
    epsilon = share * most
    oracle = ShuffledClippedMean(clip_norm=1.0, epsilon=epsilon, delta=delta)
    protocol = oracle.protocol(7, dimension)
    levels, single = protocol.levels, implied_epsilon(protocol, delta / (2 * dimension))
    changes = np.abs(rng.standard_normal(dimension)) ** rng.choice([0.0, 1.0, 8.0])
    changes *= 1.0 / max(np.linalg.norm(changes), 1e-12)
    assert advanced_composition(single * (2 / levels + changes), delta / 2) <= epsilon
    epsilon = share * min(2 * log_all, 2.5 * math.sqrt(2 * dimension * log_all))
    protocol = ShuffledCoordinateMedian(threshold=1.0, groups=1, epsilon=epsilon, delta=delta).protocol(7, dimension)
    each = implied_epsilon(protocol, delta / (2 * dimension))
    assert advanced_composition(np.full(dimension, each * (1 + 2 / protocol.levels)), delta / 2) <= epsilon


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("oracle", "change"),
    [
        (ShuffledClippedMean(clip_norm=1.0, epsilon=3.0, delta=0.01), (1.0, 0.0)),
        (ShuffledClippedMean(clip_norm=1.0, epsilon=3.0, delta=0.01), (0.5**0.5, 0.5**0.5)),
        (ShuffledCoordinateMedian(threshold=1.0, groups=1, epsilon=3.0, delta=0.01), (1.0, 1.0)),
    ],
)
def test_two_coordinates_are_private_by_exact_calculation(
    oracle: ShuffledClippedMean | ShuffledCoordinateMedian, change: tuple[float, float]
) -> None:
    """The joint law of both counts, within eight standard deviations, for one of two users' rows and its opposite."""
    protocol = oracle.protocol(2, 2)
    laws = []
    for sign in (1.0, -1.0):
        parts = [law_of_ones(np.array([1.0, 1.0 + sign * part]), protocol) for part in change]
        middle, reach = round(protocol.users * protocol.bits * protocol.probability), 8 * int(np.sqrt(protocol.users * protocol.bits) / 2)
        cut = slice(middle - reach, middle + reach)
        laws.append(np.outer(parts[0][cut], parts[1][cut]))
    left_out = 1e-12
    assert all(1 - law.sum() <= left_out for law in laws)
    for first, second in (laws, laws[::-1]):
        assert hockey_stick(first, second, oracle.epsilon) + left_out <= oracle.delta
        assert hockey_stick(first, second, 0.0) > 1e-4  # they do differ


def test_the_median_of_noisy_means_is_biased_and_one_group_is_not() -> None:
    """Three groups with means -1, -1, 1: the noiseless median is -1, that of noisy means is pulled to the middle."""
    rows, rng, runs = np.repeat([-1.0, -1.0, 1.0], 1000)[:, None], np.random.default_rng(6), 400
    many = ShuffledCoordinateMedian(threshold=1.0, groups=3, epsilon=3.0, delta=1e-2)
    one = ShuffledCoordinateMedian(threshold=1.0, groups=1, epsilon=3.0, delta=1e-2)
    medians, means = (np.array([oracle.mean(rows, rng)[0] for _ in range(runs)]) for oracle in (many, one))
    assert medians.mean() + 1.0 > 5 * medians.std() / math.sqrt(runs)
    assert means.mean() == pytest.approx(-1 / 3, abs=5 * means.std() / math.sqrt(runs))


def test_a_shuffled_oracle_is_for_one_pass() -> None:
    oracle = ShuffledClippedMean(clip_norm=1.0, epsilon=1.0, delta=1e-3)
    with pytest.raises(InputError, match="passes over the data once"):
        multi_pass(QUADRATIC, np.zeros(6), oracle=oracle, passes=2)
    done = multi_pass(QUADRATIC, np.zeros(6), oracle=oracle, passes=1, batch_size=3, generator=np.random.default_rng(0))
    assert done.fresh.guarantee.epsilon(1e-3) == 1.0
    assert done.fresh.zcdp is None
    assert done.fresh.phases[0].rho is None


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
