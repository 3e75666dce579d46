"""Root finding for monotone functions, the smallest noise that meets a target, and the least value of a function of whole numbers.

Planners search the noise with it, guarantees invert a profile, audits invert a test; whoever needs a bound gets the end of the bracket on
the safe side, whatever the rounding.
"""

import math
import sys
from collections.abc import Callable
from functools import cache

from lethe.calculus.domains import require_positive
from lethe.calculus.rounding import count_above
from lethe.errors import CalibrationError

# From the largest float to the smallest.
_MOST_HALVINGS = 2100


# How far, as a share of the bracket, the first point is pulled beyond the root that was guessed.
_PULL = 0.005


def log_gap(value: float, target: float) -> float:
    """log(value / target), whose sign agrees exactly with `value <= target`: never positive when it holds, positive when not."""
    if value < 0.0:  # no delta, no epsilon and no cost is: what says so is broken
        return math.inf
    if not value <= target:
        return max(math.log(value) - math.log(target), 5e-324) if target > 0.0 and value < math.inf else math.inf
    if value == 0.0 or target == math.inf:
        return -math.inf
    return min(math.log(value) - math.log(target), 0.0)


def crossing(
    gap: Callable[[float], float],
    failing: float,
    passing: float,
    *,
    resolution: float,
    gap_failing: float = math.inf,
    gap_passing: float = -math.inf,
) -> float:
    """Narrow a bracket between a point where `gap` > 0 and one where `gap` <= 0, and return the latter end.

    Interpolate, truncate, project: inverse interpolation of the ends and the point before them, pulled towards the middle of the bracket,
    at most one evaluation worse than bisection. Where an end's value is infinite it bisects. The point returned is `passing` itself or one
    where `gap` <= 0 was evaluated, whatever the shape of `gap`; nan counts as failing. The gap is meant to be monotone between the two
    ends, which come in any order; the resolution, > 0, is how close they may come. Reference: Oliveira & Takahashi 2020, "An enhancement of
    the bisection method average performance preserving minmax optimality".
    """
    width = abs(passing - failing)
    halvings = int(count_above(math.log2(max(width / max(resolution, 5e-324), 1.0)), _MOST_HALVINGS)) + 1
    pull = _PULL / width if width > 0.0 else 0.0
    before, gap_before = math.nan, math.nan
    for step in range(halvings + 1):
        width = abs(passing - failing)
        middle = 0.5 * (failing + passing)
        if width <= resolution or middle in (failing, passing):
            break
        point = middle
        if math.isfinite(gap_failing) and math.isfinite(gap_passing) and gap_failing > gap_passing:
            secant = failing + (passing - failing) * (gap_failing / (gap_failing - gap_passing))
            if gap_before not in (gap_failing, gap_passing):
                bent = _bent((failing, passing, before), (gap_failing, gap_passing, gap_before))
                secant = bent if min(failing, passing) < bent < max(failing, passing) else secant
            # Half a resolution is enough to land beyond a root already found, and closes the bracket from the other side.
            truncation = max(pull * width * width, 0.5 * resolution)
            towards = math.copysign(1.0, middle - secant)
            if truncation <= abs(middle - secant):
                point = secant + towards * truncation
            slack = max(0.5 * resolution * 2.0 ** (halvings - step) - 0.5 * width, 0.0)
            if abs(point - middle) > slack:
                point = middle - towards * slack
        if point in (failing, passing):
            point = middle
        value = gap(point)
        if value <= 0.0:
            before, gap_before, passing, gap_passing = passing, gap_passing, point, value
        else:
            before, gap_before, failing, gap_failing = failing, gap_failing, point, (value if value > 0.0 else math.inf)
    return passing


def _bent(points: tuple[float, float, float], gaps: tuple[float, float, float]) -> float:
    """Where the parabola through three points, as a function of the gap, is 0; nan if a gap is none."""
    (a, b, c), (u, v, w) = points, gaps
    return a * (v / (v - u)) * (w / (w - u)) + b * (u / (u - v)) * (w / (w - v)) + c * (u / (u - w)) * (v / (v - w))


