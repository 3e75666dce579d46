r"""Expected excess of a sum of independent lognormal terms over a threshold, rounded up.

$$E\Big[\Big(\sum_j V_j - D\Big)_+\Big], \qquad V = aX - bX', \qquad X = e^{\mu g - \mu^2/2},\ X' = e^{-\mu g - \mu^2/2},\ g \sim N(0, 1)$$

$(\cdot)_+$ is convex and increasing, so whatever makes a term larger in the increasing convex order makes the answer larger.

1. A term above a ceiling is put at the ceiling, and what it loses is added to the answer: $(x + y)_+ \le (x)_+ + y$ for $y \ge 0$.
   A term below the grid is put at its lowest point.
2. Between two points of the grid a term is split so that its mean stays. With $C(k) = E(V-k)_+$, known in closed form, the chance to be
   put at the upper of the points k and k + h or above is $(C(k) - C(k+h))/h$. What rounding may take from it is added to it: that only
   raises terms.
3. The law of the sum is a product of powers of Fourier transforms, of laws tilted by $e^{\theta v}$, which makes the answer a sizeable part
   of what is computed, however small it is. What wraps around the grid only adds to the answer; what lies above the grid is added.
4. The rounding of the transforms, bounded in the 2-norm, times the 2-norm of what the law is multiplied by, is added.

All that can be seen in the answer is step 2: the square of the grid's interval.

Reference: Shaked & Shanthikumar 2007, Stochastic orders, chapters 3 and 4 (convex orders); Higham 2002, Accuracy and stability of numerical
algorithms, Theorem 24.2 (transforms).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from lethe.calculus.balls_in_bins.lognormal_grid import Grid, Term, Terms, grid_for
from lethe.calculus.domains import FloatArray
from lethe.calculus.rounding import MOST_COUNT, count_above

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


def log_mean_excess(terms: Terms, threshold: float, intervals: int) -> float:
    r"""Logarithm of $E(\sum_j V_j - D)_+$, rounded up; infinity where floating point would not carry it.

    Args:
        terms: the independent terms, equal ones together: $\mu \in [10^{-4}, 25]$, $a, b \in [0, 1]$ and not both 0.
        threshold: D.
        intervals: how many the grid has, a power of two; fewer only make the answer larger.
    Returns:
        A number, $-\infty$ or infinity, never nan.
    """
    if any(term.up == 0.0 or term.down == 0.0 for term in terms):
        return _on_grid(terms, threshold, intervals, 1.0)
    coarse = [_on_grid(terms, threshold, min(intervals, _COARSE), share) for share in _SHARES]
    best = next(share for share, logarithm in zip(_SHARES, coarse, strict=True) if logarithm <= min(coarse) + _TIE)
    if intervals <= _COARSE:
        return min(coarse)
    # Finer grids can do with ceilings that are a little higher.
    return min(_on_grid(terms, threshold, intervals, share) for share in (min(2.0 * best, 1.0), best))


def _on_grid(terms: Terms, threshold: float, intervals: int, share: float) -> float:
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        grid = grid_for(terms, threshold, intervals, share)
        answer = math.inf if grid is None else _log_mean_excess(terms, threshold, intervals, grid)
    return math.inf if math.isnan(answer) else answer  # nan is no bound


class _Law(NamedTuple):
    """The law of one term on the grid, tilted, as its transform: index i stands for i intervals below the ceiling."""

    transform: NDArray[np.complex128]
    log_total: float
    norm: float
    beyond: float
    cells: int


def _log_mean_excess(terms: Terms, threshold: float, intervals: int, grid: Grid) -> float:
    theta, step = grid.tilt, grid.interval
    highest = [term.copies * ceiling for term, ceiling in zip(terms, grid.ceilings, strict=True)]
    above = math.fsum(highest) - threshold
    size = math.fsum([abs(threshold), *map(abs, highest)])
    blur = 8.0 * _EPS * size
    if not abs(above) < _MOST_PLACES * step:
        return math.inf
    count = float(sum(term.copies for term in terms))
    modulus, phase = np.zeros(intervals // 2 + 1), np.zeros(intervals // 2 + 1)
    log_total, norms, beyond = 0.0, 0.0, 0.0
    # Factors of the answer that are off by so much altogether: every mass and every weight by some units, exponents by theirs.
    rounding = 64.0 * _EPS * count + _EPS * intervals + 8.0 * _EPS * theta * size
    for term, ceiling, lowest in zip(terms, grid.ceilings, grid.lowest, strict=True):
        law = _law(term, ceiling, lowest, grid, intervals)
        if law is None:
            return math.inf
        modulus += term.copies * np.minimum(np.log(np.abs(law.transform)), 0.0)
        phase += term.copies * np.angle(law.transform)
        log_total += term.copies * law.log_total
        norms += term.copies * law.norm
        beyond += term.copies * law.beyond
        rounding += 4.0 * _EPS * term.copies * (abs(law.log_total) + theta * step * law.cells)
    masses: FloatArray = fft.irfft(np.exp(modulus) * np.exp(1j * phase), intervals)
    # Places from where the sum is as far above the threshold as the grid reaches, or from its largest value, to the threshold.
    first = max(int(count_above((above - grid.reach) / step, MOST_COUNT)) - 1, 0) if above > grid.reach else 0
    last = int(count_above((above + blur) / step, MOST_COUNT)) if above > -blur else -1
    if last - first >= intervals:
        return math.inf
    places = np.arange(first, last + 1)
    over = np.maximum(above + blur - step * places, 0.0)
    weights = over * np.exp(-theta * over)
    norm = float(np.linalg.norm(masses))
    off = _EPS * (_TRANSFORM * math.log2(intervals) * (norms + norm) + _POWER * count * norm)
    answer = float(weights @ np.maximum(masses[places % intervals], 0.0)) + 1.1 * off * float(np.linalg.norm(weights))
    if first > 0:
        # x exp(-theta x) falls for x > 1 / theta, so this is the most that any place above the first may count.
        reached = above - step * first
        answer += reached * math.exp(-theta * reached) if theta * reached > 1.0 else math.inf
    logarithm = -math.inf if answer == 0.0 else math.log(answer) + theta * (above + 3.0 * blur) + log_total + rounding
    return logarithm if beyond == 0.0 else float(np.logaddexp(logarithm, math.log(beyond)))


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
    squared.

    Args:
        term: $\mu$, a and b.
        levels: k, of any shape, each off by a unit of itself and of `scale`.
        scale: see above.
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
