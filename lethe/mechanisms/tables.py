"""Checks of the records that mechanisms get: finite tables, rows of bounded norm, bounded targets, a public number of records.

All mechanisms of this package call these checks at their start: a bound on the sensitivity holds only of rows that were projected or
checked, and the `Finding` that says so goes into its statement.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import as_number, outside, require_positive
from lethe.certificates.findings import Finding, holds
from lethe.errors import InputError
from lethe.mechanisms.base import Array, require_swap
from lethe.partitions.block import Block, Values
from lethe.partitions.table import ExaminedTable
from lethe.run.losses.linear import real_targets

Table = Values | ExaminedTable
_BLOCK = 2**20  # entries: 8 MiB
_EPS = float(np.finfo(np.float64).eps)


def as_table(rows: ArrayLike | ExaminedTable) -> Table:
    """A table of real numbers, shape (m, d), not copied, and not looked through for NaN; or one in blocks that was looked through."""
    return rows if isinstance(rows, ExaminedTable) else _numbers("rows", rows)


def sums_over(table: Table, function: Callable[..., tuple[Array, ...]], *parameters: Any) -> tuple[Array, ...]:
    """Sums over the records of a table from `as_table`, of which no more than a part is ever copied; its entries must be finite.

    The function, which must pickle, makes a tuple of arrays of fixed shapes of rows in float64, shape (m, d), m = 0 allowed.
    """
    if isinstance(table, ExaminedTable):
        return table.sum(_of_block, function, *parameters)
    return _of_rows(table, function, *parameters)


def _of_block(block: Block, function: Callable[..., tuple[Array, ...]], *parameters: Any) -> tuple[Array, ...]:
    return _of_rows(block.features, function, *parameters)


def _of_rows(table: Values, function: Callable[..., tuple[Array, ...]], *parameters: Any) -> tuple[Array, ...]:
    """Sum of a function's arrays over blocks of rows, each made finite float64 before."""
    size = max(1, _BLOCK // table.shape[1])
    total: tuple[Array, ...] = ()
    for start in range(0, max(len(table), 1), size):
        values = function(_finite("rows", table[start : start + size].astype(np.float64), start), *parameters)
        total = tuple(partial + addend for partial, addend in zip(total, values, strict=True)) if total else values
    return total


def _numbers(name: str, values: ArrayLike) -> Values:
    needed = "a table (records, columns) of finite numbers with at least one column"
    try:
        table = np.asarray(values)
    except (TypeError, ValueError):
        raise outside(name, type(values).__name__, needed) from None
    if table.dtype.kind not in "iuf" or table.ndim != 2 or table.shape[1] == 0:
        raise outside(name, f"array of shape {table.shape} and type {table.dtype}", needed)
    return table


def _finite(name: str, part: Array, first: int) -> Array:
    if not np.isfinite(part).all():
        row, column = np.argwhere(~np.isfinite(part))[0].tolist()
        raise outside(f"{name}[{first + row}, {column}]", float(part[row, column]), "a finite number")
    return part


def public_records(records: object, present: int, neighbours: object) -> int:
    """n, the public number of records: zeroed-out ones count, and are not present; where one is replaced all are, and n may be None."""
    swap = require_swap(neighbours)
    if swap == 2.0 and present == 0:
        raise InputError("no record is present; at least one is needed.", source="the data", remedy="give at least one record")
    if records is None and swap == 2.0:
        return present
    whole = isinstance(records, int | np.integer) and not isinstance(records, bool | np.bool_) and max(present, 1) <= records <= 10**15
    if not whole or (swap == 2.0 and records != present):
        absent = f"the public number of records, zeroed-out ones included, a whole number >= the {max(present, 1)} present"
        raise outside("records", records, f"{present}, as many as are present, or None" if swap == 2.0 else absent)
    return int(cast(int, records))


def one_a_column(name: str, value: ArrayLike, columns: int) -> Array:
    """One finite number a column, shape (d,); a single number stands for all of them."""
    needed = f"a finite number, or {columns} of them"
    try:
        bounds = np.array(value)
    except (TypeError, ValueError):
        raise outside(name, value, needed) from None
    if bounds.ndim == 0:
        bounds = np.full(columns, as_number(name, value, needed))
    if bounds.dtype.kind not in "iuf" or bounds.shape != (columns,) or not np.isfinite(bounds).all():
        raise outside(name, value, needed)
    return bounds.astype(np.float64)


def projected_rows(values: Any, *, feature_norm: float, intercept: bool = False) -> Array:
    r"""Every row scaled to norm at most R, and for an intercept the constant 1 appended: $u \mapsto (u\min(1, R/\|u\|), 1)$.

    Each record is treated by itself, so neighbours stay neighbours. The projection is rounded inward by $(d+16)$ eps: the true norm of
    a row is at most R, rounding included. Shape (m, d), m = 0 allowed: every record may be zeroed out.
    """
    radius, table = require_positive("feature_norm", feature_norm), _numbers("features", values)
    columns = table.shape[1]
    limit, size = radius * (1.0 - (columns + 16) * _EPS), max(1, _BLOCK // (8 * columns))  # five are held at a time
    result = np.ones((len(table), columns + intercept))
    for start in range(0, len(table), size):
        rows = _finite("features", table[start : start + size].astype(np.float64), start)
        # Through the largest entry, so that squares of 1e200 do not overflow and squares of 1e-200 do not vanish.
        largest = np.abs(rows).max(axis=1, keepdims=True)
        unit = rows / np.where(largest > 0.0, largest, 1.0)
        length = np.sqrt(np.square(unit).sum(axis=1, keepdims=True))
        with np.errstate(over="ignore"):
            inside = largest * length <= limit
        result[start : start + size, :columns] = np.where(inside, rows, unit * (limit / np.where(length > 0.0, length, 1.0)))
    return result


def targets_within(values: Any, *, count: int, bound: float) -> Array:
    """Finite targets truncated at plus and minus a bound, shape (n,)."""
    limit = require_positive("target_bound", bound)
    return np.clip(real_targets(values, count=count), -limit, limit)


def projected(norm: float) -> Finding:
    """The hypothesis that every row has norm at most `norm`."""
    return holds("bounded features", f"every row has norm at most {norm:g}, projected by the code", evidence="enforced")


def ordered_bounds(name: str, low: Any, high_name: str, high: Any, columns: int, *, remedy: str) -> tuple[Array, Array]:
    """Public bounds of d columns, low and high, shape (d,) each, from a number or one a column; low must be below high."""
    lower, upper = one_a_column(name, low, columns), one_a_column(high_name, high, columns)
    wrong = ~((lower >= -1e100) & (lower < upper) & (upper <= 1e100))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"{name} and {high_name} of column {first}: got {lower[first]:g} and {upper[first]:g}; it needs low < high, both within 1e100.",
            source=f"the parameters {name} and {high_name}",
            remedy=remedy,
        )
    return lower, upper
