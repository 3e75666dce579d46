r"""What a quadratic model predicts of the mean of a run's last a iterates, in a direction in which each step contracts by f.

The mean is $\bar x = \frac1a\sum_{t>T-a} x_t$ with $x_t = f x_{t-1} + w_t$; a = 1 is the last iterate.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import interpolate, signal

from lethe.calculus.correlated.matrices import square_root
from lethe.calculus.correlated.sensitivity import sensitivity
from lethe.mechanisms.base import Array

_SHARES = (16, 8)  # of the steps: which means are looked at, beside a pass
_MOST_BANDS = 64
_LEAST = 1e-6
_AWAY = (*np.geomspace(_LEAST, 0.2, 10).tolist(), 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)  # the 1 - f that are looked at


def counts(slots: int, steps: int) -> tuple[int, ...]:
    """How many last iterates are looked at: 1, a pass, and shares of all.

    Args:
        slots: the steps of a pass.
        steps: T.
    """
    return tuple(sorted({1, min(slots, steps), *(max(steps // share, 1) for share in _SHARES)}))


def start_kept(factors: Array, steps: int, averaged: int) -> Array:
    r"""What is left of the start in the mean: $\frac1a\sum_{t>T-a} f^t$.

    Args:
        factors: f in [0, 1], of any shape.
        steps: T.
        averaged: a.
    """
    away = np.maximum(1.0 - factors, _LEAST)
    powers = (1.0 - away) ** (steps - averaged + 1)
    return np.asarray(powers * -np.expm1(averaged * np.log1p(-np.minimum(away, 1.0 - 1e-12))) / (averaged * away))


def noise_kept(factors: Array, steps: int, averaged: int, *, slots: int | None = None) -> Array:
    r"""The variance of the mean's noise: $\mathrm{sens}(C)^2\sum_j\big(\frac1a\sum_{i<a} r_{j-i}\big)^2$ with $r = C^{-1}$'s first
    column, filtered by $1/(1 - fz)$; 1 is what $\mathrm{sens}(C)^2$ and the variance of a draw are for independent noise.

    C is the square root of the prefix sums, cut to the steps of a pass and to at most 64 bands: near to what `lethe.correlate` finds.

    Args:
        factors: f in [0, 1], of any shape.
        steps: T.
        averaged: a.
        slots: the steps of a pass, of correlated noise; None: independent noise of variance 1.
    """
    logarithms, left = _kept_at(steps, averaged, slots)
    between = interpolate.PchipInterpolator(logarithms, left)  # within 2 %, where tests looked
    return np.asarray(np.exp(between(np.log(np.clip(1.0 - factors, _LEAST, 1.0)))))


@lru_cache(maxsize=8192)
def _kept_at(steps: int, averaged: int, slots: int | None) -> tuple[Array, Array]:
    """Logarithms of some 1 - f, ascending, and of what is left of the noise there."""
    inverse, square = _strategy(steps, slots)
    left: list[float] = []
    for one in _AWAY:
        reached = np.cumsum(signal.lfilter([1.0], [1.0, one - 1.0], inverse))
        reached[averaged:] -= reached[:-averaged].copy()
        left.append(float(np.square(reached / averaged).sum()) * square)
    return np.log(np.array(_AWAY)), np.log(np.array(left))


@lru_cache(maxsize=64)
def _strategy(steps: int, slots: int | None) -> tuple[Array, float]:
    """The first column of the inverse, and the squared sensitivity."""
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    if slots is None:
        return impulse, 1.0
    bands = min(steps, slots, _MOST_BANDS)
    column = square_root(steps, bands)
    return signal.lfilter([1.0], column[:bands], impulse), sensitivity(column, slots) ** 2
