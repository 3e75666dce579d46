"""Quantiles: a bounded range against all two-point pairs, the exact law of one that has it, and histograms that locate many."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from constant_noise import Constant
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, ndtri

from lethe.accounting.derivations import computed
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, RDPCurve
from lethe.mechanisms.base import gaussian_noise_std
from lethe.mechanisms.bounded_range import guarantee_for, range_delta, range_mu, range_of_mu, range_of_target, range_renyi
from lethe.mechanisms.quantiles import located_quantiles as located
from lethe.mechanisms.quantiles.located_quantiles import (
    LARGEST,
    SMALLEST,
    ColumnsInMemory,
    histogram_sensitivity,
    located_cost,
    located_quantiles,
    noisy_counts,
)
from lethe.mechanisms.quantiles.quantile import private_quantile, quantile_law

RANGES = (0.01, 0.3, 1.0, 4.0)
BOTH: Any = pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])


def two_point_pairs(epsilon: float, count: int = 20_001) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(upper ratio x, lower ratio, probability of the upper one) of pairs whose ratio takes the two ends of its range."""
    upper = np.exp(np.linspace(0.0, epsilon, count)[1:-1])
    lower = upper * math.exp(-epsilon)
    return upper, lower, (1.0 - lower) / (upper - lower)


@pytest.mark.parametrize("epsilon", RANGES)
@pytest.mark.parametrize("order", [1.05, 2.0, 5.5, 64.0])
def test_renyi_divergence_is_the_largest_of_all_pairs(epsilon, order):
    upper, lower, weight = two_point_pairs(epsilon)
    largest = float(np.log(weight * upper**order + (1.0 - weight) * lower**order).max()) / (order - 1.0)
    stated = float(range_renyi(epsilon, [order])[0])
    assert largest <= stated * (1.0 + 1e-12)
    assert stated <= largest * 1.001 + 1e-9  # the scan misses the maximum by its squared step
    assert stated <= order * epsilon**2 / 8.0 * (1.0 + 1e-12)


@pytest.mark.parametrize("epsilon", RANGES)
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_delta_is_the_largest_of_all_pairs(epsilon, fraction):
    upper, _, weight = two_point_pairs(epsilon)
    largest = float((weight * (upper - math.exp(fraction * epsilon))).max())
    stated = range_delta(epsilon, fraction * epsilon)
    assert largest <= stated <= largest * (1.0 + 1e-6)
    assert range_delta(epsilon, epsilon) == 0.0


@pytest.mark.parametrize("epsilon", RANGES)
def test_mu_is_the_smallest_that_all_pairs_meet(epsilon):
    _, lower, weight = two_point_pairs(epsilon)
    needed = -ndtri(weight) - ndtri((1.0 - weight) * lower)  # of the corner of each pair's trade-off
    assert needed.max() <= range_mu(epsilon) <= needed.max() * (1.0 + 1e-6)


def test_the_slope_of_probit_after_logistic_falls():
    points = np.linspace(0.0, 30.0, 3001)
    slope = np.gradient(ndtri(expit(-points)), points)
    assert (np.diff(slope) >= -1e-9).all()  # ndtri(expit(-u)) = -psi(u): psi' falls with u


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 5.0, 20.0])
def test_range_of_mu_is_the_inverse_rounded_down(mu):
    assert range_mu(range_of_mu(mu)) <= mu * (1.0 + 1e-9) + 1e-14
    assert range_of_mu(mu) == pytest.approx(1.5958 * mu, rel=0.02) or mu >= 1.0  # 4 / sqrt(2 pi)


