"""Normal numbers rounded to integers, without the error of any floating-point function: lazy bits decide where doubles cannot."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
from scipy import special

from lethe.calculus.domains import as_number, outside
from lethe.errors import InputError

Words = Callable[[int], bytes]
"""A source of random bytes: given a number, that many uniform independent ones."""

LARGEST_SCALE = 2.0**32

_WORD = 64
# Quantiles up to 4.2 computed from 63 random bits are off by less than 2^-46 for want of bits and by rounding in our own arithmetic; the
# rest of this margin, 4e-14, is left to `special.ndtri`, which states a relative error below 1e-15.
_MARGIN = 2.0**-44
_DEEP_TAIL = np.uint64(2**48)


def rounded_normals(count: int, scale: float, words: Words = os.urandom) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    r"""Independent copies of $\mathrm{round}(\sigma Z)$, $Z \sim N(0, 1)$: the real Gaussian, rounded, and not one made of doubles.

    Each takes 64 bits: a sign, and the upper tail's probability $p \in (0, \frac12)$ known to within $2^{-64}$. The result is the k with

    $$\Phi\big(-\tfrac{k+1/2}{\sigma}\big) < p \le \Phi\big(-\tfrac{k-1/2}{\sigma}\big)$$

    found from the quantile in doubles; where that lies too near to a half-integer for doubles to tell (about $2^{-43}\sigma$ of all
    draws) and where p is below $2^{-16}$, more bits of p are drawn and the inequality is decided in high precision.

    Args:
        count: how many, >= 0.
        scale: $\sigma \in [1, 2^{32}]$, the standard deviation in units of the grid; any real number, integer or not.
        words: the source of random bytes.
    Returns:
        Shape (count,).
    Raises:
        InputError: an argument is outside its range, or the source is exhausted.
    Reference: exact sampling by lazy bits: Karney 2016, "Sampling exactly from the normal distribution", ACM TOMS 42(1):3.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise outside("count", count, "an integer >= 0")
    needed = f"a number in [1, {LARGEST_SCALE:g}]"
    scale = as_number("scale", scale, needed)
    if not 1.0 <= scale <= LARGEST_SCALE:
        raise outside("scale", scale, needed)
    raw = np.frombuffer(_bytes(words, 8 * int(count)), dtype="<u8")
    tails = raw >> np.uint64(1)
    sizes = special.ndtri((tails.astype(np.float64) + 0.5) * 2.0**-_WORD) * -scale
    nearest = np.rint(sizes)
    undecided = (np.abs(sizes - nearest) > 0.5 - _MARGIN * scale) | (tails < _DEEP_TAIL)
    for index in np.flatnonzero(undecided):
        nearest[index] = _decided(int(tails[index]), scale, words)
    return np.where(raw & np.uint64(1), -nearest, nearest).astype(np.int64)


def _decided(tail: int, scale: float, words: Words) -> int:
    """The k of `rounded_normals` for p in [tail, tail + 1] / 2^64, with as many more bits as it takes."""
    bits = _WORD
    while True:
        tail = (tail << _WORD) | int.from_bytes(_bytes(words, 8), "little")
        bits += _WORD
        with mpmath.workprec(bits + _WORD):
            low, high = mpmath.ldexp(tail, -bits), mpmath.ldexp(tail + 1, -bits)
            guess = round(-float(special.ndtri(max(float(high), 5e-324))) * scale)
            # A slack for the rounding of erfc itself: whoever is this near to a boundary draws more bits.
            slack = mpmath.ldexp(1, -bits)
            for k in range(max(guess - 1, 0), guess + 2):
                if _upper(k + 0.5, scale) * (1 + slack) < low and high * (1 + slack) < _upper(k - 0.5, scale):
                    return k


def _upper(border: float, scale: float) -> Any:
    r"""$\Phi(-x/\sigma)$; borders are below 2^50, so they are exact doubles."""
    return mpmath.erfc(mpmath.mpf(border) / mpmath.mpf(scale) / mpmath.sqrt(2)) / 2


def _bytes(words: Words, count: int) -> bytes:
    drawn = words(count)
    if not isinstance(drawn, bytes) or len(drawn) != count:
        raise InputError(
            f"words: gave {len(drawn) if isinstance(drawn, bytes) else type(drawn).__name__} of {count} bytes.",
            remedy="give a function that returns as many random bytes as it is asked for, such as os.urandom.",
        )
    return drawn
