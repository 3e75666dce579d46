r"""Rounding to the safe side: moves a number to the next float, takes a root of a bound, or turns a quotient into a count; and a sum whose
rounding has a bound, whatever library adds it up.

Whatever computes a bound rounds its result with these functions.

What is not a number, or negative where it cannot be, comes out as infinity: a bound that says nothing is a bound, and 0 would be a lie.
`tests/laws/test_outward_rounding.py` keeps such operations out of all other files.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.calculus.domains import FloatArray, outside

Counts = NDArray[np.int64]

# Every whole number up to here, and a sum of two of them, fits in 64 bits; as a float it is exact.
MOST_COUNT = 2**61


def round_up(value: float, relative: float = 0.0) -> float:
    """The next float above `value` (1 + `relative`), for an upper bound; 0 and infinity, being exact, stay; nan becomes infinity."""
    if math.isnan(value):
        return math.inf
    if value == 0.0 or math.isinf(value):
        return value
    return math.nextafter(value + abs(value) * relative, math.inf)


def round_down(value: float, relative: float = 0.0) -> float:
    """The next float below `value` (1 - `relative`), for a lower bound; 0 and infinity, being exact, stay; nan becomes minus infinity."""
    return -round_up(-value, relative)


def as_bound(value: float) -> float:
    """`value` itself if it can bound something from above; infinity if it is no number, or negative."""
    return value if value >= 0.0 else math.inf


def above(values: ArrayLike, relative: float = 0.0) -> FloatArray:
    """The next floats above `values` (1 + `relative`), for what is never exactly 0; nan and what is negative become infinity."""
    array = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        raised = np.nextafter(array * (1.0 + relative), np.inf)
    return np.where(array >= 0.0, raised, np.inf)


def raised(values: ArrayLike, relative: float = 0.0) -> FloatArray:
    """As `above`, but an exact 0 stays 0."""
    array = np.asarray(values, dtype=np.float64)
    return np.where(array == 0.0, 0.0, above(array, relative))


def square_above(values: ArrayLike, relative: float = 0.0) -> FloatArray:
    """The squares, raised as by `raised`: exact 0 and infinity stay; one that underflows is not 0."""
    array = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.where(array == 0.0, 0.0, above(np.square(np.where(array >= 0.0, array, np.nan)), relative))


def root_above(squares: ArrayLike, relative: float = 0.0) -> FloatArray:
    """The square roots, raised as by `raised`: exact 0 and infinity stay; the root of what is negative or no number is infinity."""
    array = np.asarray(squares, dtype=np.float64)
    return raised(np.sqrt(np.where(array >= 0.0, array, np.inf)), relative)


def exp_above(logarithms: ArrayLike, relative: float = 0.0) -> FloatArray:
    """The exponentials, raised: 0 only at minus infinity, for what underflows is not 0; infinity where the logarithm is no number."""
    array = np.asarray(logarithms, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return np.where(np.isneginf(array), 0.0, above(np.exp(array), relative))


def count_above(values: ArrayLike, largest: int) -> Counts:
    """The smallest whole numbers not below `values`, at most `largest`; what is larger, negative, or no number, counts as `largest`."""
    if not 0 <= largest <= MOST_COUNT:
        raise outside("largest", largest, "a whole number from 0 to 2^61")
    array = np.asarray(values, dtype=np.float64)
    return np.ceil(np.where((array >= 0.0) & (array < largest), array, float(largest))).astype(np.int64)


def pairwise_sum(numbers: Any) -> Any:
    r"""The sum along the last axis, off by at most $\gamma_D\sum_i|a_i|$ with $D = \lceil\log_2d\rceil$ and $\gamma_D = Du/(1-Du)$.

    The second half is added to the first until one number is left, so that each number goes through D additions at most; in the orders of a
    library's own sums it may be d. The NumPy array or tensor, of at least one number along the last axis, is overwritten. Reference: Higham
    2002, "Accuracy and Stability of Numerical Algorithms", section 4.2.
    """
    size = numbers.shape[-1]
    while size > 1:
        half = (size + 1) // 2
        numbers[..., : size - half] += numbers[..., half:size]
        size = half
    return numbers[..., 0]
