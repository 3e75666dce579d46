r"""Reading noisy histograms: which bins hold records, the power of two that sizes stay below, and quantiles of values.

`located_quantiles` calls it between its histograms, and `describe` with counts of known bins; it sees noisy counts only, which costs
nothing.

Of counts $\hat c$ with noise $\sigma$ that run $[i, j]$ of bins holds records whose $\sum_{i..j}\hat c/\sqrt{j - i + 1}$ is the largest,
if it is large beside $\sigma$; then the same on either side of it, until nothing is left that noise cannot explain. Quantiles are read off
the bins that hold records, with at least a noise's worth of records beyond. So a range comes out too narrow rather than too wide: values
outside are only clipped, while all noise that follows is in proportion to the range. All of it is post-processing.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lethe.mechanisms.base import Array

Flags = NDArray[np.bool_]

_INSIDE = 0.5  # of the records within the bins have to be in bins that hold records
# In standard deviations of the noise: a run of sizes, which noise alone reaches in one histogram of 5000; where a guess does; one beside
# it, since a wrong power of two spoils a range; a run of values, where n records are known to be; one beside it; bins next to a run.
SIZE, _LIKELY_SIZE, _FURTHER_SIZE, _VALUE, _FURTHER_VALUE, _ADJOINING = 5.0, 4.0, 6.0, 3.5, 4.5, 2.0
_BEYOND_SIZE, _BEYOND_VALUE = 1.5, 1.0  # records left beyond an end, where noise is large
_APART = 0.999  # of the records at most lie below the lower quantile and above the upper one


def bin_of_largest(sizes: Array, noise_std: float, records: int, tail: float, *, guesses: bool) -> int | None:
    """The last bin of sizes that counts, with at most half of the tail above it, or a noise's worth of records; None where none does.

    Of the counts, shape (bins,), the first holds the values next to 0; where most records are not there `guesses` takes likely runs.
    """
    threshold = _LIKELY_SIZE if guesses and sizes[0] < records / 2.0 else SIZE
    occupied = _runs(sizes[1:], threshold * noise_std, _FURTHER_SIZE * noise_std)
    if not occupied.any():
        return None
    above = np.cumsum(np.where(occupied, np.maximum(sizes[1:], 0.0), 0.0)[::-1])[::-1]
    tail_count = min(max(0.5 * tail * records, _BEYOND_SIZE * noise_std), above[0] / 2.0)
    return int(np.flatnonzero(above > tail_count)[-1]) + 1


def two_quantiles(counts: Array, grid: Array, noise_std: float, records: int, tails: tuple[float, float]) -> tuple[float, float]:
    """Two quantiles; the ends of the grid where most records within it cannot be told from the noise.

    Counts are below the grid, in its bins, and above it, noisy, shape (bins + 2,); edges of the grid have shape (bins + 1,).
    """
    below, above, inner = max(float(counts[0]), 0.0), max(float(counts[-1]), 0.0), counts[1:-1]
    occupied = _occupied(inner, noise_std)
    sums = np.concatenate([[0.0], np.cumsum(np.where(occupied, np.maximum(inner, 0.0), 0.0))])
    counted = float(sums[-1])
    if counted <= max(_INSIDE * (records - below - above), 0.0):
        return float(grid[0]), float(grid[-1])
    unseen = max(records - counted - below - above, 0.0) / 2.0  # on either side
    low, high = (
        min(max(max(tail * records, _BEYOND_VALUE * noise_std) - beyond - unseen, 0.0), _APART * counted * tail / sum(tails))
        for tail, beyond in zip(tails, (below, above), strict=True)
    )
    occupied_bins = np.flatnonzero(occupied)
    return _at(sums, grid, low, int(occupied_bins[0]), upper=False), _at(sums, grid, counted - high, int(occupied_bins[-1]) + 1, upper=True)


def _occupied(counts: Array, noise_std: float) -> Flags:
    """Which bins hold records, shape of the counts: the first run, the runs beside it, and what adjoins the outermost of them."""
    occupied = _runs(counts, _VALUE * noise_std, _FURTHER_VALUE * noise_std)
    if occupied.any():
        occupied_bins = np.flatnonzero(occupied)
        first, last = occupied_bins[0], occupied_bins[-1] + 1
        occupied[:first] = _adjoining(counts[:first][::-1], last - first, _ADJOINING * noise_std)[::-1]
        occupied[last:] = _adjoining(counts[last:], last - first, _ADJOINING * noise_std)
    return occupied


def _runs(counts: Array, threshold: float, further: float) -> Flags:
    r"""The run with the largest $\sum\hat c/\sqrt{\text{bins}}$ if it is above `threshold`; beside it those above `further`."""
    if counts.size == 0:
        return np.zeros(0, dtype=np.bool_)
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    first, last = np.triu_indices(counts.size)
    scores = (sums[last + 1] - sums[first]) / np.sqrt(last - first + 1.0)
    best = int(np.argmax(scores))
    if scores[best] <= threshold:
        return np.zeros(counts.size, dtype=np.bool_)
    before, after = int(first[best]), int(last[best]) + 1
    within = np.ones(after - before, dtype=np.bool_)
    return np.concatenate([_runs(counts[:before], further, further), within, _runs(counts[after:], further, further)])


def _adjoining(counts: Array, limit: int, threshold: float) -> Flags:
    """Of bins beside a run, nearest first, those that belong to it: at most as many as it has, and then of those beside them again."""
    sums = np.cumsum(counts[:limit]) / np.sqrt(np.arange(1.0, min(limit, counts.size) + 1.0))
    until = int(np.argmax(sums)) + 1 if sums.size else 0
    if until == 0 or sums[until - 1] <= threshold:
        return np.zeros(counts.size, dtype=np.bool_)
    return np.concatenate([np.ones(until, dtype=np.bool_), _adjoining(counts[until:], limit + until, threshold)])


def _at(sums: Array, grid: Array, rank: float, end: int, *, upper: bool) -> float:
    """Where so many counted records lie below, even within a bin; `end` is the edge at which they begin, or stop."""
    side = int(np.searchsorted(sums, rank, side="left" if upper else "right"))
    edge = min(max(side, 1), grid.size - 1)
    inside = sums[edge] - sums[edge - 1]
    if inside <= 0.0 or rank <= 0.0 or rank >= sums[-1]:
        return float(grid[end])
    share = (rank - sums[edge - 1]) / inside
    return float(grid[edge - 1] + share * (grid[edge] - grid[edge - 1]))


def quantiles_of(counts: Array, edges: Array, shares: Sequence[float]) -> list[float]:
    """Quantiles of noisy counts below the first edge, between each two and from the last on, shape (edges + 1,); within the edges."""
    sums = np.cumsum(np.maximum(counts, 0.0))
    return [float(np.interp(share * sums[-1], sums[:-1], edges)) for share in shares]
