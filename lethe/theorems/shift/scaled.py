"""Non-negative arrays whose exponent never over- or underflows: value = mantissa * 2^exponent, the exponent an integer of its own.

Products of a million Lipschitz constants leave the range of a double. Kept here as a mantissa and an exponent, each product and
each sum costs one rounding of relative size 2^-53, whatever the magnitude; a logarithm would lose digits in proportion to its size.
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
