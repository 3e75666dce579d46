r"""Expected excess of a sum of independent lognormal terms over a threshold, rounded up.
The profile of a record in a secret batch (`profile` calls this) is one: $X$, $X'$ are a batch's likelihood ratios, $\mu$ its cost.

$$E\Big[\Big(\sum_j V_j - D\Big)_+\Big], \qquad V = aX - bX', \qquad X = e^{\mu g - \mu^2/2},\ X' = e^{-\mu g - \mu^2/2},\ g \sim N(0, 1)$$

By laws that are larger in the increasing convex order, and a Fourier transform: (i) of a term above a ceiling $(x + y)_+ \le (x)_+ + y$;
(ii) between two points of a grid a term is split with its mean kept: the chance of $k + h$ or above is $(C(k) - C(k+h))/h$, $C(k) =
E(V-k)_+$; (iii) tilted by $e^{\theta v}$, what wraps around is nonnegative and only adds, and above the grid $xe^{-\theta x}$ is at its end
at most; (iv) rounding (Higham 2002, Theorem 24.2) is added by Cauchy and Schwarz. Every grid gives a bound; for a tight one the tilt puts
the sum at the threshold on average. Reference: Shaked & Shanthikumar 2007, Stochastic orders, chapters 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from lethe.calculus.domains import FloatArray
from lethe.calculus.rounding import MOST_COUNT, count_above

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
_TILT_SHARES = np.array([0.125, 0.25, 0.5, 1.0, 2.0, 4.0])


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

    A ceiling should be so high that one term at it brings the sum above the threshold, but for what is rare, because what a term has above
    its ceiling is counted in full; and no higher, because the tilt makes much of what is there. `share` is of the usual height of ceilings
    above the middle of a term: where terms have a long tail below as well, less is better.
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
    length = max(reach + max(cut.reach(tilt, threshold, -1, _BELOW), 0.0), cut.reach(tilt, threshold, 1, _FAR_ABOVE))
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
        columns = np.argmax(weights > chance * weights[:, -1:], axis=1)
        return self.values[np.arange(columns.size), np.maximum(columns - 1, 0)]

    def tilt(self, threshold: float, largest: float) -> float:
        """The tilt under which the sum is at the threshold on average; where that is small, up to `largest`, if it costs a factor of 20."""
        low, high = math.log(largest) - _SMALLEST, math.log(largest)
        step = 1.0
        for _ in range(_MOST_DOUBLINGS):
            if not self.mean(math.exp(high)) < threshold:
                break
            low, high, step = high, min(high + step, _LARGEST_EXPONENT), 2.0 * step
        best = _last(lambda tilt: self.mean(tilt) < threshold, low, high)
        if best >= largest:
            return best
        ceiling = self.log_mean(best) - best * threshold + _COST
        return _last(lambda tilt: self.log_mean(tilt) - tilt * threshold < ceiling, math.log(best), math.log(largest))

    def reach(self, tilt: float, threshold: float, way: int, rarity: float) -> float:
        """How far above the threshold (way 1, or below it: -1) the tilted sum lies with a chance above exp(-rarity): Chernoff's bound."""
        log_mean, shares = self.log_mean(tilt), (tilt * _TILT_SHARES).tolist()
        return min((self.log_mean(tilt + way * share) - log_mean - way * share * threshold + rarity) / share for share in shares)


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


_EPS = float(np.finfo(np.float64).eps)
# Normal tails at g are off by about g^2 units; mean excesses were off by less than half of this, against 600 digits. Tails beyond 38
# underflow.
_UNITS, _UNITS_A_SQUARE, _LARGEST_SQUARE, _UNDERFLOW = 32.0, 2.0, 1500.0, 1e-310
# A transform of n numbers is off by at most 4 log2(n) units in the 2-norm (Higham); twice that is allowed. A k-th power, taken by
# logarithms, is off by at most 2 (pi + 1) k units and a few more.
_TRANSFORM, _POWER = 8.0, 16.0
_MOST_FOLDS, _MOST_PLACES = 2, 2.0**52
# Ceilings tried where terms have two long tails, on a coarse grid.
_COARSE = 2**12
_SHARES = tuple(4.0**-power for power in range(7))
_TIE = 1e-6
TOGETHER = 12
"""Problems that share what is best for the middle one of them."""


def log_mean_excess(terms: Terms, threshold: float, intervals: int) -> float:
    r"""Logarithm of $E(\sum_j V_j - D)_+$, rounded up; infinity where floating point would not carry it.

    Equal terms stand together, with $\mu \in [10^{-4}, 25]$, $a, b \in [0, 1]$ and not both 0. `intervals` is a power of two; fewer only
    make the answer larger, which may be $-\infty$ and is never nan.
    """
    share = _best_share(terms, threshold, intervals)
    # Finer grids can do with ceilings that are a little higher.
    shares = (share, min(2.0 * share, 1.0)) if share < 1.0 and intervals > _COARSE else (share,)
    return min(_on_grid(terms, threshold, intervals, trial) for trial in shares)


