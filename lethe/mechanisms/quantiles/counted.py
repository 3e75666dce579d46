"""What a released range asks of records: how many values lie between given edges, whether they are in memory or in blocks."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from lethe.mechanisms.base import Array

_MOST = float(np.finfo(np.float64).max)


class CountedColumns(Protocol):
    """Columns of which values are counted."""

    @property
    def shape(self) -> tuple[int, int]:
        """Records and columns, n and d."""
        ...

    def counts(self, edges: Array) -> Array:
        """How many values of each column are below its first edge, in $[e_i, e_{i+1})$ for each i, and from its last edge on.

        Args:
            edges: ascending, shape (d, e).
        Returns:
            Shape (d, e + 1); each row adds up to n.
        """
        ...


class ColumnsInMemory:
    """Columns of an array.

    Args:
        table: shape (n, d), float64 or float32, finite or infinite; or shape (n,), one column.
    """

    def __init__(self, table: np.ndarray[Any, Any]) -> None:
        self.table = table if table.ndim == 2 else table[:, None]

    @property
    def shape(self) -> tuple[int, int]:
        """n and d."""
        return self.table.shape[0], self.table.shape[1]

    def counts(self, edges: Array) -> Array:
        """See `CountedColumns`."""
        return np.stack([counts_between(column, own) for column, own in zip(self.table.T, edges, strict=True)])


def counts_between(values: np.ndarray[Any, Any], edges: Array) -> Array:
    """How many values are below the first edge, between each two, and from the last on: each is in one of them. Shape (e + 1,).

    Args:
        values: shape (n,).
        edges: ascending, shape (e,).
    """
    finite = np.clip(values.astype(np.float64), -_MOST, _MOST)  # below an edge that is infinite
    places = np.searchsorted(edges, finite, side="right")
    return np.bincount(places, minlength=edges.size + 1).astype(np.float64)
