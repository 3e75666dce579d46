"""Numbers of single records for a private quantile: gathered by the driver where they are few enough, else counted in their blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.estimators.inputs.readable import readable
from lethe.estimators.inputs.records import row_norms
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.located import ColumnsInMemory, counts_between
from lethe.partitions.block import Block
from lethe.partitions.table import ConsecutiveRecords, ExaminedTable

MOST_GATHERED = 2**23  # 64 MiB

Sizes = Callable[[Block], Array]


class BlockSizes:
    """A number of each record of a table in blocks.

    Args:
        table: that was looked through.
        of: of a Block, to the numbers of its records, shape (m,); it must pickle.
    """

    def __init__(self, table: ExaminedTable | ConsecutiveRecords, of: Sizes) -> None:
        self.table, self.of = table, of

    @property
    def shape(self) -> tuple[int, int]:
        """n, and 1."""
        return self.table.shape[0], 1

    def found(self) -> Array | BlockSizes:
        """All of them, shape (n,), in one pass, where they are few; else this, of which counts are asked."""
        return self if many_records(self.shape[0]) else _gathered(self.table, self.of)

    def counts(self, edges: Array) -> Array:
        """One pass; see `CountedColumns`."""
        return self.table.sum(_sizes_between, self.of, edges)[0]


class BlockColumns:
    """Columns of a table in blocks, features or the target.

    Args:
        table: that was looked through.
        target: whether the target is meant, as a table of one column.
    """

    def __init__(self, table: ExaminedTable | ConsecutiveRecords, *, target: bool = False) -> None:
        self.table, self.target = table, target

    @property
    def shape(self) -> tuple[int, int]:
        """Records and columns."""
        return self.table.shape[0], 1 if self.target else self.table.shape[1]

    def counts(self, edges: Array) -> Array:
        """One pass; see `CountedColumns`."""
        return self.table.sum(_columns_between, edges, self.target)[0]


def many_records(records: int) -> bool:
    """Whether so many records are counted, not gathered; a public fact."""
    return records > MOST_GATHERED


@dataclass(frozen=True, slots=True)
class Norms:
    """Norms of rows, each column clipped before where bounds are given.

    Args:
        low, high: shape (d,), or None.
    """

    low: Array | None = None
    high: Array | None = None

    def __call__(self, block: Block) -> Array:
        """Shape (m,)."""
        if not len(block):
            return np.empty(0)
        rows = readable(block.features)
        return row_norms(rows if self.low is None else np.clip(rows, self.low, self.high))


def _gathered(table: ExaminedTable | ConsecutiveRecords, function: Callable[[Block], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """What a function gives of the records of each block, side by side along the last axis: one pass."""
    values: np.ndarray[Any, Any] | None = None
    start = 0
    for answer in table.answers(function, ()):
        found: np.ndarray[Any, Any] = answer.values
        if not found.size:
            continue
        if values is None:
            values = np.empty((*found.shape[:-1], table.shape[0]), dtype=found.dtype)
        values[..., start : start + found.shape[-1]] = found
        start += found.shape[-1]
    assert values is not None  # there are at least two records
    assert start == values.shape[-1]  # each block was seen to hold as many records as before
    return values


def _sizes_between(block: Block, of: Sizes, edges: Array) -> tuple[Array]:
    return (counts_between(of(block), edges[0])[None],)


def _columns_between(block: Block, edges: Array, target: bool) -> tuple[Array]:
    if not len(block):
        return (np.zeros((edges.shape[0], edges.shape[1] + 1)),)
    if target:
        assert block.targets is not None
        return (ColumnsInMemory(block.targets).counts(edges),)
    return (ColumnsInMemory(readable(block.features)).counts(edges),)
