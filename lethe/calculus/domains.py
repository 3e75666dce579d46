"""Checks of arguments: a privacy parameter, probability, count or array outside its range is an `InputError`.

Every public function that takes a number checks it here first, so that the same mistake has the same words everywhere.
"""

import math
import operator
from typing import SupportsFloat, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from lethe.errors import InputError, quoted

FloatArray = NDArray[np.float64]
_NOT_NUMBERS: tuple[type, ...] = (str, bytes, bool, np.bool_)


def as_number(name: str, value: object, needed: str) -> float:
    """Return `value`, called `name` in the error, as a float that is not nan, or raise InputError; text and truth values are no numbers.

    `needed` is the range that is allowed, in words.
    """
    try:
        number = math.nan if isinstance(value, _NOT_NUMBERS) else float(cast(SupportsFloat, value))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise outside(name, value, needed)
    return number


def outside(name: str, value: object, needed: str) -> InputError:
    """The InputError for a value of the argument `name` that is not in its range, `needed` in words."""
    return InputError(f"{name} = {quoted(value)}; it needs {needed}.", source=f"the argument {name}", remedy=f"give {name} as {needed}")


def require_delta(delta: object) -> float:
    r"""Return $\delta \in [0, 1)$ as a float, or raise InputError."""
    needed = "a number in [0, 1)"
    number = as_number("delta", delta, needed)
    if not 0.0 <= number < 1.0:
        raise outside("delta", delta, needed)
    return number


def require_nonnegative(name: str, value: object, *, allow_infinity: bool = True) -> float:
    """Return a number >= 0 as a float, infinity only where it is allowed, or raise InputError."""
    needed = "a number >= 0" if allow_infinity else "a finite number >= 0"
    number = as_number(name, value, needed)
    if number < 0.0 or (math.isinf(number) and not allow_infinity):
        raise outside(name, value, needed)
    return number


def require_positive(name: str, value: object) -> float:
    """Return a finite number > 0 as a float, or raise InputError."""
    needed = "a finite number > 0"
    number = as_number(name, value, needed)
    if not 0.0 < number < math.inf:
        raise outside(name, value, needed)
    return number


def require_probability(name: str, value: object) -> float:
    """Return a number in [0, 1] as a float, or raise InputError."""
    needed = "a number in [0, 1]"
    number = as_number(name, value, needed)
    if not 0.0 <= number <= 1.0:
        raise outside(name, value, needed)
    return number


def require_count(name: str, value: object, *, low: int = 1, high: int = 10**12) -> int:
    """Return a whole number from `low` to `high` as an int, or raise InputError: 20.0 is not whole, True is not 1."""
    needed = f"a whole number from {low} to {'10^12' if high == 10**12 else high}"
    if isinstance(value, _NOT_NUMBERS):
        raise outside(name, value, needed)
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        raise outside(name, value, needed) from None
    if not low <= number <= high:
        raise outside(name, value, needed)
    return number


def require_switch(name: str, value: object) -> bool:
    """Return True or False, Python's or NumPy's, as a bool, or raise InputError: every text is true, "no" too."""
    if not isinstance(value, bool | np.bool_):
        raise outside(name, value, "True or False")
    return bool(cast(bool, value))


def require_pairs(first: str, first_values: FloatArray, second: str, second_values: FloatArray) -> None:
    """Raise InputError unless two arrays of shape (n,) have the same length."""
    if first_values.shape != second_values.shape:
        raise outside(f"{first}, {second}", f"{first_values.size} and {second_values.size} numbers", "as many of one as of the other")


def require_counted(name: str, values: FloatArray, counts: FloatArray) -> None:
    """Raise InputError unless the values, shape (n,), are distinct, and the counts whole numbers, one for each of them."""
    if values.shape != counts.shape or np.unique(values).size != values.size or np.any(counts != np.floor(counts)):
        raise outside(f"{name}, counts", f"{values.size} and {counts.size} numbers", f"each of {name} once, and for each a whole number")


def require_vector(name: str, values: object, *, low: float, strict: bool = False, allow_infinity: bool = False) -> FloatArray:
    """Return a non-empty one-dimensional float array, or raise InputError.

    Of shape (n,); no entry may be below `low`, or, with `strict`, equal to it.
    """
    needed = f"a non-empty one-dimensional list of {'' if allow_infinity else 'finite '}numbers {'>' if strict else '>='} {low:g}"
    try:
        array = np.array(values)
        if array.dtype.kind == "O" and all(type(value) in (int, float) for value in array.ravel().tolist()):
            array = array.astype(np.float64)  # whole numbers beyond 64 bits
    except (TypeError, ValueError, OverflowError):
        raise outside(name, values, needed) from None
    if array.dtype.kind not in "iuf" or array.ndim != 1 or array.size == 0:
        raise outside(name, values, needed)
    array = array.astype(np.float64)
    inside = array > low if strict else array >= low
    if not bool(np.all(inside)) or not (allow_infinity or bool(np.all(np.isfinite(array)))):
        first = int(np.argmin(inside & (np.isfinite(array) | allow_infinity)))
        raise outside(f"{name}[{first}]", float(array[first]), needed)
    return array
