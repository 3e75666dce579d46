"""What the results of the benchmark of private linear models come to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from scipy import stats

Scores = dict[int, float]  # by seed
Cells = dict[tuple[str, float, str], Scores]  # by data set, epsilon and method


def cell(found: Scores, digits: int = 3) -> str:
    """Mean and 95 % interval, to so many decimals; the mean alone of one seed."""
    scores = list(found.values())
    if not scores:
        return "-"
    mean = statistics.fmean(scores)
    if len(scores) == 1:
        return f"{mean:.{digits}f}" if abs(mean) < 100.0 else f"{mean:.1e}"
    half = half_width(scores)
    return f"{mean:.{digits}f} ± {half:.{digits}f}" if abs(mean) < 100.0 else f"{mean:.1e} ± {half:.0e}"


def behind(ours: Scores, other: Scores) -> tuple[float, float]:
    """By how much the first is behind the second on average, over the seeds of both, and the half width of the 95 % interval of that.

    A seed draws one split for all methods, so differences are taken seed by seed. One seed has no interval, and any gap counts.
    """
    gaps = [other[seed] - ours[seed] for seed in ours.keys() & other.keys()]
    return (statistics.fmean(gaps) if gaps else math.nan), half_width(gaps)


def verdicts(cells: Cells, ours: Sequence[str], rival: str) -> Iterator[str]:
    """On how many cells auto is within noise of the best of ours, and above the rival; a line for each cell where it is not.

    The best has all seeds of auto: a mean of a few seeds is high or low by what they drew.
    """
    places = sorted({(dataset, epsilon) for dataset, epsilon, method in cells if method == "auto"})
    near = total = above = beaten = compared = 0
    worse: list[str] = []
    for dataset, epsilon in places:
        auto = cells[dataset, epsilon, "auto"]
        found = {method: cells.get((dataset, epsilon, method), {}) for method in ours if method != "auto"}
        others = {method: scores for method, scores in found.items() if auto.keys() <= scores.keys()}
        if others:
            best = max(others, key=lambda method: statistics.fmean(others[method].values()))
            gap, noise = behind(auto, others[best])
            total += 1
            near += gap <= noise
            if gap > noise:
                worse.append(f"    {dataset}, epsilon = {epsilon:g}: {gap:.4f} behind {best}, noise {noise:.4f}")
        if (dataset, epsilon, rival) in cells:
            gap, noise = behind(auto, cells[dataset, epsilon, rival])
            compared += 1
            above += gap < 0.0
            beaten += gap > noise
            if gap >= 0.0:
                worse.append(f"    {dataset}, epsilon = {epsilon:g}: {gap:.4f} behind {rival}, noise {noise:.4f}")
    yield f"auto is within noise of the best of ours on {near} of {total} cells"
    yield f"auto is above {rival} on {above} of {compared} cells, and below it by more than noise on {beaten}"
    yield from worse


def half_width(values: Sequence[float]) -> float:
    """Of the 95 % interval of the mean; 0 of a single number, whose interval is not known."""
    if len(values) < 2:
        return 0.0
    return float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
