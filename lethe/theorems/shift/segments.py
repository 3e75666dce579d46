r"""Stretches of a run, and how two neighbours become one, in arrays whose exponent never over- or underflows.

The number format of the whole shift engine: `pooling`, `engine` and `shuffled` compute in it. L is a step's Lipschitz constant, s its
sensitivity, $\tau$ its noise; a touch is a step whose batch holds the record.

With $w_t = \prod_{j > t} L_j$ taken up to the stretch's own last step, a stretch is three numbers: the product of its Lipschitz
constants, its rise $\sum w_t s_t$ (what its touches amount to at its end) and its run $\sum w_t^2 \tau_t^2$ (the noise that has
arrived there). Joining a left and a right stretch is associative:

$$(P, R, V) \circ (P', R', V') = (P P',\; P' R + R',\; P'^2 V + V')$$

so prefix sums, suffix sums and the greatest convex minorant all use the one operation `join`.

**Numbers** are mantissa * 2^exponent, the exponent an integer of its own. Products of a million Lipschitz constants leave the range of a
double. Kept here as a mantissa and an exponent, each product and each sum costs one rounding of relative size 2^-53, whatever the
magnitude; a logarithm would lose digits in proportion to its size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rearrangement = Callable[[NDArray[Any]], NDArray[Any]]

# Zero has mantissa 0 and an exponent so low that it never decides the scale of a sum: 10^9 factors of 2^-1074 stay above it.
ZERO_EXPONENT = -(2**42)
# Beyond this many bits a term is less than the rounding error of the sum it joins, however small its mantissa.
NEGLIGIBLE_BITS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """An array of numbers mantissa * 2^exponent, mantissa 0 or in [1/2, 1)."""

    mantissa: Floats
    exponent: Integers

    @classmethod
    def of(cls, values: Floats) -> Scaled:
        """Exactly the given finite, non-negative doubles."""
        mantissa, exponent = np.frexp(values)
        return cls(mantissa=mantissa, exponent=np.where(mantissa == 0.0, ZERO_EXPONENT, exponent.astype(np.int64)))

    @classmethod
    def full(cls, shape: tuple[int, ...], value: float) -> Scaled:
        """An array of the given shape that repeats one value."""
        return cls.of(np.full(shape, value))

    def __mul__(self, other: Scaled) -> Scaled:
        mantissa, carry = np.frexp(self.mantissa * other.mantissa)
        exponent = self.exponent + other.exponent
        exponent += carry
        return Scaled(mantissa=mantissa, exponent=np.maximum(exponent, ZERO_EXPONENT, out=exponent))

    def __add__(self, other: Scaled) -> Scaled:
        exponent = np.maximum(self.exponent, other.exponent)
        mantissa = _shifted(self.mantissa, self.exponent - exponent)
        mantissa += _shifted(other.mantissa, other.exponent - exponent)
        mantissa, carry = np.frexp(mantissa)
        exponent += carry
        return Scaled(mantissa=mantissa, exponent=exponent)

    def at_least(self, other: Scaled) -> NDArray[np.bool_]:
        """Elementwise self >= other; zero >= zero holds."""
        # Mantissas in [1/2, 1) differ by less than one bit, so two bits of exponent settle the order.
        difference = np.clip(self.exponent - other.exponent, -2, 2).astype(np.int32)
        return np.ldexp(self.mantissa, difference) >= other.mantissa

    def to_float(self) -> Floats:
        """The nearest doubles: inf above the range, 0 or a denormal below it."""
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(self.mantissa, np.clip(self.exponent, -5000, 5000).astype(np.int32))

    def log(self) -> Floats:
        """Natural logarithms; -inf at zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.mantissa) + np.where(self.mantissa == 0.0, 0, self.exponent) * np.log(2.0)

    def map(self, function: Rearrangement) -> Scaled:
        """Apply one rearrangement (index, reshape, transpose) to mantissas and exponents alike."""
        return Scaled(mantissa=function(self.mantissa), exponent=function(self.exponent))


def _shifted(mantissa: Floats, bits: Integers) -> Floats:
    return np.ldexp(mantissa, np.maximum(bits, -NEGLIGIBLE_BITS).astype(np.int32))


