"""Numbers of single records for a private quantile: gathered by the driver where they are few enough to sort, else counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.estimators.inputs.ranges import coordinate
from lethe.estimators.inputs.readable import readable
from lethe.estimators.inputs.records import row_norms
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.ranks import coordinates
from lethe.mechanisms.quantiles.searched import COMPARISONS
from lethe.partitions.block import Block
from lethe.partitions.consecutive import ConsecutiveRecords
from lethe.partitions.table import ExaminedTable

MOST_GATHERED = 2**23  # 64 MiB, and ten times that while they are ranked

Sizes = Callable[[Block], Array]


class BlockSizes:
    """A number of each record of a table in blocks.

    Args:
        table: that was looked through.
        of: of a Block, to the numbers of its records, shape (m,); it must pickle.
    """

    def __init__(self, table: ExaminedTable | ConsecutiveRecords, of: Sizes) -> None:
        self.table, self.of = table, of

    def __len__(self) -> int:
        return self.table.shape[0]

    def found(self) -> Array | BlockSizes:
        """All of them, shape (n,), in one pass, where they are few; else this, of which counts are asked."""
        return self if many_records(len(self)) else _gathered(self.table, self.of)

    def at_most(self, points: Array, low: float, high: float) -> Array:
        """One pass; see `CountedSizes`.

        Args: as `CountedSizes.at_most`.
        """
        return self.table.sum(_sizes_at_most, self.of, points, low, high)[0]


class BlockColumns:
    """Columns of a table in blocks, features or the target.

    Args:
        table: that was looked through.
        target: whether the target is meant, as a table of one column.
    """

    def __init__(self, table: ExaminedTable | ConsecutiveRecords, *, target: bool = False) -> None:
        self.table, self.target = table, target
        self._kept, self._from = np.empty((0, 0)), 0

    @property
    def shape(self) -> tuple[int, int]:
        """Records and columns."""
        return self.table.shape[0], 1 if self.target else self.table.shape[1]

    @property
    def many(self) -> bool:
        """Whether gathering them takes more passes than counting."""
        return many_columns(*self.shape)

    def column(self, place: int) -> Array:
        """One of them, gathered with as many others as fit; a pass each time none of those is asked for."""
        if not self._from <= place < self._from + len(self._kept):
            records, columns = self.shape
            self._kept = np.empty((0, 0))  # not both at once
            stop = min(place + max(1, MOST_GATHERED // records), columns)
            self._kept, self._from = _gathered(self.table, _Columns(place, stop, target=self.target)), place
        return self._kept[place - self._from].astype(np.float64)

    def at_most(self, points: Array, far: float) -> Array:
        """One pass; see `UnseenColumns`."""
        return self.table.sum(_columns_at_most, _Columns(0, self.shape[1], target=self.target), points, far)[0]


def many_records(records: int) -> bool:
    """Whether so many records are counted, not gathered; a public fact."""
    return records > MOST_GATHERED


def many_columns(records: int, columns: int) -> bool:
    """The same of columns; a public fact."""
    return many_records(records) or -(-columns // (MOST_GATHERED // records)) > COMPARISONS


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


@dataclass(frozen=True, slots=True)
class _Columns:
    """Some of the columns, one after the other.

    Args:
        start, stop: which ones.
        target: whether it is the target.
    """

    start: int
    stop: int
    target: bool

    def __call__(self, block: Block) -> np.ndarray[Any, Any]:
        """Shape (stop - start, m)."""
        if not self.target:
            # Of whole rows, whose other entries `readable` looks at as well.
            return np.ascontiguousarray(readable(block.features)[:, self.start : self.stop].T) if len(block) else block.features[:, :0].T
        assert block.targets is not None
        return block.targets.astype(np.float64)[None, :]


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


def _sizes_at_most(block: Block, of: Sizes, points: Array, low: float, high: float) -> tuple[Array]:
    found = coordinates(of(block), low, high, "logarithmic")
    return (np.array([np.count_nonzero(found <= point) for point in points], dtype=np.float64),)


def _columns_at_most(block: Block, columns: _Columns, points: Array, far: float) -> tuple[Array]:
    counts = np.zeros(points.shape)
    if len(block):
        for place, (values, own) in enumerate(zip(columns(block), points, strict=True)):
            found = coordinate(np.clip(values.astype(np.float64), -far, far))
            counts[place] = [np.count_nonzero(found <= point) for point in own]
    return (counts,)
