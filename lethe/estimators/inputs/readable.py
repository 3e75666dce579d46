"""Tables made safe for products: duplicate entries of sparse rows summed, rows with enormous entries scaled down.

Both look at one row at a time, so neighbours stay neighbours. Without them one record could show, though its norm is bounded: an entry of
1e308 makes a product infinite before it is scaled down, and two entries of one sparse column may be enormous and cancel, so that their
sum has a small norm, and what they do to a sum over records in between has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Its square does not overflow, nor does a sum of a hundred million of them.
LARGEST_ENTRY = 1e150


def readable(table: Any) -> Any:
    """The table itself where nothing is to be done, else a copy.

    Args:
        table: shape (n, d), finite, float64 or float32, an array or a CSR table.
    """
    if isinstance(table, np.ndarray):
        return table * _factors(np.abs(table).max(axis=1))[:, None] if _has_larger(table) else table
    once = _columns_once(table)
    if not _has_larger(once.data):
        return once
    once = once.copy()
    once.data *= np.repeat(_factors(np.asarray(abs(once).max(axis=1).todense()).ravel()), np.diff(once.indptr))
    return once


def _has_larger(entries: np.ndarray[Any, Any]) -> bool:
    return entries.dtype == np.float64 and entries.size > 0 and max(float(entries.max()), -float(entries.min())) > LARGEST_ENTRY


def _factors(largest: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.minimum(1.0, LARGEST_ENTRY / np.maximum(largest, 1.0))


def _columns_once(table: Any) -> Any:
    # A table anew: what the old one believes of its format may no longer be true.
    fresh = type(table)((table.data, table.indices, table.indptr), shape=table.shape)
    if fresh.has_canonical_format:
        return fresh
    fresh = fresh.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        fresh.sum_duplicates()
    fresh.data = np.nan_to_num(fresh.data, copy=False)
    return fresh