# The search spans start * 2^-200 to start * 2^200.
_MOST_DOUBLINGS = 200
_BEYOND = 1.02


def smallest(bound: Callable[[float], float], target: float, *, start: float, tolerance: float = 1e-6) -> float:
    r"""Smallest $x > 0$ with $\mathrm{bound}(x) \le \mathrm{target}$ for a nonincreasing bound, from above.

    Brackets outward from `start`, first as far as a bound that falls as 1/x would need, then in factors 2, 4, 16, ..., then narrows on
    $\log x$ by interpolation kept inside the bracket, because most bounds are close to a power of the noise: about seven evaluations for
    the default tolerance. The bound may return infinity, and nan counts as infinity. Target and start are finite and > 0; the tolerance,
    > 0, is the relative width of the final bracket.

    Returns:
        $x$ with $\mathrm{bound}(x) \le$ target evaluated at this very $x$, and, for a nonincreasing bound, at most $1 +$ tolerance times
        the true crossing. If every $x$ down to start $\cdot\,2^{-200}$ meets the target, that last one.
    Raises:
        CalibrationError: no $x$ up to start $\cdot\,2^{200}$ was found to meet the target.
    """
    goal, first, width = require_positive("target", target), require_positive("start", start), require_positive("tolerance", tolerance)

    def point(log_ratio: float) -> float:
        return min(max(first * math.exp(log_ratio), sys.float_info.min), sys.float_info.max)

    def gap(log_ratio: float) -> float:
        return log_gap(bound(point(log_ratio)), goal)

    inner, gap_here = 0.0, gap(0.0)
    outward = -1.0 if gap_here <= 0.0 else 1.0
    doublings, near = 1, max(_BEYOND * abs(gap_here), width)
    while True:
        outer = outward * (near if near < math.log(2.0) else min(doublings, _MOST_DOUBLINGS) * math.log(2.0))
        gap_there = gap(outer)
        if (gap_there <= 0.0) != (gap_here <= 0.0):
            break
        if doublings >= _MOST_DOUBLINGS:
            if outward < 0.0:
                return point(outer)
            raise CalibrationError(
                f"the bound is still above {goal:g} at {point(outer):g}; it needs to fall to {goal:g} somewhere.",
                source=f"a search over [{first:g}, {point(outer):g}]",
                remedy="raise the target, or check that the bound falls as its argument grows",
            )
        inner, gap_here = outer, gap_there
        doublings, near = (1, math.inf) if near < math.log(2.0) else (2 * doublings + 1, near)
    (failing, gap_failing), (passing, gap_passing) = sorted(((inner, gap_here), (outer, gap_there)), key=lambda end: -end[1])
    # Half the tolerance leaves room for log(1 + t) < t and for the rounding of exp.
    resolution = 0.5 * math.log1p(width)
    return point(crossing(gap, failing, passing, resolution=resolution, gap_failing=gap_failing, gap_passing=gap_passing))


def least_whole(value: Callable[[int], float], most: int, *, tolerance: float = 1e-6) -> int:
    """The smallest of 1..most whose value is at most 1 + `tolerance` times the least.

    Tries numbers a quarter apart, then thirds of what lies beside the best of them: some forty values for a thousand numbers. Of a function
    that does not fall and then rise it is the best of those tried.

    Args:
        value: >= 0, maybe infinite; meant to fall and then rise, up to less than the tolerance.
        most: the largest number, >= 1.
        tolerance: relative, >= 0.
    """
    value = cache(value)
    grid = [1]
    while grid[-1] < most:
        grid.append(min(max(grid[-1] + 1, 5 * grid[-1] // 4), most))
    best = grid.index(min(grid, key=value))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    while high - low > 2:
        third = (high - low) // 3
        low, high = (low, high - third) if value(low + third) <= value(high - third) else (low + third, high)
    least = min(*range(low, high + 1), grid[best], key=value)
    low, high, goal = 0, least, value(least) * (1.0 + tolerance)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if value(middle) <= goal else (middle, high)
    return high
