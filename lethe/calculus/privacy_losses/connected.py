"""Discrete privacy losses from a profile on an even grid by connecting the dots, without rounding error.

The chords between upper bounds $d_i$ of the hockey-stick divergence at $s_i = e^{ih}$ are the divergence of one discrete pair, with mass
$s_i(g_{i-1} - g_i)$ at $ih > 0$, $g_i = (d_i - d_{i+1})/(s_{i+1} - s_i)$; what is left at the last place is at infinity. With the falls
$f_i$ of the other direction the mass at $-ih$ is $f_{i-1} - f_i$, and that at 0 is $1 - d_0 - g_0 - f_0$. No number close to 1 is
subtracted from another, so every error of rounding is relative to the divergence itself, and is added to the masses (docs/theory.md,
section 7).

Reference: Doroshenko et al. 2022, arXiv:2207.04380, Algorithm 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import FloatArray
from lethe.calculus.privacy_losses.distributions import Losses

_EPS = float(np.finfo(np.float64).eps)


class Dots(NamedTuple):
    r"""Upper bounds of a hockey-stick divergence at $\epsilon = k_ih$.

    The places $k_i$ are whole numbers that grow from 0, shape (n,), n >= 2, and so many are the bounds.
    """

    places: NDArray[np.int64]
    deltas: FloatArray


def even_dots(deltas: FloatArray) -> Dots:
    """Bounds at 0, h, 2 h, ..."""
    return Dots(np.arange(deltas.size), deltas)


def connected_losses(above: Dots, below: Dots, interval: float) -> tuple[Losses, Losses]:
    r"""The losses, in both directions, of a discrete pair that dominates (P, Q) at every order.

    `above` bounds $H_{e^\epsilon}(P\|Q)$ and `below` $H_{e^\epsilon}(Q\|P)$; the interval is $h > 0$. Losses of P against Q, and of Q
    against P, each of mass 1 up to rounding, never less.
    """
    both = max(float(above.deltas.max()), float(below.deltas.max()))
    up, down = _chords(above, both, interval), _chords(below, both, interval)
    raised, apart = max(up.raised, down.raised), 1.0 + max(up.allowed, down.allowed) / max(both, 5e-324)
    for chords in (up, down):
        chords.falls[0] += (raised - chords.raised) / chords.width
    centre = max(1.0 - both - raised - up.falls[0] - down.falls[0], 0.0) + 4.0 * _EPS
    return _one_way(up, down, centre, apart), _one_way(down, up, centre, apart)


class _Chords(NamedTuple):
    """How fast the chords fall up to each place, by how much the polygon was raised at order 1 to be convex, and its rounding there."""

    places: NDArray[np.int64]
    falls: FloatArray
    scales: FloatArray
    infinite: float
    width: float
    raised: float
    allowed: float


def _chords(dots: Dots, first: float, interval: float) -> _Chords:
    # Rounding may make the profile neither rise nor turn concave; to raise it is sound.
    rising = np.maximum.accumulate(dots.deltas[::-1])[::-1]
    rising[0] = first
    gaps = np.diff(dots.places)
    drops, levels = -np.diff(rising), interval * dots.places.astype(np.float64)
    orders, allowed = np.exp(levels), _EPS * (6.0 + levels)
    widths = orders[:-1] * (np.expm1(interval * gaps) if np.any(gaps > 1) else math.expm1(interval))
    falls = drops / widths * (1.0 + allowed[:-1])
    convex = np.maximum.accumulate(falls[::-1])[::-1]
    return _Chords(
        places=dots.places[1:],
        falls=convex,
        scales=orders[1:] * (1.0 + allowed[1:]),
        infinite=float(rising[-1]),
        width=float(widths[0]),
        raised=float((convex - falls) @ widths),
        allowed=2.0 * float(drops @ allowed[:-1]),
    )


def _one_way(up: _Chords, down: _Chords, centre: float, apart: float) -> Losses:
    lowest = -int(down.places[-1])
    masses = np.zeros(int(up.places[-1]) - lowest + 1)
    masses[-lowest - down.places] = -np.diff(down.falls, append=0.0) * (apart + 6.0 * _EPS)
    masses[-lowest] = centre
    masses[up.places - lowest] = -np.diff(up.falls, append=0.0) * up.scales * apart
    return Losses(lowest, masses, up.infinite * apart)
