"""Input checks of targets: finite numbers, or classes of a public range."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.calculus.domains import FloatArray, outside
from lethe.errors import InputError


def real_targets(values: Any, *, count: int) -> FloatArray:
    """Targets as floats, shape (n,); InputError unless they are `count` finite numbers."""
    needed = f"{count} finite numbers in one row, one for each record"
    try:
        array = np.array(values)
    except (TypeError, ValueError):
        raise outside("targets", type(values).__name__, needed) from None
    if array.dtype.kind not in "iuf" or array.shape != (count,):
        raise outside("targets", f"array of shape {array.shape} and type {array.dtype}", needed)
    finite = np.isfinite(array)
    if not finite.all():
        first = int(np.argmin(finite))
        raise outside(f"targets[{first}]", float(array[first]), "a finite number")
    return array.astype(np.float64)


def class_targets(values: Any, *, count: int, classes: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Class labels 0, ..., classes - 1 of n records as integers, shape (n,); the number of classes, >= 2, is public."""
    table = real_targets(values, count=count)
    wrong = (table != np.floor(table)) | (table < 0) | (table >= classes)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"targets[{first}] = {table[first]:g}; it needs a class, a whole number from 0 to {classes - 1}.",
            source="the argument targets",
            remedy="number the classes by a public list",
        )
    return table.astype(np.intp)
