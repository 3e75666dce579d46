r"""Sums of independent discrete laws by Fourier transform, tilted exponentially so that their tails keep their digits.

`distributions` calls it to compose mechanisms: the privacy loss of a composition is the sum of those of its parts. A law is a list of
probabilities on a grid, s the tilt, K the logarithm of a mean of $e^{sx}$.

A transform is off by some units of rounding of the whole, which is more than a tail of $10^{-12}$ is after a thousand terms. So each law is
multiplied by $e^{sx}$ and divided by $M(s) = \sum_x p_xe^{sx}$: the sum of the tilted laws is the tilted sum, and with $sK'(s) - K(s) = t$,
$K = \log M$ of the sum, it lies where the sum has mass about $e^{-t}$. Of privacy losses, with tilted masses $\tilde p_l$,

$$\delta(\epsilon) = \delta_\infty + e^{K-s\epsilon}\sum_{l>\epsilon}\tilde p_l\,e^{-s(l-\epsilon)}(1-e^{\epsilon-l}).$$

Each $\tilde p_l$ is multiplied by at most 1, so what the transform loses, what lies beside its grid and what wraps around cost
$e^{K-s\epsilon}$ times as much as they weigh: a share of Chernoff's bound of $\delta$. Every s gives a bound. Reference: Esscher 1932.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from lethe.calculus.domains import FloatArray

ComplexArray = NDArray[np.complex128]
_EPS = float(np.finfo(np.float64).eps)
# Orders tried, in units of the best one for a normal law of the same variance; for heavy tails smaller ones are better.
_RATIO, _FIRST_TRIED, _MOST_TRIED = 256.0 ** (1.0 / 14.0), 2, 200
# What is lighter than e^-70 of the whole is lost in the transform.
_LIGHT = 70.0
_MOST_BLOCKS, _FLATTEST, _STEEPEST = 800, 1e-12, 30.0


class Law(NamedTuple):
    """Independent copies of masses at the places `lowest`, `lowest` + 1, ..."""

    lowest: int
    masses: FloatArray
    copies: int


class Tilted(NamedTuple):
    r"""Laws multiplied by $e^{sx}$ and made to weigh 1, with the logarithms of their masses.

    `log_scale` is $K(s)$ of all copies together, which was divided out, rounded up by what the masses may be off.
    """

    laws: tuple[Law, ...]
    logs: tuple[FloatArray, ...]
    log_scale: float


def tilted(laws: Sequence[Law], slope: float) -> Tilted:
    r"""The laws, tilted by $s$ = `slope` >= 0 a place. Masses that rounding made negative count as 0."""
    parts, logs, scales = list[Law](), list[FloatArray](), list[float]()
    for lowest, masses, count in laws:
        with np.errstate(divide="ignore", under="ignore"):
            exponents = np.log(np.maximum(masses, 0.0)) + slope * np.arange(float(lowest), lowest + masses.size)
            top = float(exponents.max())
            weights = np.exp(exponents - top)
        total = float(weights.sum())
        parts.append(Law(lowest, weights / total, count))
        logs.append(exponents - (top + math.log(total)))
        scale = top + math.log(total)
        # Each exponent is off by some units of its two terms, which are no larger than this where there is any weight.
        steepest = slope * max(-lowest, lowest + masses.size)
        scales.append(count * (scale + 8.0 * _EPS * (2.0 * steepest + abs(top) + _LIGHT)))
    return Tilted(tuple(parts), tuple(logs), math.fsum(scales))


def steepness(laws: Sequence[Law], exponent: float) -> float:
    r"""About the $s \ge 0$ a place with $sK'(s) - K(s) = t$ = `exponent`; less where no place of the sum is that rare.

    It only chooses the tilt, and every tilt is sound; so the masses are pooled in blocks that grow away from loss 0.
    """
    pooled = [(*_pooled(law), law.copies) for law in laws]

    def rarity(slope: float) -> float:
        total = 0.0
        for indices, logs, count in pooled:
            exponents = logs + slope * indices
            top = float(exponents.max())
            weights = np.exp(exponents - top)
            whole = float(weights.sum())
            total += count * (slope * float(weights @ indices) / whole - top - math.log(whole))
        return total

    low, high = 0.0, 1e-3
    while rarity(high) < exponent:
        low, high = high, 4.0 * high
        if high > _STEEPEST:
            return _STEEPEST
    # Where much of the mass is infinite, no tilt at all leaves as little as asked.
    while low == 0.0 and high > _FLATTEST and rarity(0.25 * high) > exponent:
        high *= 0.25
    low = 0.25 * high
    for _ in range(7):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rarity(middle) < exponent else (low, middle)
    return low


def _pooled(law: Law) -> tuple[FloatArray, FloatArray]:
    """Mean place and logarithm of the mass of each block."""
    ends = np.unique(np.round(np.geomspace(1.0, max(-law.lowest, law.lowest + law.masses.size, 2), _MOST_BLOCKS)).astype(np.int64))
    cuts = np.concatenate((-ends[::-1], [0], ends)) - law.lowest
    cuts = np.concatenate(([0], cuts[(cuts > 0) & (cuts < law.masses.size)]))
    masses = np.maximum(law.masses, 0.0)
    sums = np.add.reduceat(masses, cuts)
    means = np.add.reduceat(masses * np.arange(float(law.lowest), law.lowest + masses.size), cuts)
    heavy = sums > 0.0
    return means[heavy] / sums[heavy], np.log(sums[heavy])


def sum_ends(parts: Tilted, tail: float) -> tuple[int, int]:
    r"""The first and the last place of the sum, from its lowest one on; beside them it has mass `tail` at most.

    $$\Pr[S \ge a] \le e^{-ua}\,\prod_j\Big(\sum_i p_{ji} e^{ui}\Big)^{T_j}\quad (u > 0)$$

    and the same below with $u < 0$, half of the tail on either side. Every order $u$ gives a valid bound; that of the best one is taken,
    which is found by walking downhill: $(\sum_jT_j\log\sum_i p_{ji} e^{ui} + \log(2/\text{tail}))/u$ has one minimum, as the logarithm is
    convex. The masses weigh 1; the tail is in (0, 1). Reference: Chernoff 1952.
    """
    share, variance = math.log(2.0 / tail), 0.0
    grids = [np.arange(float(law.masses.size)) for law in parts.laws]
    for law, indices in zip(parts.laws, grids, strict=True):
        variance += law.copies * float(law.masses @ np.square(indices - float(law.masses @ indices)))
    best = 2.0 * math.sqrt(2.0 * share / max(variance, 1e-12))

    def end(order: float) -> float:
        total = share
        for law, logs, indices in zip(parts.laws, parts.logs, grids, strict=True):
            exponents = logs + order * indices
            largest = float(exponents.max())
            total += law.copies * (largest + math.log(float(np.exp(exponents - largest).sum())))
        return total / order if math.isfinite(total) else math.copysign(math.inf, order)

    last, first = _smallest_nearby(lambda order: end(order), best), -_smallest_nearby(lambda order: -end(-order), best)
    highest = sum((law.masses.size - 1) * law.copies for law in parts.laws)
    return max(0, math.floor(first)) if first > -math.inf else 0, min(highest, math.ceil(last)) if last < math.inf else highest


def _smallest_nearby(value: Callable[[float], float], best: float) -> float:
    """The smallest value at any of the orders, of values that fall and then rise."""
    smallest = value(best * _RATIO**-_FIRST_TRIED)
    for way in (-1, 1):
        power = way - _FIRST_TRIED
        while abs(power) < _MOST_TRIED and ((trial := value(best * _RATIO**power)) < smallest or trial == smallest == math.inf):
            smallest, power = trial, power + way
    return smallest


def summed(laws: Sequence[Law], first: int, size: int) -> FloatArray:
    """The masses of the sum at `size` places from the first one on; what lies beside them is added somewhere on them.

    The laws, at least one, are of independent places.
    """
    length = fft.next_fast_len(max(size, *(law.masses.size for law in laws)), real=True)
    spectrum = _power(fft.rfft(laws[0].masses, length), laws[0].copies)
    for law in laws[1:]:
        np.multiply(spectrum, _power(fft.rfft(law.masses, length), law.copies), out=spectrum)
    masses: FloatArray = fft.irfft(spectrum, length)
    return np.roll(masses, -(first % length))[:size]


def _power(values: ComplexArray, exponent: int) -> ComplexArray:
    """A whole power by squaring, in place: faster than logarithms, and off by no more."""
    result = values.copy() if exponent % 2 else np.ones_like(values)
    while exponent := exponent // 2:
        np.multiply(values, values, out=values)
        if exponent % 2:
            np.multiply(result, values, out=result)
    return result
