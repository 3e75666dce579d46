"""Numbers of single records for a private quantile: gathered by the driver where they are few enough, else counted in their blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from lethe.estimators.inputs.records import row_norms
from lethe.estimators.inputs.tables import readable
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.located import ColumnsInMemory
from lethe.partitions.block import Block
from lethe.partitions.table import ConsecutiveRecords, ExaminedTable

MOST_GATHERED = 2**23  # 64 MiB

Numbers = Callable[[Block], np.ndarray[Any, Any]]
"""Of a block with records, to numbers of each, shape (m,) or (m, d); it must pickle."""


class BlockColumns:
    """Numbers of each record of a table in blocks, which are asked for their counts: see `CountedColumns`."""

    def __init__(self, table: ExaminedTable | ConsecutiveRecords, of: Numbers, width: int = 1) -> None:
        self.table, self.of, self.shape = table, of, (table.shape[0], width)

    def found(self) -> Array | BlockColumns:
        """One number of each, shape (n,), in one pass, where they are few; else this."""
        if many_records(self.shape[0]):
            return self
        answers = self.table.answers(_numbers, (self.of,))
        return np.concatenate([answer.values for answer in answers])

    def counts(self, edges: Array) -> Array:
        """One pass."""
        return self.table.sum(_counts, self.of, edges)[0]


def many_records(records: int) -> bool:
    """Whether so many records are counted, not gathered; a public fact."""
    return records > MOST_GATHERED


def norms_of(table: Any, low: Array | None = None, high: Array | None = None) -> Any:
    """Norms of the rows of a table, in memory or in blocks, each column clipped before where bounds are given.

    Args:
        table: shape (n, d).
        low, high: shape (d,), or None.
    """
    if isinstance(table, ExaminedTable):
        return BlockColumns(table, partial(_norms, low=low, high=high)).found()
    return row_norms(table if low is None else np.clip(table, low, high))


def columns_of(table: Any) -> Any:
    """What quantiles of the columns of a table, in memory or in blocks, are taken of."""
    return table if isinstance(table, np.ndarray) else BlockColumns(table, _features, table.shape[1])


def block_targets(table: ExaminedTable) -> BlockColumns:
    """The target, as a table of one column."""
    return BlockColumns(table, _targets)


def _numbers(block: Block, of: Numbers) -> Array:
    return of(block) if len(block) else np.empty(0)


def _counts(block: Block, of: Numbers, edges: Array) -> tuple[Array]:
    if not len(block):
        return (np.zeros((edges.shape[0], edges.shape[1] + 1)),)
    return (ColumnsInMemory(of(block)).counts(edges),)


def _norms(block: Block, low: Array | None, high: Array | None) -> Array:
    rows = _features(block)
    return row_norms(rows if low is None else np.clip(rows, low, high))


def _features(block: Block) -> Any:
    return readable(block.features)


def _targets(block: Block) -> Any:
    return block.targets
