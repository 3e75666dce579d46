r"""Discrete privacy losses from a profile on an even grid by connecting the dots, without rounding error.

The hockey-stick divergence of two laws as a function of $s = e^\epsilon$ is convex, so the chords between upper bounds $d_i$ of it at
$s_i = e^{ih}$ are above it, and they are the divergence of one discrete pair. With the falls $g_i = (d_i - d_{i+1})/(s_{i+1} - s_i)$,
its mass at $ih > 0$ is $s_i(g_{i-1} - g_i)$, and what is left at the last place is at infinity. For $\epsilon < 0$ the two laws change
places: $H_{1/s}(P\|Q) = 1 - 1/s + H_s(Q\|P)/s$, so with bounds $c_i$ of $H_s(Q\|P)$ and their falls $f_i$ the mass at $-ih$ is
$f_{i-1} - f_i$, and that at 0 is $1 - d_0 - g_0 - f_0$. No number close to 1 is subtracted from another.

**Rounding.** Masses are made from stored falls, whose differences are off by half a unit of themselves, and the sum of $p_i / s_i$ from
i on telescopes to $g_{i-1}$: errors do not add up, however many masses there are. A chord is then off by what its own fall is,
$\epsilon/2 + 4$ units, and by what the $s_i$ beyond are, $\epsilon/2 + 2$; for each of both $6 + \epsilon$ are allowed. At order 1 both
divergences are one number, which the two sums of chords meet only up to that allowance; it is counted as infinite.

Reference: Doroshenko et al. 2022, arXiv:2207.04380, Algorithm 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.calculus.privacy_losses.distributions import Losses

_EPS = float(np.finfo(np.float64).eps)


def connected_losses(above: FloatArray, below: FloatArray, interval: float) -> tuple[Losses, Losses]:
    r"""The losses, in both directions, of a discrete pair that dominates (P, Q) at every order.

    Args:
        above: upper bounds of $H_{e^\epsilon}(P\|Q)$ at 0, h, 2 h, ..., shape (n,), n >= 2.
        below: upper bounds of $H_{e^\epsilon}(Q\|P)$ at the same places, shape (m,), m >= 2.
        interval: $h > 0$.
    Returns:
        Losses of P against Q, and of Q against P. Each has mass 1 up to rounding, never less.
    Reference: module docstring.
    """
    both = max(float(above.max()), float(below.max()))
    up, down = _chords(above, both, interval), _chords(below, both, interval)
    raised, apart = max(up.raised, down.raised), max(up.allowed, down.allowed)
    for chords in (up, down):
        chords.falls[0] += (raised - chords.raised) / math.expm1(interval)
    centre = max(1.0 - both - raised - up.falls[0] - down.falls[0], 0.0) + 4.0 * _EPS
    return _one_way(up, down, centre, float(above[-1]) + apart, interval), _one_way(down, up, centre, float(below[-1]) + apart, interval)


class _Chords(NamedTuple):
    """How fast the chords fall, by how much the polygon was raised at order 1 to be convex, and what its rounding may be there."""

    falls: FloatArray
    raised: float
    allowed: float


def _chords(deltas: FloatArray, first: float, interval: float) -> _Chords:
    # Rounding may make the profile neither rise nor turn concave; to raise it is sound.
    rising = np.maximum.accumulate(deltas[::-1])[::-1]
    rising[0] = first
    drops, levels = -np.diff(rising), interval * np.arange(rising.size - 1.0)
    widths, allowed = np.exp(levels) * math.expm1(interval), _allowed(levels)
    falls = drops / widths * (1.0 + allowed)
    convex = np.maximum.accumulate(falls[::-1])[::-1]
    return _Chords(convex, float((convex - falls) @ widths), 2.0 * float(drops @ allowed))


def _one_way(up: _Chords, down: _Chords, centre: float, infinite: float, interval: float) -> Losses:
    levels = interval * np.arange(1.0, up.falls.size + 1.0)
    above = -np.diff(up.falls, append=0.0) * np.exp(levels) * (1.0 + _allowed(levels))
    below = -np.diff(down.falls, append=0.0) * (1.0 + 6.0 * _EPS)
    return Losses(-below.size, np.concatenate((below[::-1], [centre], above)), infinite)


def _allowed(levels: FloatArray) -> FloatArray:
    return _EPS * (6.0 + levels)
