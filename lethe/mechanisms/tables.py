"""Input checks of private preprocessing: finite tables, a public number of records, public bounds of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import as_number, outside
from lethe.errors import InputError
from lethe.mechanisms.base import Array, require_swap

_BLOCK = 2**20  # entries: 8 MiB


def require_table(name: str, values: ArrayLike) -> Array:
    """A table of finite numbers as float64, shape (m, d), d at least 1, a copy; m = 0 is allowed: every record may be zeroed out.

    Raises:
        InputError: it is no such table.
    """
    return _finite(name, as_table(name, values).astype(np.float64), 0)


def as_table(name: str, values: ArrayLike) -> np.ndarray[Any, Any]:
    """A table of real numbers, shape (m, d), d at least 1, of its own type and not copied where it is an array; NaN is not looked for.

    Raises:
        InputError: it is no such table.
    """
    needed = "a table (records, columns) of finite numbers with at least one column"
    try:
        table = np.asarray(values)
    except (TypeError, ValueError):
        raise outside(name, type(values).__name__, needed) from None
    if table.dtype.kind not in "iuf" or table.ndim != 2 or table.shape[1] == 0:
        raise outside(name, f"array of shape {table.shape} and type {table.dtype}", needed)
    return table


def blocks(name: str, table: np.ndarray[Any, Any]) -> Iterator[Array]:
    """A table from `as_table` in blocks of rows, float64, so that no more than a block is ever copied.

    Raises:
        InputError: an entry is not finite.
    """
    size = max(1, _BLOCK // table.shape[1])
    for start in range(0, len(table), size):
        yield _finite(name, table[start : start + size].astype(np.float64), start)


def _finite(name: str, part: Array, first: int) -> Array:
    if not np.isfinite(part).all():
        row, column = np.argwhere(~np.isfinite(part))[0].tolist()
        raise outside(f"{name}[{first + row}, {column}]", float(part[row, column]), "a finite number")
    return part


def public_records(records: object, present: int, neighbours: object) -> int:
    """n, the public number of records.

    Zeroed-out records count, and are not present: only where one is replaced is n the number of records that are present.

    Args:
        records: n as given, or None.
        present: the number of records in the data.
        neighbours: replace_one or zero_out.
    Raises:
        InputError: no whole number, fewer than are present, or more of them where a neighbour replaces one; or an unknown relation.
    """
    swap = require_swap(neighbours)
    if swap == 2.0 and present == 0:
        raise InputError("no record is present; at least one is needed.", source="the data", remedy="give at least one record")
    if records is None:
        if swap == 2.0:
            return present
        raise InputError(
            "records = None; how many records are present is private where one can be zeroed out.",
            source="the arguments records and neighbours",
            remedy="give the public number of records, zeroed-out ones included",
        )
    if isinstance(records, bool | np.bool_) or not isinstance(records, int | np.integer) or not max(present, 1) <= records <= 10**15:
        raise outside("records", records, f"the public number of records, a whole number >= the {max(present, 1)} present")
    if swap == 2.0 and records != present:
        raise InputError(
            f"records = {records}, and {present} are present; where a neighbour replaces one, all of them are.",
            source="the arguments records and neighbours",
            remedy="leave records out, or set neighbours to zero_out",
        )
    return int(records)


def one_a_column(name: str, value: ArrayLike, columns: int) -> Array:
    """One finite number a column, shape (d,); a single number stands for all of them.

    Args:
        name: what the error calls the value.
        value: a number, or shape (d,).
        columns: d.
    Raises:
        InputError: it is neither.
    """
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
