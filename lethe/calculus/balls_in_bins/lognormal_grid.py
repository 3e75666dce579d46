r"""The grid on which sums of lognormal terms are convolved. Every grid gives a bound; this one gives a tight bound.

The law of each term is looked at in some thousand points. The tilt is the one under which the sum lies at the threshold on average, as in
Chernoff's bound, and the grid reaches as far as the tilted sum does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from lethe.calculus.domains import FloatArray

_NODES = np.linspace(-14.0, 37.0, 1021)
_WEIGHTS = np.exp(-0.5 * np.square(_NODES)) / np.exp(-0.5 * np.square(_NODES)).sum()
# What happens once in a thousand sums is left out where their ordinary spread is wanted.
_RARE = 1e-3
_SPREADS = 7.0
# exp(-40) of the answer may be left above the grid, where it is added; exp(-30) of the sum may wrap around from below, exp(-12) from above.
_ABOVE, _BELOW, _FAR_ABOVE = 40.0, 30.0, 12.0
_FACTORS = (1.0, 0.8, 0.6)
_BISECTIONS, _MOST_DOUBLINGS = 14, 8
# A tilt may be exp(-12) times the one wanted, and may be raised for a factor of exp(3) in what is computed.
_SMALLEST, _COST = 12.0, 3.0
# Beyond these floating point is left alone.
_LEAST_SCALE, _LARGEST_EXPONENT = 1e-280, 690.0
_SHARES = np.array([0.125, 0.25, 0.5, 1.0, 2.0, 4.0])


class Term(NamedTuple):
    r"""`copies` independent ones of $aX - bX'$ with $X = e^{\mu g-\mu^2/2}$, $X' = e^{-\mu g-\mu^2/2}$; `up` is a, `down` is b."""

    mu: float
    copies: int
    up: float
    down: float


Terms = tuple[Term, ...]


class Grid(NamedTuple):
    r"""Points `interval` apart, down from a ceiling for each term; the tilt $\theta$; how far above the threshold sums are looked at."""

    tilt: float
    interval: float
    reach: float
    ceilings: tuple[float, ...]
    lowest: tuple[float, ...]


def grid_for(terms: Terms, threshold: float, intervals: int, share: float) -> Grid | None:
    """A grid of so many intervals for the sum of the terms near the threshold and above, or None if floating point has none.

    A ceiling should be so high that one term at it brings the sum above the threshold, but for what is rare, because what a term has
    above its ceiling is counted in full; and no higher, because the tilt makes much of what is there.

    Args:
        terms: the independent terms.
        threshold: where the sum's excess begins.
        intervals: of the whole grid.
        share: of the usual height of ceilings above the middle of a term. Where terms have a long tail below as well, less is better.
    """
    counts = np.array([float(term.copies) for term in terms])
    values = np.array([_values(term, _NODES) for term in terms])
    rare = -float(special.ndtri(_RARE / float(counts.sum())))
    low, middle, high = np.array([_values(term, np.array([-rare, 0.0, rare])) for term in terms]).T
    usual = np.clip(values, low[:, None], high[:, None])
    means = usual @ _WEIGHTS
    spread = math.sqrt(float(counts @ (np.square(usual - means[:, None]) @ _WEIGHTS)))
    scale = spread + max(threshold - float(counts @ means), 0.0)
    if not (_LEAST_SCALE < scale < 1.0 / _LEAST_SCALE and math.isfinite(threshold)):
        return None
    ceilings = np.minimum(middle + share * (scale + (_SPREADS - 1.0) * spread), values[:, -1])
    room = float(counts @ ceilings) - threshold
    if not room > 0.0:
        return None if math.isnan(room) else Grid(1.0 / scale, scale, 0.0, tuple(ceilings.tolist()), tuple(ceilings.tolist()))
    probe = _Probe(counts, np.minimum(values, ceilings[:, None]), ceilings)
    tilt = probe.tilt(threshold, 2.0 / scale)
    # A little less tilt than the best of all may keep the sum from lying far above the threshold, where a single term brings it there.
    grids = [_tilted(probe, threshold, intervals, room, factor * tilt) for factor in _FACTORS]
    best = min(grids, key=lambda grid: grid.interval)
    return best if 0.0 < best.interval < math.inf and best.tilt < math.inf else None


def _tilted(probe: _Probe, threshold: float, intervals: int, room: float, tilt: float) -> Grid:
    reach = min(_ABOVE / tilt, room)
    lowest = probe.lowest(tilt, math.exp(-_BELOW) / float(probe.counts.sum()))
    cut = _Probe(probe.counts, np.maximum(probe.values, lowest[:, None]), probe.ceilings)
    # What lies outside wraps around: from below to above the reach, from above to below the threshold, where nothing is counted.
    here = cut.log_mean(tilt)
    length = max(reach + max(cut.depth(tilt, here, threshold), 0.0), cut.height(tilt, here, threshold))
    return Grid(tilt, length / (intervals - 4), reach, tuple(probe.ceilings.tolist()), tuple(lowest.tolist()))


class _Probe(NamedTuple):
    """The laws of the terms in some thousand points: values of shape (terms, nodes), ascending."""

    counts: FloatArray
    values: FloatArray
    ceilings: FloatArray

    def tilted(self, tilt: float) -> FloatArray:
        """Weights of the nodes, relative to the ceiling."""
        return np.exp(tilt * (self.values - self.ceilings[:, None])) * _WEIGHTS

    def log_mean(self, tilt: float) -> float:
        """The logarithm of the mean of exp(tilt x sum)."""
        return float(self.counts @ (np.log(self.tilted(tilt).sum(axis=1)) + tilt * self.ceilings))

    def mean(self, tilt: float) -> float:
        """The mean of the tilted sum."""
        weights = self.tilted(tilt)
        return float(self.counts @ ((weights * self.values).sum(axis=1) / weights.sum(axis=1)))

    def lowest(self, tilt: float, chance: float) -> FloatArray:
        """Below these a term lies with less than this chance, tilted."""
        weights = np.cumsum(self.tilted(tilt), axis=1)
        places = np.argmax(weights > chance * weights[:, -1:], axis=1)
        return self.values[np.arange(places.size), np.maximum(places - 1, 0)]

    def tilt(self, threshold: float, wanted: float) -> float:
        """The tilt under which the sum is at the threshold on average; where that is small, up to `wanted`, if it costs a factor of 20."""
        low, high = math.log(wanted) - _SMALLEST, math.log(wanted)
        step = 1.0
        for _ in range(_MOST_DOUBLINGS):
            if not self.mean(math.exp(high)) < threshold:
                break
            low, high, step = high, min(high + step, _LARGEST_EXPONENT), 2.0 * step
        best = _last(lambda tilt: self.mean(tilt) < threshold, low, high)
        if best >= wanted:
            return best
        most = self.log_mean(best) - best * threshold + _COST
        return _last(lambda tilt: self.log_mean(tilt) - tilt * threshold < most, math.log(best), math.log(wanted))

    def depth(self, tilt: float, here: float, threshold: float) -> float:
        """How far below the threshold the tilted sum lies with a chance above exp(-30), by Chernoff's bound; `here` is its log_mean."""
        shares = (tilt * _SHARES).tolist()
        return min((self.log_mean(tilt - share) - here + share * threshold + _BELOW) / share for share in shares)

    def height(self, tilt: float, here: float, threshold: float) -> float:
        """How far above with a chance above exp(-12)."""
        shares = (tilt * _SHARES).tolist()
        return min((self.log_mean(tilt + share) - here - share * threshold + _FAR_ABOVE) / share for share in shares)


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number, between two logarithms, at which what holds at the lower end still does; the upper end if it does there."""
    if holds(math.exp(high)):
        return math.exp(high)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(math.exp(middle)) else (low, middle)
    return math.exp(low)


def _values(term: Term, nodes: FloatArray) -> FloatArray:
    half = 0.5 * term.mu * term.mu
    return term.up * np.exp(term.mu * nodes - half) - term.down * np.exp(-term.mu * nodes - half)
