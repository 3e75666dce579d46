"""PartitionedTable: records in blocks, of which nobody sees more than sums; and the same table once a fit has looked through it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate
from time import monotonic
from typing import Any, Protocol, Self

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError, LetheError
from lethe.partitions.block import Block, Fingerprint
from lethe.partitions.passes import BlockLocation, BlockResult, Executor, Work, once_each
from lethe.partitions.progress import BlockCallback, blocks_told, require_progress
from lethe.partitions.totals import total

Places = np.ndarray[Any, np.dtype[np.intp]]


class TableReader(Protocol):
    """Makes a Block of a partition as it is stored, and refuses one that is not as the others."""

    @property
    def columns(self) -> tuple[Any, ...]:
        """Names of the features, or their numbers."""
        ...

    @property
    def has_targets(self) -> bool:
        """Whether blocks come with targets."""
        ...

    def with_target(self, target: Any) -> Self:
        """The same, with one of the columns as targets.

        Raises:
            InputError: there is no such column, or there are targets already.
        """
        ...

    @property
    def has_weights(self) -> bool:
        """Whether blocks come with weights."""
        ...

    @property
    def has_users(self) -> bool:
        """Whether blocks come with users."""
        ...

    def with_beside(self, *, weights: Any, users: Any) -> Self:
        """The same, with columns that are no features but weights of records, or whose they are; None: there is none.

        Raises:
            InputError: there is no such column.
        """
        ...

    def __call__(self, stored: Any, name: str) -> Block:
        """The block."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedTable:
    """A table in blocks; made by `parquet_table`, `array_table` or `dask_table`.

    Args:
        parts: where the blocks are, in the order in which their records count.
        read: makes a Block of each.
        executor: carries out passes.
        progress: True: a bar on standard error, if that is a terminal; False: none; or a function of (pass, blocks done, blocks).
        chosen: whether the records were chosen of another table's, so that some blocks may be left with none.
    """

    parts: tuple[BlockLocation, ...]
    read: TableReader
    executor: Executor
    progress: bool | BlockCallback = True
    chosen: bool = False

    def __post_init__(self) -> None:
        require_progress(self.progress)
        if not self.parts:
            raise InputError("partitions: there are none; at least one is needed.", remedy="give a table with records")

    @property
    def columns(self) -> tuple[Any, ...]:
        """Names of the features, or their numbers."""
        return self.read.columns

    def with_target(self, target: Any) -> PartitionedTable:
        """The same table, one of whose columns is no feature but what is to be predicted.

        Raises:
            InputError: there is no such column, or the table has targets already.
        """
        return replace(self, read=self.read.with_target(target))

    def with_beside(self, *, weights: Any = None, users: Any = None) -> PartitionedTable:
        """The same table, one of whose columns is no feature but the records' weights, another whose they are.

        Raises:
            InputError: there is no such column.
        """
        return self if weights is None and users is None else replace(self, read=self.read.with_beside(weights=weights, users=users))

    def examined(self, look: Callable[..., Any], *parameters: Any) -> tuple[ExaminedTable, list[Any]]:
        """Look through every block once: NaN, infinity and blocks without records are refused; what blocks hold is noted for later passes.

        Args:
            look: of (Block, *parameters): what else is asked of a block; it may refuse it by an InputError.
            parameters: public.
        Returns:
            The table, and what `look` gave, block by block.
        Raises:
            InputError: a block that cannot be used; it names partition and column.
        """
        table = ExaminedTable(self)
        found = list(table.answers(_looked_at, (look, *parameters) if self.chosen else (_some_records, look, *parameters)))
        table.seen = tuple(answer.seen for answer in found if answer.seen is not None)
        return table, [answer.values for answer in found]


