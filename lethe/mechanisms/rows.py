"""Records as the mechanisms take them: finite numbers, rows of bounded norm, and a constant feature for the intercept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lethe.calculus.domains import outside, require_positive
from lethe.certificates.findings import Finding, holds
from lethe.errors import InputError
from lethe.mechanisms.base import Array
from lethe.mechanisms.tables import require_table

_EPS = float(np.finfo(np.float64).eps)


def projected_rows(values: Any, *, feature_norm: float, intercept: bool = False) -> Array:
    r"""Every row scaled to norm at most R, and the constant 1 appended: $u \mapsto (u\min(1, R/\|u\|), 1)$.

    Each record is treated by itself, so neighbours stay neighbours. The projection is rounded inward by $(d+16)$ eps: the true norm of
    a row is at most R, rounding included.

    Args:
        values: shape (m, d), finite numbers; m = 0 is allowed: every record may be zeroed out.
        feature_norm: R > 0, public.
        intercept: whether to append 1, after the projection; the squared norm is then at most $R^2 + 1$.
    Raises:
        InputError: no table of real, finite numbers with a column, or R out of range.
    """
    radius = require_positive("feature_norm", feature_norm)
    table = require_table("features", values)
    # Through the largest entry, so that squares of 1e200 do not overflow and squares of 1e-200 do not vanish.
    largest = np.abs(table).max(axis=1, keepdims=True)
    unit = table / np.where(largest > 0.0, largest, 1.0)
    length = np.sqrt(np.square(unit).sum(axis=1, keepdims=True))
    limit = radius * (1.0 - (table.shape[1] + 16) * _EPS)
    with np.errstate(over="ignore"):
        inside = largest * length <= limit
    rows = np.where(inside, table, unit * (limit / np.where(length > 0.0, length, 1.0)))
    return np.hstack([rows, np.ones((len(rows), 1))]) if intercept else rows


def row_norm(feature_norm: float, *, intercept: bool) -> float:
    r"""The largest norm of a projected row, the constant feature included: $\sqrt{R^2 + 1}$, rounded up, or R."""
    radius = require_positive("feature_norm", feature_norm)
    return math.sqrt(radius * radius + 1.0) * (1.0 + 2.0**-50) if intercept else radius


def targets_within(values: Any, *, count: int, bound: float) -> Array:
    """Targets truncated at plus and minus `bound`, shape (n,).

    Raises:
        InputError: not `count` finite numbers, or the bound is out of range.
    """
    limit = require_positive("target_bound", bound)
    return np.clip(real_targets(values, count=count), -limit, limit)


def real_targets(values: Any, *, count: int) -> Array:
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
    """Class labels 0, ..., classes - 1 as integers, shape (n,); InputError for any other number."""
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


def projected(norm: float) -> Finding:
    """The hypothesis that every row has norm at most `norm`."""
    return holds("bounded features", f"every row has norm at most {norm:g}, projected by the code", evidence="enforced")
