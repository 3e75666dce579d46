r"""What a quadratic model predicts of a run's last iterates: what is left in them of the start and of the noise.

Of the mean of the last a iterates, $\bar x = \frac1a\sum_{t>T-a} x_t$ with $x_t = f x_{t-1} + w_t$ in a direction in which each step
contracts by f; a = 1 is the last iterate.

Noise at pass ends wanes: of u passes from the end its variance goes like $u^{1/3}$. Under composition, noise whose harm is
$\sum_p a_p\tau_p^2$ is best with $\tau_p^2 \propto a_p^{-1/2}$, by Cauchy and Schwarz. What a direction of curvature h has left of noise
of a time t ago is $e^{-2ht}$; over a spectrum that falls like $j^{-2}$ that makes $a \propto t^{-1/2}$, over one that falls faster almost
$t^{-1}$: exponents of a quarter and of a half. A third lies between; on generated data both were as good.
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
_EXPONENT = 1.0 / 3.0
_RATES = np.geomspace(1e-9, 100.0, 160)  # -2 log of what a pass keeps of a distance: where sums are looked at


def counts(slots: int, steps: int) -> tuple[int, ...]:
    """How many last iterates are looked at: 1, a pass of `slots` steps, and shares of all steps."""
    return tuple(sorted({1, min(slots, steps), *(max(steps // share, 1) for share in _SHARES)}))


def start_kept(factors: Array, steps: int, averaged: int) -> Array:
    r"""What is left of the start in the mean: $\frac1a\sum_{t>T-a} f^t$.

    Args:
        factors: f in [0, 1], of any shape.
        steps, averaged: T and a.
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


@lru_cache(maxsize=32)
def waning_variances(passes: int) -> Array:
    r"""$v_p$ in the order of the passes, with $\sum_p 1/v_p = 1$: the sensitivity of a pass times $\sqrt{v_p}/\mu$ is $\mu$-GDP in all.

    Equal noise would have $v_p = P$.
    """
    left = np.arange(passes, 0, -1) - 0.5
    shape = left**_EXPONENT
    found: Array = shape * np.sum(1.0 / shape)
    found.flags.writeable = False
    return found


def waning_kept(decay: Array, passes: int) -> Array:
    r"""$\sum_p v_p f^{2(P-p)}$: the last iterate's variance, for passes of sensitivity over $\mu$ of 1 that keep f of a distance."""
    rates = -2.0 * np.log(np.maximum(decay, 1e-20))
    logarithms, sums = _sums(passes)
    return np.exp(np.interp(np.log(np.maximum(rates, _RATES[0])), logarithms, sums))


@lru_cache(maxsize=32)
def _sums(passes: int) -> tuple[Array, Array]:
    """Logarithms of the rates, and of the sums there; between them a line is within 1 %."""
    later = np.arange(passes - 1, -1, -1)
    return np.log(_RATES), np.log(np.exp(-_RATES[:, None] * later) @ waning_variances(passes))
