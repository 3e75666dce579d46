"""Some of the records of a table in blocks as a table of their own, in the order in which they are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from lethe.partitions.block import Block
from lethe.partitions.readers import OuterReader
from lethe.partitions.table import ExaminedTable, PartitionedTable, changed

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class ChosenReader(OuterReader):
    """Blocks of another reader, of which only some records are kept; each must be as it was when they were chosen.

    Args:
        read: the other, of (as it is stored, which records as bits, what the block held).
    """

    @property
    def columns(self) -> tuple[Any, ...]:
        """As the other has them."""
        return self.read.columns

    def __call__(self, stored: Any, name: str) -> Block:
        """A block of the records that are kept.

        Raises:
            LetheError: it holds others than when they were chosen: a record might then be on both sides of a split.
        """
        whole, bits, seen = stored
        block = self.read(whole, name)
        if tuple(block.fingerprint()) != seen:
            raise changed(name)
        return block.some(np.flatnonzero(np.unpackbits(bits, count=len(block))))


def chosen_records(table: ExaminedTable, chosen: Mask) -> PartitionedTable:
    """A table of some of the records; it tells nobody of its passes.

    Args:
        table: that was looked through.
        chosen: which of its records, shape (n,).
    """
    ends = list(accumulate(one.records for one in table.seen))
    assert chosen.shape == (ends[-1],)
    parts = tuple(
        replace(part, stored=(part.stored, np.packbits(chosen[end - seen.records : end]), tuple(seen)))
        for part, seen, end in zip(table.source.parts, table.seen, ends, strict=True)
    )
    return replace(table.source, parts=parts, read=ChosenReader(table.source.read), progress=False, chosen=True)
