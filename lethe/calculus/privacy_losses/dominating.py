r"""Discrete privacy losses that dominate a guarantee, ready to be composed by convolution.

`any_guarantee` makes its factors here before `distributions` convolves them. A pair (P, Q) dominates a mechanism if telling P from Q is at
least as easy as telling two neighbours apart; its discrete privacy loss is what can be convolved. Knots are the $\epsilon$ at which the
guarantee is evaluated, $h$ their distance.

A guarantee bounds the hockey-stick divergence $h(\gamma) = \sup_S P(S) - \gamma Q(S)$ of every ordered pair of neighbours at each
$\gamma = e^\epsilon \ge 1$, in both directions, hence also below 1: $h(\gamma) \le 1 - \gamma + \gamma\,\delta(-\log\gamma)$. Bounds at
any knots, connected, bound it everywhere. If pairs dominate the mechanisms, their product dominates the adaptive composition.

The chords between upper bounds $d_i$ of the hockey-stick divergence at $s_i = e^{ih}$ are the divergence of one discrete pair, with mass
$s_i(g_{i-1} - g_i)$ at $ih > 0$, $g_i = (d_i - d_{i+1})/(s_{i+1} - s_i)$; what is left at the last place is at infinity. With the falls
$f_i$ of the other direction the mass at $-ih$ is $f_{i-1} - f_i$, and that at 0 is $1 - d_0 - g_0 - f_0$. No number close to 1 is
subtracted from another, so every error of rounding is relative to the divergence itself, and is added to the masses.

*Rounding.* Masses are made from stored falls, whose differences are off by half a unit of themselves, and the sum of $p_i/s_i$ from i on
telescopes to $g_{i-1}$: errors do not add up. A chord is off by what its own fall is, $\epsilon/2 + 4$ units, and by what the $s_i$ beyond
are, $\epsilon/2 + 2$; for each $6 + \epsilon$ are allowed. At order 1 both divergences are one number, which the two sums of chords meet
only up to twice that: all masses but the one at 0 are raised by as much. Each mass is at least that of a discrete pair that dominates
exactly.

Reference: Doroshenko et al. 2022, arXiv:2207.04380, Algorithm 1; Zhu, Dong, Wang 2022, arXiv:2106.08567, Theorem 10.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.balls_in_bins.truncated import TruncatedAllocation
from lethe.calculus.conversions import profile_epsilon
from lethe.calculus.domains import FloatArray
from lethe.calculus.guarantees import GDP, GDPMixture, Guarantee, Tightest, WithSlack
from lethe.calculus.privacy_losses.distributions import LARGEST_LOSS, MOST_INTERVALS, Factor, Losses
from lethe.calculus.rounding import count_above
from lethe.calculus.tradeoffs import lower_hull

_EPS = float(np.finfo(np.float64).eps)
# What is left of delta eight deviations of a Gaussian loss away.
_TAIL = 1e-16
_MOST_KNOTS = 300_000
_MOST_EVALUATIONS = 10_000_000
# Profiles answered one level at a time may take ten milliseconds each.
_MOST_SLOW_KNOTS = 800
_LEAST_KNOTS = 4_000
_BINS = (BallsInBinsGaussian, TruncatedAllocation)  # both directions at many points at once


def dominating_factor(guarantee: Guarantee, count: int) -> Factor:
    """`count` mechanisms with this guarantee, as a factor of a composition: one's whole profile up to `LARGEST_LOSS`."""
    return Factor(
        width=partial(_widest, guarantee),
        # A Gaussian pair at distance mu has losses up to about 8 mu, and mu is their standard deviation.
        deviation=_widest(guarantee, _TAIL) / 8.0,
        count=count,
        losses=partial(_losses, guarantee),
    )


def _losses(guarantee: Guarantee, interval: float, tail: float) -> tuple[Losses, ...]:
    return dominating_losses(guarantee, interval, _widest(guarantee, tail))


def _widest(guarantee: Guarantee, tail: float) -> float:
    """Beyond it no more than `tail` of delta is left to lose, or about that."""
    if isinstance(guarantee, BallsInBinsGaussian):
        return min(guarantee.about(tail), LARGEST_LOSS)
    never = guarantee.delta(math.inf)
    return min(profile_epsilon(lambda epsilon: max(guarantee.delta(epsilon) - never, 0.0), tail), LARGEST_LOSS)