TARGETS = (GDP(0.5), ZCDP(0.1), ApproxDP(1.0, 1e-5), ApproxDP(1.0, 0.0), ApproxDP(0.5, 0.1), RDPCurve((2.0, 8.0), (0.3, 1.0)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.describe())
def test_a_target_is_met_and_nearly_reached(target):
    epsilon = range_of_target(target)
    got = guarantee_for(epsilon, target)
    if isinstance(target, ApproxDP):
        assert got.delta(target.epsilon_bound) <= target.delta_bound
        above = epsilon * 1.01
        assert above > target.epsilon_bound
        assert range_delta(above, target.epsilon_bound) > target.delta_bound
    elif isinstance(target, RDPCurve):
        assert (range_renyi(epsilon, list(target.orders)) <= np.array(target.values)).all()
    elif isinstance(target, GDP):
        assert isinstance(got, GDP)
        assert got.mu <= target.mu < range_mu(1.01 * epsilon)
    else:
        assert isinstance(got, ZCDP)
        assert got.rho <= target.rho < (1.01 * epsilon) ** 2 / 8.0


VALUES = (0.0, 0.2, 0.2, 0.5, 0.9, 1.0)
SPREAD = tuple((index + 0.5) / 20 for index in range(20))
POINTS, SPREAD_POINTS = np.array([0.1, 0.35, 0.7, 0.95]), np.arange(21) / 20 + 1e-3 * np.array([1, *[0] * 19, -1])
LEVELS = pytest.mark.parametrize("quantile", [0.1, 0.5, 0.8])


def law_of(values, quantile=0.5, neighbours="replace_one", epsilon=1.0):
    return quantile_law(np.array(values, dtype=float), (0.0, 1.0), quantile=quantile, epsilon=epsilon, neighbours=neighbours)


def neighbouring(neighbours, most=4):
    """Pairs of small lists, one value replaced or one taken away; then of twenty spread values, where records cross any quantile."""
    replaced = neighbours == "replace_one"
    for count in range(1, most):
        for values in itertools.combinations_with_replacement(VALUES, count):
            for other in [(*values[:-1], other) for other in VALUES] if replaced else [values[1:], values[:-1]]:
                yield values, other, POINTS
    for index in range(20):
        rest = SPREAD[:index] + SPREAD[index + 1 :]
        for other in [(*rest, 1e-4), (*rest, 1.0 - 1e-4)] if replaced else [rest]:
            yield SPREAD, other, SPREAD_POINTS


def log_density(values, points, *, quantile, neighbours, epsilon):
    """The density at the points, straight from its definition: a plain sum over the distinct values."""
    ends = sorted({0.0, 1.0, *values})
    slope = epsilon / (2.0 * (1.0 if neighbours == "replace_one" else max(quantile, 1.0 - quantile)))

    def weight(point):
        return math.exp(-slope * abs(sum(value < point for value in values) - quantile * len(values)))

    total = sum((right - left) * weight((left + right) / 2.0) for left, right in itertools.pairwise(ends))
    return np.log([weight(point) / total for point in points])


def log_density_of_the_code(values, points, **options):
    law = law_of(values, **options)
    where = np.searchsorted(law.edges, points, side="right") - 1
    return np.log(law.probabilities[where] / np.diff(law.edges)[where])


@BOTH
@LEVELS
def test_the_law_is_the_exponential_mechanism_and_the_range_of_its_log_ratio_is_epsilon(neighbours, quantile):
    """1 % less noise would show."""
    options = {"quantile": quantile, "neighbours": neighbours, "epsilon": 1.3}
    widest = 0.0
    for one, other, points in neighbouring(neighbours):
        law = log_density_of_the_code(one, points, **options)
        if len(one) < len(SPREAD):
            assert law == pytest.approx(log_density(one, points, **options), abs=1e-12)
        ratio = law - log_density_of_the_code(other, points, **options)
        widest = max(widest, float(np.ptp(ratio)))
        assert np.abs(ratio).max() <= 1.3 + 1e-12
    assert 0.999 * 1.3 < widest <= 1.3 + 1e-12


def test_ties_and_clipping_give_empty_intervals_and_draws_follow_the_law():
    law = law_of((0.3, 0.3, 0.3, -5.0, 7.0))
    assert law.edges.tolist() == [0.0, 0.0, 0.3, 0.3, 0.3, 1.0, 1.0]
    assert law.probabilities[[0, 2, 3, 5]].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert law.probabilities.sum() == pytest.approx(1.0)
    law, generator = law_of((0.1, 0.4, 0.45, 0.8)), np.random.default_rng(7)
    counts = np.histogram([law.draw(generator) for _ in range(20_000)], bins=law.edges)[0]
    assert counts / 20_000 == pytest.approx(law.probabilities, abs=5.0 * 0.5 / math.sqrt(20_000))  # five standard errors


def test_the_release_is_the_quantile_in_its_range_and_the_guarantee_in_the_target_s_currency():
    values = np.random.default_rng(0).lognormal(0.0, 0.5, 20_000)
    found = private_quantile(values, quantile=0.9, low=0.01, high=20.0, target=GDP(1.0), generator=np.random.default_rng(1))
    assert found.value == pytest.approx(np.quantile(values, 0.9), rel=0.05)
    assert 1.0 - 1e-6 <= mu_of(found.statement.planned) <= 1.0
    options = {"quantile": 0.5, "low": 0.0, "high": 1.0}
    assert isinstance(private_quantile([0.5], target=ZCDP(0.1), **options).statement.planned, ZCDP)
    pure = private_quantile([0.5], target=ApproxDP(0.4, 0.0), **options).statement
    assert pure.epsilon(0.0) == 0.4 > pure.epsilon(1e-5)
    for low, high in ((0.1, 0.7), (1e-3, 1e5), (math.pi, math.e**5)):
        for value in (low / 2, high * 2):
            assert low <= private_quantile([value] * 50, quantile=0.5, low=low, high=high, target=ApproxDP(1e3, 0.0)).value <= high


# --- located quantiles ---

numbers = st.floats(width=64, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0, SMALLEST, -SMALLEST, LARGEST, -LARGEST, 1e300])
LOCATE: dict[str, Any] = {"tails": (0.05, 0.05), "neighbours": "replace_one"}


