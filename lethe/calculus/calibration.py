"""The smallest noise that meets a target: bracket, narrow, and return the end whose bound was seen to meet it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from lethe.calculus.crossing import crossing, log_gap
from lethe.calculus.domains import require_positive
from lethe.errors import CalibrationError

# The search spans start * 2^-200 to start * 2^200.
_MOST_DOUBLINGS = 200


def smallest(bound: Callable[[float], float], target: float, *, start: float, tolerance: float = 1e-6) -> float:
    r"""Smallest $x > 0$ with $\mathrm{bound}(x) \le \mathrm{target}$ for a nonincreasing bound, from above.

    Brackets outward from `start` in factors 2, 4, 16, ..., then narrows on $\log x$ by false position kept inside the bracket, because
    most bounds are close to a power of the noise: about ten evaluations for the default tolerance.

    Args:
        bound: a function of $x > 0$, such as the epsilon of a noise multiplier; it may return infinity. nan counts as infinity.
        target: a finite number > 0.
        start: a first guess, > 0 and finite.
        tolerance: relative width of the final bracket, > 0.
    Returns:
        $x$ with $\mathrm{bound}(x) \le$ target evaluated at this very $x$, and, for a nonincreasing bound, at most $1 +$ tolerance times
        the true crossing. If every $x$ down to start $\cdot\,2^{-200}$ meets the target, that last one.
    Raises:
        InputError: target, start or tolerance is outside its range.
        CalibrationError: no $x$ up to start $\cdot\,2^{200}$ was found to meet the target.
    """
    goal, first, width = require_positive("target", target), require_positive("start", start), require_positive("tolerance", tolerance)

    def point(log_ratio: float) -> float:
        return min(max(first * math.exp(log_ratio), sys.float_info.min), sys.float_info.max)

    def gap(log_ratio: float) -> float:
        return log_gap(bound(point(log_ratio)), goal)

    here, gap_here = 0.0, gap(0.0)
    outward = -1.0 if gap_here <= 0.0 else 1.0
    doublings = 1
    while True:
        there = outward * min(doublings, _MOST_DOUBLINGS) * math.log(2.0)
        gap_there = gap(there)
        if (gap_there <= 0.0) != (gap_here <= 0.0):
            break
        if doublings >= _MOST_DOUBLINGS:
            if outward < 0.0:
                return point(there)
            raise CalibrationError(
                f"the bound is still above {goal:g} at {point(there):g}; it needs to fall to {goal:g} somewhere.",
                source=f"a search over [{first:g}, {point(there):g}]",
                remedy="raise the target, or check that the bound falls as its argument grows",
            )
        here, gap_here, doublings = there, gap_there, 2 * doublings + 1
    (failing, gap_failing), (passing, gap_passing) = sorted(((here, gap_here), (there, gap_there)), key=lambda end: -end[1])
    # Half the tolerance leaves room for log(1 + t) < t and for the rounding of exp.
    resolution = 0.5 * math.log1p(width)
    return point(crossing(gap, failing, passing, resolution=resolution, gap_failing=gap_failing, gap_passing=gap_passing))