def dominating_losses(guarantee: Guarantee, interval: float, widest: float) -> tuple[Losses, ...]:
    r"""The privacy losses of a discrete pair that dominates everything with this guarantee: in both directions, or one for both.

    Losses are multiples of the interval, > 0; `widest` is the largest finite one wanted, and a smaller one is sound, because what is beyond
    counts as infinite.
    """
    last = max(1, int(count_above(widest / interval, MOST_INTERVALS)))
    count = _knots(guarantee)
    shares = np.linspace(0.0, 1.0, min(last, count) + 1)
    if last > count and isinstance(guarantee, _BINS):
        shares = np.square(shares)  # few knots: closer together where most of the losses are
    knots = np.unique(np.round(last * shares).astype(np.int64))
    levels: FloatArray = np.asarray(knots * interval, dtype=np.float64)
    ways = guarantee.directed_deltas(levels) if isinstance(guarantee, _BINS) else (guarantee.deltas(levels),)
    ways = tuple(np.minimum.accumulate(np.clip(deltas, 0.0, 1.0)) for deltas in ways)
    # Total variation is the delta at 0 of both directions; by convexity it is at most (e^epsilon - 1 + delta + delta') / (e^epsilon + 1).
    by_symmetry = np.tanh(0.5 * levels) + (ways[0] + ways[-1]) / (1.0 + np.exp(levels))
    variation = min(float(by_symmetry.min()) * (1.0 + 1e-15), *(float(deltas[0]) for deltas in ways))
    dots: list[Dots] = []
    for deltas in ways:
        deltas[0] = variation
        hull = slice(None) if isinstance(guarantee, GDP) else lower_hull(np.expm1(levels), deltas)
        dots.append(Dots(knots[hull], deltas[hull]))
    return connected_losses(dots[0], dots[-1], interval)[: len(dots)]


def _knots(guarantee: Guarantee) -> int:
    """How many knots are worth their time; fewer are only more pessimistic."""
    if isinstance(guarantee, GDP):
        return _MOST_KNOTS
    if isinstance(guarantee, GDPMixture):
        return min(max(_MOST_EVALUATIONS // len(guarantee.mus), _LEAST_KNOTS), _MOST_KNOTS)
    if isinstance(guarantee, WithSlack):
        return _knots(guarantee.guarantee)
    if isinstance(guarantee, Tightest):
        return min(_knots(part) for part in guarantee.parts)
    return _MOST_SLOW_KNOTS // 2 if isinstance(guarantee, _BINS) else _MOST_SLOW_KNOTS  # both directions are computed


class Dots(NamedTuple):
    r"""Upper bounds of a hockey-stick divergence at $\epsilon = k_ih$.

    The places $k_i$ are whole numbers that grow from 0, shape (n,), n >= 2, and so many are the bounds.
    """

    cells: NDArray[np.int64]
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

    cells: NDArray[np.int64]
    falls: FloatArray
    scales: FloatArray
    infinite: float
    width: float
    raised: float
    allowed: float


def _chords(dots: Dots, first: float, interval: float) -> _Chords:
    """The chords of one direction's bounds, made convex and falling first."""
    # Rounding may make the profile neither rise nor turn concave; to raise it is sound.
    rising = np.maximum.accumulate(dots.deltas[::-1])[::-1]
    rising[0] = first
    gaps = np.diff(dots.cells)
    drops, levels = -np.diff(rising), interval * dots.cells.astype(np.float64)
    orders, allowed = np.exp(levels), _EPS * (6.0 + levels)
    widths = orders[:-1] * (np.expm1(interval * gaps) if np.any(gaps > 1) else math.expm1(interval))
    falls = drops / widths * (1.0 + allowed[:-1])
    convex = np.maximum.accumulate(falls[::-1])[::-1]
    return _Chords(
        cells=dots.cells[1:],
        falls=convex,
        scales=orders[1:] * (1.0 + allowed[1:]),
        infinite=float(rising[-1]),
        width=float(widths[0]),
        raised=float((convex - falls) @ widths),
        allowed=2.0 * float(drops @ allowed[:-1]),
    )


def _one_way(up: _Chords, down: _Chords, centre: float, apart: float) -> Losses:
    """One direction's losses: masses from the chords of both directions, and the mass at 0."""
    lowest = -int(down.cells[-1])
    masses = np.zeros(int(up.cells[-1]) - lowest + 1)
    masses[-lowest - down.cells] = -np.diff(down.falls, append=0.0) * (apart + 6.0 * _EPS)
    masses[-lowest] = centre
    masses[up.cells - lowest] = -np.diff(up.falls, append=0.0) * up.scales * apart
    return Losses(lowest, masses, up.infinite * apart)