def released_counts(table: np.ndarray, *, signed: bool = True) -> list[np.ndarray]:
    """All counts of a release, as they are before the noise, in the bins that follow from the first table's own release."""
    seen: list[np.ndarray] = []
    inner, few = noisy_counts, GDP(1e-3)  # no bins but the coarsest: they do not follow the records
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(located, "noisy_counts", lambda counts, **rest: seen.append(counts) or inner(counts, **rest))
        located_quantiles(ColumnsInMemory(table), signed=signed, target=few, generator=np.random.default_rng(0), **LOCATE)
    return seen


@given(st.lists(numbers, min_size=3, max_size=12), numbers, st.booleans())
def test_each_record_is_in_one_bin_of_each_column(values: list[float], other: float, signed: bool) -> None:
    column = np.array(values) if signed else np.abs(values)
    changed = column.copy()
    changed[0] = other if signed else abs(other)
    for before, after in zip(released_counts(column, signed=signed), released_counts(changed, signed=signed), strict=True):
        assert before.sum() == after.sum() == column.size
        assert np.linalg.norm(before - after) <= histogram_sensitivity(1, "replace_one")


@pytest.mark.parametrize("signed", [True, False])
def test_a_value_of_any_size_is_in_one_bin(signed: bool) -> None:
    sizes = np.concatenate([[0.0, 5e-324, 1e300], *(2.0**power * np.array([1.0 - 2.0**-53, 1.0, 1.5]) for power in range(-33, 44))])
    values = np.concatenate([-sizes, sizes]) if signed else sizes
    for counts in released_counts(values[None, :], signed=signed):  # one record, whose columns are these
        assert set(np.unique(counts)) == {0.0, 1.0}
        assert (counts.sum(axis=1) == 1.0).all()


def test_the_sensitivity_is_attained_in_every_histogram() -> None:
    one = np.array([[1e-3, -1e3, 1.0], [1.0, 1.0, 1.0]])
    two = np.array([[-1e3, 5.0, 1e9], [1.0, 1.0, 1.0]])
    for place, (before, after) in enumerate(zip(released_counts(one), released_counts(two), strict=True)):
        moved = float(np.linalg.norm(before - after))
        assert moved == pytest.approx(math.sqrt(6.0)) or place > 0  # values far apart are both beyond the same edge later
        assert moved <= histogram_sensitivity(3, "replace_one")
    gone = np.linalg.norm(np.array([[2.0, 1.0], [0.0, 3.0]]) - np.array([[1.0, 1.0], [0.0, 2.0]]))
    assert gone == pytest.approx(histogram_sensitivity(2, "zero_out"))


@BOTH
@pytest.mark.parametrize("columns", [1, 7])
def test_the_noise_is_what_the_statement_says(neighbours: Any, columns: int) -> None:
    """All counts one standard deviation up: one per cent less noise would be more mu than stated."""
    counts, target = np.zeros((columns, 5)), GDP(0.3)
    noise_std = gaussian_noise_std(histogram_sensitivity(columns, neighbours), target)
    settings: dict[str, Any] = {"noise_std": noise_std, "neighbours": neighbours, "records": 100, "name": "counts"}
    added = noisy_counts(counts, generator=Constant(1.0), **settings)[0]
    moved = math.sqrt(columns * (2.0 if neighbours == "replace_one" else 1.0))
    assert moved / added == pytest.approx(np.full(counts.shape, 0.3), rel=1e-12)
    _, statement = noisy_counts(counts, **settings)
    assert moved / noise_std <= mu_of(statement.guarantee) <= 0.3 * (1.0 + 1e-14)


