"""Convolutions of masses on a grid: where a power of them lies, and the product of two, cut where hardly any mass is left."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import fft

from lethe.calculus.domains import FloatArray

# Orders tried, in units of the best one for a normal law of the same variance; for heavy tails smaller ones are better.
_ORDERS = np.geomspace(1.0 / 128.0, 2.0, 15)
_FIRST_TRIED = 12


class Joined(NamedTuple):
    """The convolution of two arrays of masses: masses at offset, offset + 1, ..., and the mass that was cut off above them."""

    offset: int
    masses: FloatArray
    beyond: float


def power_ends(masses: FloatArray, count: int, tail: float) -> tuple[int, int]:
    r"""The first and the last place of the `count`-fold convolution; beside them it has mass `tail` at most.

    $$\Pr[S \ge a] \le e^{-sa}\,\Big(\sum_i p_i e^{si}\Big)^T\quad (s > 0)$$

    and the same below with $s < 0$, half of the tail on either side. Every order $s$ gives a valid bound; that of the best one is taken,
    which is found by walking downhill: $(T\log\sum_i p_i e^{si} + \log(2/\text{tail}))/s$ has one minimum, as the logarithm is convex.

    Args:
        masses: shape (n,), at the places 0, 1, ..., some of them positive; what rounding has made negative counts as 0.
        count: T >= 1.
        tail: in (0, 1).

    Reference: Chernoff 1952.
    """
    places, share = np.arange(masses.size, dtype=np.float64), math.log(2.0 / tail)
    mean = float(masses @ places) / float(masses.sum())
    variance = float(masses @ np.square(places - mean)) / float(masses.sum())
    best = math.sqrt(2.0 * share / (count * max(variance, 1e-12)))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.maximum(masses, 0.0))

    def end(order: float) -> float:
        exponents = logs + order * places
        largest = float(exponents.max())
        bound = (count * (largest + math.log(float(np.exp(exponents - largest).sum()))) + share) / order
        return bound if math.isfinite(bound) else math.copysign(math.inf, order)

    orders = (best * _ORDERS).tolist()
    last, first = _least(lambda place: end(orders[place])), -_least(lambda place: -end(-orders[place]))
    most = (masses.size - 1) * count
    return max(0, math.floor(first)) if first > -math.inf else 0, min(most, math.ceil(last)) if last < math.inf else most


def _least(value: Callable[[int], float]) -> float:
    """The smallest value at any place of `_ORDERS`, of values that fall and then rise."""
    least = value(_FIRST_TRIED)
    for way in (-1, 1):
        place = _FIRST_TRIED + way
        while 0 <= place < _ORDERS.size and (found := value(place)) < least:
            least, place = found, place + way
    return least


def joined(one: FloatArray, other: FloatArray, tail: float) -> Joined:
    """The convolution, without the lowest and the highest places that together weigh `tail` at most.

    Mass cut off below is moved up to the lowest place that is left, which is to the safe side for losses.

    Args:
        one, other: masses, of shapes (n,) and (m,).
        tail: at most this much is cut off.
    """
    size = one.size + other.size - 1
    length = fft.next_fast_len(size, real=True)
    masses: FloatArray = fft.irfft(fft.rfft(one, length) * fft.rfft(other, length), length)[:size]
    first, cut = min(_light(masses, tail / 2.0), masses.size - 1), _light(masses[::-1], tail / 2.0)
    last = max(masses.size - cut, first + 1)
    left = masses[first:last].copy()
    left[0] += masses[:first].sum()
    return Joined(first, left, float(masses[last:].sum()))


def _light(masses: FloatArray, most: float) -> int:
    """How many of the first masses weigh `most` at most, all together."""
    heavy = np.cumsum(masses) > most
    return int(np.argmax(heavy)) if heavy.any() else masses.size