def log_mean_excesses(problems: Sequence[tuple[Terms, float]], intervals: int) -> list[float]:
    """`log_mean_excess` of many pairs of terms and a threshold, each close to the next: a little larger, and faster.

    What is best for one is taken for its neighbours, and where all have the same terms, one sum on one grid serves them.
    """
    excesses: list[float] = []
    for first in range(0, len(problems), TOGETHER):
        group = problems[first : first + TOGETHER]
        terms, middle = group[len(group) // 2]
        share = _best_share(terms, middle, intervals)
        if all(candidate == terms for candidate, _ in group):
            with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
                total = _sum_on_grid(terms, middle, intervals, share)
                excesses += [math.inf if total is None else _number(total.log_mean_excess(threshold)) for _, threshold in group]
        else:
            excesses += [_on_grid(trial, threshold, intervals, share) for trial, threshold in group]
    return excesses


def _best_share(terms: Terms, threshold: float, intervals: int) -> float:
    """Of the heights of ceilings that are tried on a coarse grid, the highest one that is about the best."""
    if any(term.up == 0.0 or term.down == 0.0 for term in terms):
        return 1.0
    coarse = [_on_grid(terms, threshold, min(intervals, _COARSE), share) for share in _SHARES]
    return next(share for share, logarithm in zip(_SHARES, coarse, strict=True) if logarithm <= min(coarse) + _TIE)


def _on_grid(terms: Terms, threshold: float, intervals: int, share: float) -> float:
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        total = _sum_on_grid(terms, threshold, intervals, share)
        return math.inf if total is None else _number(total.log_mean_excess(threshold))


def _number(logarithm: float) -> float:
    return math.inf if math.isnan(logarithm) else logarithm  # nan is no bound


class _Law(NamedTuple):
    """The law of one term on the grid, tilted, as its transform: index i stands for i intervals below the ceiling."""

    transform: NDArray[np.complex128]
    log_total: float
    norm: float
    beyond: float
    cells: int


class _Sum(NamedTuple):
    r"""The law of the sum of the terms on the grid, tilted; index i stands for i intervals below `highest`, all terms at their ceilings.

    Masses were divided by $e^{\text{log_total}}$; `off` is what rounding may have moved them by in the 2-norm, `rounding` a factor of all
    of them, as a logarithm, and `beyond` what the terms have above their ceilings, in the mean. Sums up to `reach` above a threshold are
    looked at.
    """

    grid: Grid
    reach: float
    masses: FloatArray
    highest: float
    size: float
    log_total: float
    off: float
    rounding: float
    beyond: float

    def log_mean_excess(self, threshold: float) -> float:
        """Logarithm of the mean excess of the sum over a threshold, rounded up."""
        theta, step, intervals = self.grid.tilt, self.grid.interval, self.masses.size
        size, above = self.size + abs(threshold), self.highest - threshold
        blur = 8.0 * _EPS * size
        if not abs(above) < _MOST_PLACES * step:
            return math.inf
        # Places from where the sum is as far above the threshold as the grid reaches, or from its largest value, to the threshold.
        first = max(int(count_above((above - self.reach) / step, MOST_COUNT)) - 1, 0) if above > self.reach else 0
        last = int(count_above((above + blur) / step, MOST_COUNT)) if above > -blur else -1
        if last - first >= intervals:
            return math.inf
        cells = np.arange(first, last + 1)
        over = np.maximum(above + blur - step * cells, 0.0)
        weights = over * np.exp(-theta * over)
        answer = float(weights @ np.maximum(self.masses[cells % intervals], 0.0)) + self.off * float(np.linalg.norm(weights))
        if first > 0:
            # x exp(-theta x) falls for x > 1 / theta, so this is the most that any place above the first may count.
            reached = above - step * first
            answer += reached * math.exp(-theta * reached) if theta * reached > 1.0 else math.inf
        exponent = theta * (above + 3.0 * blur) + self.log_total + self.rounding + 8.0 * _EPS * theta * size
        logarithm = -math.inf if answer == 0.0 else math.log(answer) + exponent
        return logarithm if self.beyond == 0.0 else float(np.logaddexp(logarithm, math.log(self.beyond)))


def _sum_on_grid(terms: Terms, threshold: float, intervals: int, share: float) -> _Sum | None:
    """The law of the sum on the grid that suits the threshold; None where floating point would not carry it."""
    grid = grid_for(terms, threshold, intervals, share)
    if grid is None:
        return None
    highest = [term.copies * ceiling for term, ceiling in zip(terms, grid.ceilings, strict=True)]
    room = math.fsum(highest) - threshold
    if not abs(room) < _MOST_PLACES * grid.interval:
        return None
    count = float(sum(term.copies for term in terms))
    modulus, phase = np.zeros(intervals // 2 + 1), np.zeros(intervals // 2 + 1)
    log_total, norms, beyond = 0.0, 0.0, 0.0
    # Factors of the answer that are off by so much altogether: every mass and every weight by some units, exponents by theirs.
    rounding = 64.0 * _EPS * count + _EPS * intervals
    for term, ceiling, lowest in zip(terms, grid.ceilings, grid.lowest, strict=True):
        law = _law(term, ceiling, lowest, grid, intervals)
        if law is None:
            return None
        modulus += term.copies * np.minimum(np.log(np.abs(law.transform)), 0.0)
        phase += term.copies * np.angle(law.transform)
        log_total += term.copies * law.log_total
        norms += term.copies * law.norm
        beyond += term.copies * law.beyond
        rounding += 4.0 * _EPS * term.copies * (abs(law.log_total) + grid.tilt * grid.interval * law.cells)
    masses: FloatArray = fft.irfft(np.exp(modulus) * np.exp(1j * phase), intervals)
    norm = float(np.linalg.norm(masses))
    off = 1.1 * _EPS * (_TRANSFORM * math.log2(intervals) * (norms + norm) + _POWER * count * norm)
    reach = math.inf if grid.reach >= room else grid.reach  # where all sums above the threshold are on the grid, of others too
    return _Sum(grid, reach, masses, math.fsum(highest), math.fsum(map(abs, highest)), log_total, off, rounding, beyond)


def _law(term: Term, ceiling: float, lowest: float, grid: Grid, intervals: int) -> _Law | None:
    cells = int(count_above((ceiling - lowest) / grid.interval, MOST_COUNT)) + 2
    if cells > _MOST_FOLDS * intervals:
        return None
    steps = np.arange(cells, dtype=np.float64)
    calls, errors = mean_excess(term, ceiling - grid.interval * steps, abs(ceiling))
    # The chance to be at most i intervals below the ceiling. It does not fall with i, as a chance does not.
    chances = (calls[1:] - calls[:-1] + errors[1:] + errors[:-1]) / grid.interval
    chances = np.minimum(np.maximum.accumulate(chances), 1.0)
    tilted = np.diff(chances, prepend=0.0, append=1.0) * np.exp(-grid.tilt * grid.interval * steps)
    total = float(tilted.sum())
    tilted: FloatArray = np.pad(tilted / total, (0, -cells % intervals)).reshape(-1, intervals).sum(axis=0)
    transform: NDArray[np.complex128] = fft.rfft(tilted)
    # The mean excess is no less than 0, whatever rounding made of it.
    beyond = float(np.maximum(calls[0], 0.0) + errors[0])
    return _Law(transform, math.log(total), float(np.linalg.norm(tilted)), beyond, cells)


def mean_excess(term: Term, levels: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    r"""$C(k) = E(V-k)_+$ at many k, and by how much rounding may have moved each.

    With g where $V = k$: $C(k) = a\Phi(\mu - g) - b\Phi(-\mu - g) - k\Phi(-g)$. This is largest at the exact g, so an error in g enters
    squared. The levels k have any shape, each off by a unit of itself and of `scale`.
    """
    mu, up, down = term.mu, term.up, term.down
    if down == 0.0:
        log_x = np.log(np.maximum(levels, 0.0)) - math.log(up)
    elif up == 0.0:
        log_x = math.log(down) - mu * mu - np.log(np.maximum(-levels, 0.0))
    else:
        # The positive root of a x^2 - k x - b exp(-mu^2), without a difference of like numbers.
        root = np.hypot(levels, 2.0 * math.sqrt(up) * math.sqrt(down) * math.exp(-0.5 * mu * mu))
        log_sum = np.log(np.abs(levels) + root)
        log_x = np.where(levels > 0.0, log_sum - math.log(2.0 * up), math.log(2.0 * down) - mu * mu - log_sum)
    g = (log_x + 0.5 * mu * mu) / mu
    raised, lowered, tail = up * special.ndtr(mu - g), down * special.ndtr(-mu - g), special.ndtr(-g)
    units = _EPS * (_UNITS + _UNITS_A_SQUARE * np.minimum(np.square(g), _LARGEST_SQUARE))
    sizes = np.abs(levels) + scale
    return raised - lowered - levels * tail, units * (raised + lowered + sizes * tail) + _UNDERFLOW * (up + down + sizes)
