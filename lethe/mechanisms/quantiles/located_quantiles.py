r"""Quantiles of columns whose unit is unknown, from three noisy histograms: of sizes over powers of two, then of values, twice.

ranges.py of the estimators (for "auto" bounds) and `describe` call it: no range is known beforehand, so one has to be located in private
first. quantile.py is for ranges that are public.

1. *Sizes.* $|v|$ is counted over the bins $[2^k, 2^{k+1})$, $k = -30..39$; smaller ones are in a bin of their own, larger ones in the last.
   It takes half of the squared $\mu$. Where no bins stand out of the noise nothing is detected; else S is the power of two that few records
   are above.
2. *Values.* v is counted over 16 to 128 bins of equal width in $[-S, S]$ (of sizes $[0, S]$), and beyond them: a quarter.
3. *Again.* Where the quantiles lie within a quarter of those bins, values are counted over as many bins between the quantiles alone; else
   once more over the same bins, and both are averaged: a quarter.

One record moves the counts of d columns together by $\Delta = \sqrt{2d}$ at most, by $\sqrt d$ where it is zeroed out (docs/theory.md,
section 16): with $N(0, \sigma^2)$ on each count a histogram is $(\Delta/\sigma)$-GDP, whatever the number of bins. Bins are public or
follow from those before, and adaptive composition adds the squares of $\mu$. All else is post-processing.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from lethe.calculus.any_guarantee import joined
from lethe.calculus.domains import require_count
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_down, round_up
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std, gaussian_statement, joint, require_swap
from lethe.mechanisms.quantiles.histogram_quantiles import SIZE, Flags, bin_of_largest, two_quantiles
from lethe.run.run import Neighbours

SMALLEST, LARGEST = 2.0**-30, 2.0**40  # sizes that are told apart
_SIZES = np.array([2.0**power for power in range(-30, 41)])
_SHARES = (0.5, 0.25, 0.25)  # of the squared mu
_ZOOMED = 0.25  # of the bins, in which the quantiles lie
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocatedQuantiles:
    """Two released quantiles of each of d columns, the one below the other, and what they cost; all of shape (d,).

    Of `undetected` columns nothing could be told from the noise: their range is that of the smallest size. Of `tiny` ones half or more are
    below it, and no others could be told from the noise. Of those `beyond` values may be beyond the largest size.
    """

    low: Array
    high: Array
    undetected: Flags
    tiny: Flags
    beyond: Flags
    statement: Statement


class CountedColumns(Protocol):
    """Columns of which values are counted."""

    @property
    def shape(self) -> tuple[int, int]:
        """Records and columns, n and d."""
        ...

    def counts(self, edges: Array) -> Array:
        """How many values of each column are below its first edge, in $[e_i, e_{i+1})$ for each i, and from its last edge on.

        Edges ascend, shape (d, e); counts have shape (d, e + 1), and each row adds up to n.
        """
        ...


class ColumnsInMemory:
    """Columns of an array, shape (n, d), float64 or float32, finite or infinite; or of shape (n,), one column."""

    def __init__(self, table: np.ndarray[Any, Any]) -> None:
        self.table = table if table.ndim == 2 else table[:, None]

    @property
    def shape(self) -> tuple[int, int]:
        """n and d."""
        return self.table.shape[0], self.table.shape[1]

    def counts(self, edges: Array) -> Array:
        """How many values of each column lie between its edges, shape (d, bins)."""
        return np.stack([counts_between(column, column_edges) for column, column_edges in zip(self.table.T, edges, strict=True)])


def counts_between(values: np.ndarray[Any, Any], edges: Array) -> Array:
    """How many values are below the first edge, between each two, and from the last on, shape (e + 1,); NaN is nowhere, edges ascend."""
    finite = np.clip(values[~np.isnan(values)].astype(np.float64), -_LARGEST, _LARGEST)  # below an edge that is infinite
    bins = np.searchsorted(edges, finite, side="right")
    return np.bincount(bins, minlength=edges.size + 1).astype(np.float64)


def histogram_sensitivity(columns: int, neighbours: object) -> float:
    r"""$\Delta$, how far one record moves the counts of d columns together, rounded up."""
    return round_up(math.sqrt(require_swap(neighbours) * require_count("columns", columns)), 4e-16)


def noisy_counts(
    counts: Array, *, noise_std: float, neighbours: Neighbours, records: int, name: str, generator: np.random.Generator | None = None
) -> tuple[Array, Statement]:
    """Release the counts of every bin of every column, shape (d, bins): each record is in one bin of each column."""
    columns, bins = counts.shape
    sensitivity = histogram_sensitivity(columns, neighbours)
    noisy = counts + noise_std * noise_generator(generator).standard_normal(counts.shape)
    statement = gaussian_statement(
        name,
        "histograms",
        sensitivity=sensitivity,
        noise_std=noise_std,
        neighbours=neighbours,
        records=records,
        generator=generator,
        findings=(
            holds("values in bins", f"each in one of {bins}, at every end of the range as well", evidence="enforced"),
            holds("sensitivity", f"one record moves the counts by at most {sensitivity:.6g}", evidence="enforced"),
        ),
        columns=columns,
    )
    return noisy, statement


def located_cost(columns: int, target: GDP, neighbours: Neighbours) -> Guarantee:
    """The guarantee of `located_quantiles` of so many columns, before it looks at a record."""
    sensitivity = histogram_sensitivity(columns, neighbours)
    return joined([(gaussian_guarantee(sensitivity, noise_std), 1) for noise_std in _noises(columns, target, neighbours)])


def located_quantiles(
    columns: CountedColumns,
    *,
    tails: tuple[float, float],
    signed: bool = True,
    guesses: bool = False,
    target: GDP,
    neighbours: Neighbours,
    name: str = "quantiles",
    generator: np.random.Generator | None = None,
) -> LocatedQuantiles:
    """Release two quantiles of every column; every record is present, their number n is public.

    Args:
        columns: n values each.
        tails: the shares of records below the lower one and above the upper one, each in (0, 1), together less than 1.
        signed: whether values may be below 0.
        guesses: whether sizes that are only likely are taken where most records are not next to 0: for columns, of which a wrong one spoils
            no other.
        target, neighbours, name, generator: of the whole release, the generator for tests only.
    """
    records, width = columns.shape
    noises = _noises(width, target, neighbours)
    statements = list[Statement]()

    def released(counts: Array, noise_std: float) -> Array:
        part = f"{name}, histogram {len(statements) + 1} of {len(_SHARES)}"
        noisy, statement = noisy_counts(counts, noise_std=noise_std, neighbours=neighbours, records=records, name=part, generator=generator)
        statements.append(statement)
        return noisy

    edges = np.concatenate([-_SIZES[::-1], _SIZES]) if signed else _SIZES
    sizes = released(_folded(columns.counts(np.tile(edges, (width, 1))), signed=signed), noises[0])
    tail = min(tails) if signed else tails[1]
    largest = [bin_of_largest(column_sizes, noises[0], records, tail, guesses=guesses) for column_sizes in sizes]
    detected = np.array([largest_bin is not None for largest_bin in largest])
    tiny = ~detected & (sizes[:, 0] > np.maximum(SIZE * noises[0], records / 2.0))

    reach = np.array([SMALLEST if largest_bin is None else _SIZES[largest_bin] for largest_bin in largest])
    bins = _bins(records * target.mu / math.sqrt(width))
    grids: Array = np.linspace(-reach if signed else np.zeros(width), reach, bins + 1, axis=1)
    counts = released(columns.counts(_reaching(grids)), noises[1])
    estimates = [two_quantiles(*counts_and_grid, noises[1], records, tails) for counts_and_grid in zip(counts, grids, strict=True)]

    steps = grids[:, 1] - grids[:, 0]
    narrowed = grids.copy()
    zoomed = np.array([high - low <= _ZOOMED * bins * step for (low, high), step in zip(estimates, steps, strict=True)])
    for column in np.flatnonzero(zoomed):
        (low, high), half = estimates[column], steps[column] / 2.0
        narrowed[column] = np.linspace(max(low - half, grids[column, 0]), min(high + half, grids[column, -1]), bins + 1)
    last = released(columns.counts(_reaching(narrowed)), noises[2])
    ends = np.empty((width, 2))
    for column in range(width):
        if zoomed[column]:
            ends[column] = two_quantiles(last[column], narrowed[column], noises[2], records, tails)
        else:
            both = (counts[column] + last[column]) / 2.0
            ends[column] = two_quantiles(both, grids[column], noises[2] / math.sqrt(2.0), records, tails)
    ends[~detected] = (-SMALLEST if signed else 0.0), SMALLEST
    whole = joint(statements, name=name)
    sign = ", of either sign" if signed else ""
    range_words = f"sizes from {SMALLEST:.3g} to {LARGEST:.3g}{sign}, fixed in the code for every data set"
    return LocatedQuantiles(
        low=ends[:, 0],
        high=ends[:, 1],
        undetected=~detected & ~tiny,
        tiny=tiny,
        beyond=reach >= LARGEST,
        statement=replace(whole, findings=(holds("public range", range_words, evidence="enforced"), *whole.findings)),
    )


def _noises(columns: int, target: GDP, neighbours: Neighbours) -> list[float]:
    """The noise of each of the three histograms, by their shares of the squared mu."""
    parts = [GDP(round_down(target.mu * math.sqrt(share), 1e-14)) for share in _SHARES]
    return [gaussian_noise_std(histogram_sensitivity(columns, neighbours), part) for part in parts]


def _bins(units: float) -> int:
    """How many of equal width: 16 to 128, by the public number of records in units of the noise of one column."""
    return next((bins for bins in (16, 32, 64) if units < 12.5 * bins), 128)


def _reaching(grids: Array) -> Array:
    """Edges at the largest size are at infinity: what is beyond counts as if it were there."""
    return np.where(np.abs(grids) >= LARGEST, np.copysign(np.inf, grids), grids)


def _folded(counts: Array, *, signed: bool) -> Array:
    """Counts of sizes, smallest first, shape (d, 71), from those of values or of sizes; what is beyond the largest size is in the last."""
    last = _SIZES.size
    if signed:
        negative, positive = counts[:, :last][:, ::-1], counts[:, last + 1 :]
        counts = np.concatenate([counts[:, last : last + 1], negative + positive], axis=1)
    return np.concatenate([counts[:, : last - 1], counts[:, last - 1 : last + 1].sum(axis=1, keepdims=True)], axis=1)
