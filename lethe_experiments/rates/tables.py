"""Published comparisons of utility, as rows to look up. Nothing here is a guarantee: every number says that it is an order."""

from __future__ import annotations

import difflib

from lethe.errors import InputError
from lethe_experiments.rates.comparators import Row, Setting
from lethe_experiments.rates.hong_table_1 import TABLE_1
from lethe_experiments.rates.hong_table_2 import TABLE_2

__all__ = ["TABLE_1", "TABLE_2", "Row", "Setting", "row"]


def row(key: str) -> Row:
    """The row of Table 1 or 2 with that key.

    Raises:
        InputError: there is none.
    """
    rows = {entry.key: entry for entry in (*TABLE_1, *TABLE_2)}
    if key not in rows:
        near = difflib.get_close_matches(str(key), rows, n=1)
        hint = f" did you mean {near[0]!r}?" if near else ""
        raise InputError(f"no row {key!r};{hint} there are {', '.join(rows)}.", source="the argument key", remedy="take one of these.")
    return rows[key]
