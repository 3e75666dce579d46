"""ConsecutiveRecords: some of the records of a table in blocks, one after the other, of which sums are had as of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lethe.calculus.domains import FloatArray
from lethe.partitions.passes import BlockResult
from lethe.partitions.table import ExaminedTable


class ConsecutiveRecords:
    """Records `start` to `stop` in the order of the blocks.

    Args:
        table: that was looked through.
        start: the first of them.
        stop: the one after the last, at most n.
    """

    def __init__(self, table: ExaminedTable, start: int, stop: int) -> None:
        assert 0 <= start < stop <= table.shape[0]
        self.table, self.start, self.stop = table, start, stop

    @property
    def shape(self) -> tuple[int, int]:
        """Records and features."""
        return self.stop - self.start, self.table.shape[1]

    def part(self, start: int, stop: int) -> ConsecutiveRecords:
        """Some of these, counted from the first of them."""
        assert start >= 0
        assert self.start + stop <= self.stop
        return ConsecutiveRecords(self.table, self.start + start, self.start + stop)

    def sum(self, function: Callable[..., tuple[Any, ...]], *parameters: Any) -> tuple[FloatArray, ...]:
        """As `ExaminedTable.sum`: one pass over the blocks that hold them."""
        return self.table.sum(function, *parameters, records=slice(self.start, self.stop))

    def answers(self, function: Callable[..., Any], parameters: tuple[Any, ...]) -> Iterator[BlockResult]:
        """As `ExaminedTable.answers`."""
        return self.table.answers(function, parameters, self.table.within(slice(self.start, self.stop)))