@BOTH
@pytest.mark.parametrize("columns", [1, 3])
def test_three_histograms_cost_the_target_as_was_planned(neighbours: Any, columns: int) -> None:
    """And columns are asked for their counts once for each of them."""

    class Counted(ColumnsInMemory):
        asked = 0

        def counts(self, edges: np.ndarray) -> np.ndarray:
            self.asked += 1
            return super().counts(edges)

    rows = Counted(np.random.default_rng(0).standard_normal((50, columns)))
    found = located_quantiles(rows, target=GDP(0.4), **LOCATE | {"neighbours": neighbours})
    assert rows.asked == 3
    moved = math.sqrt(columns * (2.0 if neighbours == "replace_one" else 1.0))
    spent = math.sqrt(sum((moved / noise_std) ** 2 for noise_std in located._noises(columns, GDP(0.4), neighbours)))
    assert 0.4 * (1 - 1e-12) <= spent <= mu_of(found.statement.guarantee) <= 0.4
    assert located_cost(columns, GDP(0.4), neighbours) == computed(found.statement).guarantee == found.statement.guarantee
    assert {finding.evidence for finding in found.statement.findings} == {"enforced"}


SHAPES: dict[str, Any] = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "far from 0": lambda rng, count: 1970.0 + 11.0 * rng.standard_normal(count),
    "below 0": lambda rng, count: -1e9 * rng.uniform(1.0, 2.0, count),
    "small": lambda rng, count: 1e-7 * rng.uniform(-1.0, 1.0, count),
    "0 and 1": lambda rng, count: 1.0 * (rng.random(count) < 0.3),
}


@pytest.mark.parametrize("name", SHAPES)
def test_ranges_of_many_records_are_close(name: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        values = SHAPES[name](rng, 5000)
        found = located_quantiles(ColumnsInMemory(values), target=GDP(0.2), generator=rng, **LOCATE)
        low, high = np.quantile(values, [0.05, 0.95])
        width = high - low
        assert found.low[0] == pytest.approx(low, abs=0.2 * width)
        assert found.high[0] == pytest.approx(high, abs=0.2 * width)
        assert not np.any([found.undetected, found.tiny, found.beyond])


@pytest.mark.parametrize("units", [5.0, 15.0, 30.0, 100.0])
@pytest.mark.parametrize("name", SHAPES)
def test_few_records_never_give_a_wide_range(name: str, units: float) -> None:
    """Exponential mechanism and search: up to 10^10 times too wide."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = SHAPES[name](rng, 300)
        share = GDP(units / 300.0)
        found = located_quantiles(ColumnsInMemory(values), target=share, generator=rng, **LOCATE)
        assert max(abs(found.low[0]), abs(found.high[0])) <= 8.0 * max(np.abs(values).max(), SMALLEST)
        assert found.low[0] < found.high[0]


def test_nothing_is_detected_in_noise_alone() -> None:
    rng = np.random.default_rng(0)
    found = located_quantiles(ColumnsInMemory(np.zeros((100, 2000))), target=GDP(1.0), generator=rng, **LOCATE)
    wide = np.flatnonzero(found.high > SMALLEST)
    assert wide.size <= 3  # 2 in 10 000 expected
    assert found.undetected.sum() + found.tiny.sum() + wide.size == 2000


def test_values_next_to_0_and_beyond_the_largest_size_are_noticed() -> None:
    table = np.array([[0.0, 1e15, 1.0], [0.0, -1e15, 2.0]] * 500)
    found = located_quantiles(ColumnsInMemory(table), target=GDP(1.0), generator=np.random.default_rng(0), **LOCATE)
    assert found.tiny.tolist() == [True, False, False]
    assert found.beyond.tolist() == [False, True, False]
    assert [found.low[0], found.high[0]] == [-SMALLEST, SMALLEST]
    assert found.high[1] == pytest.approx(LARGEST, rel=0.2)


@pytest.mark.parametrize("tail", [0.01, 0.4, 0.49])
@pytest.mark.parametrize("records", [2, 20, 300, 5000])
def test_the_lower_quantile_is_below_the_upper_one(tail: float, records: int) -> None:
    rng = np.random.default_rng(1)
    table = np.column_stack([np.full(records, 1e9), np.zeros(records), rng.standard_normal(records), 1.0 * (rng.random(records) < 0.5)])
    for units in (1.0, 100.0, 1e9):
        share = GDP(units / records)
        found = located_quantiles(ColumnsInMemory(table), target=share, generator=rng, **LOCATE | {"tails": (tail, tail)})
        assert (found.low < found.high).all()
