"""Input checks of audits: levels, counts and scores."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lethe.calculus.domains import FloatArray, as_number, outside
from lethe.errors import InputError

MOST_TRIALS = 10_000_000
Booleans = npt.NDArray[np.bool_]
T = TypeVar("T")


def require_level(value: object, name: str = "level") -> float:
    r"""Return the probability of error $\alpha \in [10^{-12}, 1/2]$ as a float, or raise InputError."""
    needed = "a number from 1e-12 to 0.5, the probability with which the result may be wrong"
    number = as_number(name, value, needed)
    if not 1e-12 <= number <= 0.5:
        raise outside(name, value, needed)
    return number


def require_array(name: str, values: object, *, dimensions: int) -> FloatArray:
    """Return a non-empty array of finite floats, or raise InputError.

    Args:
        name: of the argument.
        values: whatever NumPy takes for one.
        dimensions: how many axes it needs.
    """
    needed = f"a non-empty {'list' if dimensions == 1 else f'{dimensions}-dimensional array'} of finite numbers"
    source = f"the argument {name}"
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: got {type(values).__name__} of uneven shape; it needs {needed}.", source=source) from error
    if array.dtype.kind not in "iuf" or array.ndim != dimensions or array.size == 0:
        raise InputError(f"{name}: got {array.dtype.name} of shape {array.shape}; it needs {needed}.", source=source)
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        first = tuple(int(place) for place in np.argwhere(~np.isfinite(array))[0])
        raise InputError(
            f"{name}{list(first)} = {array[first]}; it needs {needed}.", source=source, remedy="leave out no run: find out why it failed"
        )
    return array


def require_scores(name: str, values: object) -> FloatArray:
    """Return the scores of one world, at least two and not all equal, or raise InputError."""
    scores = require_array(name, values, dimensions=1)
    if scores.size < 2:
        raise outside(name, scores.tolist(), "the scores of at least two runs")
    if np.ptp(scores) == 0.0:
        raise InputError(
            f"{name}: all {scores.size} scores are {scores[0]:g}; runs of a private mechanism differ.",
            source=f"the argument {name}",
            remedy="check that every run draws its own noise, and that the score reads the released model",
        )
    return scores


def require_flags(name: str, values: object, size: int) -> Booleans:
    """Return truth values as an array, or raise InputError.

    Args:
        name: of the argument.
        values: such as coins.
        size: how many there must be.
    """
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.shape != (size,):
        got = f"got {array.dtype.name} of shape {array.shape}"
        raise InputError(f"{name}: {got}; it needs {size} truth values, one a score.", source=f"the argument {name}")
    return array


def require_instance(name: str, value: object, kind: type[T], remedy: str | None = None) -> T:
    """Return `value` if it is of that class, or raise InputError.

    Args:
        name: of the argument.
        value: what was given.
        kind: what it needs to be.
        remedy: what to do; None: the name of the class says it.
    """
    if not isinstance(value, kind):
        needed = f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
        raise InputError(f"{name}: got {type(value).__name__}; it needs {needed}.", source=f"the argument {name}", remedy=remedy)
    return value


def lowered(value: float) -> float:
    """`value` less its rounding error, and 0 where nothing is left: what is printed as a lower bound is one."""
    return max(0.0, value - 1e-12 * (1.0 + value)) if value < math.inf else value