class ExaminedTable:
    """A table whose blocks have been looked through; every later pass must find them as they were.

    Args:
        source: the table.
    """

    def __init__(self, source: PartitionedTable) -> None:
        self.source = source
        self.seen: tuple[Fingerprint, ...] = ()
        self.passes = 0
        self._seconds: float | None = None  # of the last pass

    @property
    def shape(self) -> tuple[int, int]:
        """Records and features."""
        return sum(one.records for one in self.seen), len(self.source.columns)

    def sum(
        self, function: Callable[..., tuple[Any, ...]], *parameters: Any, records: slice | Places | None = None
    ) -> tuple[FloatArray, ...]:
        """Sums of what a function gives of each block: one pass, each block once, added in the order of the blocks.

        Args:
            function: of (Block, *parameters), to a tuple of arrays of shapes that do not depend on the block; it must pickle.
            parameters: the same for all blocks. They go to the workers, and are as private as what they were made of.
            records: which ones, counted through all blocks in their order: consecutive ones, or at least one by their numbers, each once.
                None: all. The numbers go to the workers, and are as private as what they were drawn from.
        Raises:
            InputError: a block that cannot be used.
            LetheError: a block that is not as it was when the table was looked through, or one that gave nothing.
        """
        drawn = records is not None and not isinstance(records, slice)
        parts = self.source.parts if records is None else self.within(records) if isinstance(records, slice) else self._at(records)
        return total(answer.values for answer in self.answers(function, parameters, parts, drawn=drawn))

    def nothing_drawn(self) -> None:
        """A step that drew no record, told as any other: nobody is to see that it was empty."""
        self.passes += 1
        with blocks_told(self.source.progress, self.passes, len(self.source.parts)) as told:
            told(len(self.source.parts))

    def answers(
        self,
        function: Callable[..., Any],
        parameters: tuple[Any, ...],
        parts: Sequence[BlockLocation] | None = None,
        *,
        drawn: bool = False,
    ) -> Iterator[BlockResult]:
        """What a function gives of each block, in the order of the blocks.

        Args:
            function, parameters: as `sum`.
            parts: which blocks; None: all.
            drawn: whether these blocks hold records that were drawn in secret. Progress then tells of a pass over all blocks, once it
                is over, whichever were read.
        """
        chosen = self.source.parts if parts is None else parts
        blocks = len(self.source.parts if drawn else chosen)
        self.passes += 1
        work, begun = Work(self.source.read, function, parameters), monotonic()
        with (
            closing(self.source.executor.answers(chosen, work)) as running,  # pyright: ignore[reportArgumentType]
            blocks_told(self.source.progress, self.passes, blocks, seconds_before=self._seconds) as told,
        ):
            for done, answer in enumerate(once_each(running, [part.place for part in chosen]), start=1):
                if answer.fault is not None:
                    raise answer.fault
                if self.seen and answer.seen != self.seen[answer.place]:
                    raise changed(self.source.parts[answer.place].name)
                yield answer
                if not drawn:
                    told(done)
            if drawn:
                told(blocks)
        self._seconds = monotonic() - begun

    def within(self, records: slice) -> list[BlockLocation]:
        """The parts that hold some consecutive records, each with its share of them."""
        ends = list(accumulate(one.records for one in self.seen))
        parts = list[BlockLocation]()
        for place in range(bisect_right(ends, records.start), len(ends)):
            first = ends[place] - self.seen[place].records
            if first >= records.stop:
                break
            if ends[place] > first:
                rows = max(records.start - first, 0), min(records.stop, ends[place]) - first
                parts.append(replace(self.source.parts[place], rows=rows))
        return parts

    def _at(self, records: Places) -> list[BlockLocation]:
        """The parts that hold some of these records, each with their places in it."""
        ends, numbers = np.cumsum([one.records for one in self.seen]), np.sort(records)
        if len(numbers) == 0 or numbers[0] < 0 or numbers[-1] >= ends[-1] or bool((numbers[1:] == numbers[:-1]).any()):
            raise LetheError(f"records: they need numbers from 0 to {ends[-1] - 1}, each once.", source="what draws batches")
        held = np.searchsorted(ends, numbers, side="right")
        found = [(int(place), numbers[held == place]) for place in np.unique(held)]
        return [replace(self.source.parts[place], rows=own - (int(ends[place]) - self.seen[place].records)) for place, own in found]


def _looked_at(block: Block, look: Callable[..., Any], *parameters: Any) -> Any:
    block.refuse_not_finite()
    return look(block, *parameters)


def _some_records(block: Block, look: Callable[..., Any], *parameters: Any) -> Any:
    if len(block) == 0:
        raise InputError(
            f"{block.name}: holds no records; each partition needs one at least, since one without may be a file that was lost.",
            source=f"{block.name}; nothing was released",
            remedy="leave it out; after a filter in Dask, call frame.repartition(...) so that none is empty",
        )
    return look(block, *parameters)


def changed(name: str) -> LetheError:
    """The error of a block that is not as it was.

    Args:
        name: of the partition.
    """
    return LetheError(
        f"{name}: holds other records, or in another order, than when the table was looked through; nothing was released.",
        source="the files were changed, or Dask computes this partition by chance",
        remedy="write the table to Parquet first, or persist it, and fit again",
    )
