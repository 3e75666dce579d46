"""Quantiles located by histograms: what one record moves, what is stated of it, and where they lie whatever the unit of the values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from constant_noise import Constant
from gaussian_guarantees import mu_of
from hypothesis import given
from hypothesis import strategies as st

from lethe.accounting.derivations import computed
from lethe.calculus.guarantees import GDP
from lethe.mechanisms.base import gaussian_noise_std
from lethe.mechanisms.quantiles import located
from lethe.mechanisms.quantiles.located import (
    LARGEST,
    SMALLEST,
    ColumnsInMemory,
    histogram_sensitivity,
    located_cost,
    located_quantiles,
    noisy_counts,
)

BOTH: Any = pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
numbers = st.floats(width=64, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0, SMALLEST, -SMALLEST, LARGEST, -LARGEST, 1e300])


def released_counts(table: np.ndarray, *, signed: bool = True) -> list[np.ndarray]:
    """All counts of a release, as they are before the noise, in the bins that follow from the first table's own release."""
    seen: list[np.ndarray] = []
    inner = noisy_counts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(located, "noisy_counts", lambda counts, **rest: seen.append(counts) or inner(counts, **rest))
        located_quantiles(
            ColumnsInMemory(table),
            tails=(0.1, 0.1),
            signed=signed,
            target=GDP(1e-3),  # no bins but the coarsest: they do not follow the records
            neighbours="replace_one",
            generator=np.random.default_rng(0),
        )
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
    rows = np.random.default_rng(0).standard_normal((50, columns))
    found = located_quantiles(ColumnsInMemory(rows), tails=(0.05, 0.05), target=GDP(0.4), neighbours=neighbours)
    noises = located._noises(columns, GDP(0.4), neighbours)
    moved = math.sqrt(columns * (2.0 if neighbours == "replace_one" else 1.0))
    spent = math.sqrt(sum((moved / noise_std) ** 2 for noise_std in noises))
    assert spent <= mu_of(found.statement.guarantee) <= 0.4
    assert spent == pytest.approx(0.4, rel=1e-12)
    assert located_cost(columns, GDP(0.4), neighbours) == found.statement.guarantee
    assert computed(found.statement).guarantee == found.statement.guarantee
    assert {finding.evidence for finding in found.statement.findings} == {"enforced"}


@BOTH
def test_columns_are_counted_once_for_each_noisy_histogram(neighbours: Any) -> None:
    """Columns are asked for their counts once for each histogram, and a release with a generator says so."""

    class Counted(ColumnsInMemory):
        asked = 0

        def counts(self, edges: np.ndarray) -> np.ndarray:
            self.asked += 1
            return super().counts(edges)

    columns = Counted(np.random.default_rng(0).standard_normal((400, 2)))
    found = located_quantiles(columns, tails=(0.05, 0.05), target=GDP(0.3), neighbours=neighbours)
    assert columns.asked == 3
    assert not found.statement.seeded
    seeded = located_quantiles(columns, tails=(0.05, 0.05), target=GDP(0.3), neighbours=neighbours, generator=np.random.default_rng(0))
    assert seeded.statement.seeded


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
        found = located_quantiles(ColumnsInMemory(values), tails=(0.05, 0.05), target=GDP(0.2), neighbours="replace_one", generator=rng)
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
        found = located_quantiles(ColumnsInMemory(values), tails=(0.05, 0.05), target=share, neighbours="replace_one", generator=rng)
        assert max(abs(found.low[0]), abs(found.high[0])) <= 8.0 * max(np.abs(values).max(), SMALLEST)
        assert found.low[0] < found.high[0]


def test_nothing_is_detected_in_noise_alone() -> None:
    rng = np.random.default_rng(0)
    found = located_quantiles(
        ColumnsInMemory(np.zeros((100, 2000))), tails=(0.05, 0.05), target=GDP(1.0), neighbours="replace_one", generator=rng
    )
    wide = np.flatnonzero(found.high > SMALLEST)
    assert wide.size <= 3  # 2 in 10 000 expected
    assert found.undetected.sum() + found.tiny.sum() + wide.size == 2000


def test_values_next_to_0_and_beyond_the_largest_size_are_noticed() -> None:
    settings: dict[str, Any] = {"tails": (0.05, 0.05), "target": GDP(1.0), "neighbours": "replace_one"}
    table = np.array([[0.0, 1e15, 1.0], [0.0, -1e15, 2.0]] * 500)
    found = located_quantiles(ColumnsInMemory(table), generator=np.random.default_rng(0), **settings)
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
        found = located_quantiles(ColumnsInMemory(table), tails=(tail, tail), target=share, neighbours="replace_one", generator=rng)
        assert (found.low < found.high).all()
