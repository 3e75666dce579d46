r"""Ends of intervals: exact ones for a rate, from a number of successes in independent trials, and those that are found by search."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.audit.statistics.inputs import MOST_TRIALS, lowered, require_level
from lethe.calculus.crossing import crossing
from lethe.calculus.domains import FloatArray, require_count

# The quantile is good to about 1e-12 (tested against 40 digits); the margin is on the safe side of that.
_MARGIN = 1e-10


def clopper_pearson_upper(successes: int, trials: int, level: float) -> float:
    r"""Upper end of a one-sided interval for a rate, exact at every number of trials; rounded up.

    $$U(k, n, \alpha) = B^{-1}_{1-\alpha}(k+1,\ n-k), \qquad U(n, n, \alpha) = 1$$

    with the quantile $B^{-1}_u(a, b)$ of a beta law: the largest rate at which k successes or fewer still have probability $\alpha$.

    Args:
        successes: $k$ from 0 to n.
        trials: $n \ge 1$ independent trials with one rate.
        level: $\alpha$ from 1e-12 to 1/2, the most the probability can be that the rate is above the result.
    Returns:
        A rate in (0, 1].
    Raises:
        InputError: an argument is outside its range.
    Reference: Clopper & Pearson 1934, Biometrika 26, 404-413.
    """
    total = require_count("trials", trials, low=1, high=MOST_TRIALS)
    return float(_upper(require_count("successes", successes, low=0, high=total), total, require_level(level)))


def clopper_pearson_lower(successes: int, trials: int, level: float) -> float:
    r"""Lower end of a one-sided interval for a rate, $1 - U(n-k, n, \alpha)$; rounded down.

    Args:
        successes: $k$ from 0 to n.
        trials: $n \ge 1$ independent trials with one rate.
        level: $\alpha$ from 1e-12 to 1/2, the most the probability can be that the rate is below the result.
    Returns:
        A rate in [0, 1).
    Raises:
        InputError: an argument is outside its range.
    """
    total = require_count("trials", trials, low=1, high=MOST_TRIALS)
    count = require_count("successes", successes, low=0, high=total)
    chance = require_level(level)
    # The quantile itself, and not 1 - U, which has no digits left for a small rate.
    return 0.0 if count == 0 else float(special.betaincinv(count, total - count + 1, chance)) * (1.0 - _MARGIN)


@lru_cache(maxsize=16)
def upper_table(trials: int, level: float) -> FloatArray:
    r"""$U(k, n, \alpha)$ for $k = 0..n$, shape (n + 1,), for whoever looks at many thresholds at once. Read only."""
    table = _upper(np.arange(trials + 1), trials, level)
    table.flags.writeable = False
    return table


def largest_refuted(gap: Callable[[float], float], *, resolution: float, largest: float = math.inf) -> float:
    r"""The $\epsilon$ (or $\mu$) below which a test refutes; rounded down, and 0 if it refutes nothing.

    Args:
        gap: of a value $\ge 0$, at most 0 where it is refuted; it passes 0 once, and is above it in the end.
        resolution: where the search stops.
        largest: a value that is not exceeded.
    """
    if gap(0.0) > 0.0:
        return 0.0
    passing, failing = 0.0, 1.0
    while failing < largest and gap(failing) <= 0.0:
        passing, failing = failing, min(2.0 * failing, largest)
    return lowered(crossing(gap, failing, passing, resolution=resolution))


def _upper(successes: ArrayLike, trials: int, level: float) -> FloatArray:
    count = np.asarray(successes, dtype=np.float64)
    inside = special.betainccinv(count + 1.0, np.maximum(trials - count, 0.5), level)
    return np.where(count == trials, 1.0, np.minimum(inside * (1.0 + _MARGIN), 1.0))