# Below this many steps one loop is cheaper than splitting the scan into blocks.
_DIRECT_SCAN = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Untouched steps: the product of their Lipschitz constants and their run."""

    product: Scaled
    run: Scaled

    def join(self, right: Stretch) -> Stretch:
        """This stretch followed by `right`, elementwise."""
        square = right.product * right.product
        return Stretch(product=self.product * right.product, run=square * self.run + right.run)

    def map(self, function: Rearrangement) -> Stretch:
        """Apply one rearrangement to every array."""
        return Stretch(product=self.product.map(function), run=self.run.map(function))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Stretches with a rise."""

    product: Scaled
    rise: Scaled
    run: Scaled

    def join(self, right: Segments) -> Segments:
        """This segment followed by `right`, elementwise."""
        square = right.product * right.product
        return Segments(
            product=self.product * right.product,
            rise=right.product * self.rise + right.rise,
            run=square * self.run + right.run,
        )

    def then(self, right: Stretch) -> Segments:
        """This segment followed by untouched steps."""
        square = right.product * right.product
        return Segments(product=self.product * right.product, rise=right.product * self.rise, run=square * self.run + right.run)

    def pools_with(self, right: Segments) -> NDArray[np.bool_]:
        r"""Whether the vertex between this segment and `right` is no vertex of the convex minorant.

        $$\frac{R}{V P'} \ge \frac{R'}{V'}, \quad\text{written}\quad R V' \ge R' V P'$$

        Cross-multiplied, the corner cases come out right by themselves: a segment without rise joins what is left of it, one
        without noise joins what is right of it, and what lies before a zero Lipschitz constant is absorbed and forgotten.
        """
        return (self.rise * right.run).at_least(right.rise * self.run * right.product)

    def map(self, function: Rearrangement) -> Segments:
        """Apply one rearrangement to every array."""
        return Segments(product=self.product.map(function), rise=self.rise.map(function), run=self.run.map(function))


def single_steps(lipschitz: Floats, noise_std: Floats) -> Stretch:
    """One stretch a step; noise is squared after its exponent is split off, so no noise is too small or too large to be squared."""
    noise = Scaled.of(noise_std)
    return Stretch(product=Scaled.of(lipschitz), run=noise * noise)


def exclusive_prefix(steps: Stretch) -> Stretch:
    """Along the first of two axes, at index i the join of the steps 0..i-1 (the empty stretch at 0)."""
    return _exclusive(steps, Stretch.join)


def exclusive_suffix(steps: Stretch) -> Stretch:
    """Along the first of two axes, at index i the join of the steps after i (the empty stretch at the last)."""
    return _exclusive(steps.map(lambda a: a[::-1]), lambda later, earlier: earlier.join(later)).map(lambda a: a[::-1])


def _empty(shape: tuple[int, ...]) -> Stretch:
    return Stretch(product=Scaled.full(shape, 1.0), run=Scaled.full(shape, 0.0))


def _exclusive(steps: Stretch, join: Callable[[Stretch, Stretch], Stretch]) -> Stretch:
    shape = steps.run.mantissa.shape
    length, rest = shape[0], shape[1:]
    if length <= _DIRECT_SCAN:
        result = _empty(shape)
        total = _empty(rest)
        for i in range(1, length):
            total = join(total, steps.map(lambda a, i=i: a[i - 1]))
            _write(result, i, total)
        return result
    width = int(np.ceil(np.sqrt(length)))
    blocks = -(-length // width)
    padded = _empty((blocks * width, *rest))
    _write(padded, slice(0, length), steps)
    inside = padded.map(lambda a: np.ascontiguousarray(np.swapaxes(a.reshape(blocks, width, *rest), 0, 1)))
    scanned = _exclusive(inside, join)
    totals = join(scanned.map(lambda a: a[-1]), inside.map(lambda a: a[-1]))
    carried = _exclusive(totals, join).map(lambda a: a[np.newaxis])
    return join(carried, scanned).map(lambda a: np.swapaxes(a, 0, 1).reshape(blocks * width, *rest)[:length])


def _write(target: Stretch, index: int | slice, source: Stretch) -> None:
    for into, values in ((target.product, source.product), (target.run, source.run)):
        into.mantissa[index] = values.mantissa
        into.exponent[index] = values.exponent
