"""PartitionedTable: records in blocks, read only by sums over them; and ExaminedTable, the same after a first pass checked it.

Mechanisms and estimators ask an `ExaminedTable` for sums of a function over records; files.py and dask_tables.py make the tables. The first
pass checks all numbers, so that later ones only sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate
from time import monotonic
from typing import Any

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError, LetheError
from lethe.partitions.block import Block, Fingerprint, Rows
from lethe.partitions.passes import BlockCallback, BlockLocation, BlockResult, Executor, Work, once_each, pass_progress, total
from lethe.partitions.readers import OuterReader, TableReader

Places = np.ndarray[Any, np.dtype[np.intp]]
# Rows, float64, shape (m, D), and their targets, shape (m,): records of a block, a chunk at a time.
Chunks = Iterable[tuple[FloatArray, FloatArray]]
_ROUNDING = 1.0 + 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedTable:
    """A table in blocks, in the order in which their records count; made by `parquet_table`, `array_table` or `dask_table`.

    Args:
        progress: True: a bar on standard error, if that is a terminal; False: none; or a function of (pass, blocks done, blocks).
        chosen: whether the records were chosen of another table's, so that some blocks may be left with none.
    """

    parts: tuple[BlockLocation, ...]
    read: TableReader
    executor: Executor
    progress: bool | BlockCallback = True
    chosen: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.progress, bool) and not callable(self.progress):
            raise InputError(f"progress: got {self.progress!r}; it needs True, False or a function of (pass, blocks done, blocks).")
        if not self.parts:
            raise InputError("partitions: there are none; at least one is needed.", remedy="give a table with records")

    @property
    def columns(self) -> tuple[Any, ...]:
        """Names of the features, or their numbers."""
        return self.read.columns

    def with_target(self, target: Any) -> PartitionedTable:
        """The same table, one of whose columns is no feature but what is to be predicted."""
        return replace(self, read=self.read.with_columns(targets=target))

    def with_beside(self, *, weights: Any = None, users: Any = None) -> PartitionedTable:
        """The same table, one of whose columns is no feature but the records' weights, another whose they are."""
        nothing = weights is None and users is None
        return self if nothing else replace(self, read=self.read.with_columns(weights=weights, users=users))

    def examined(self, look: Callable[..., Any], *parameters: Any) -> tuple[ExaminedTable, list[Any]]:
        """Look through every block once: NaN, infinity and blocks without records are refused; what blocks hold is noted for later passes.

        `look`, of (Block, *parameters), asks what else is wanted of a block, or refuses it; what it gave comes back block by block.
        """
        table = ExaminedTable(self)
        results = list(table.answers(_looked_at, (look, *parameters) if self.chosen else (_some_records, look, *parameters)))
        table.seen = tuple(answer.seen for answer in results if answer.seen is not None)
        return table, [answer.values for answer in results]


class ExaminedTable:
    """A table whose blocks have been looked through; every later pass must find them as they were."""

    def __init__(self, source: PartitionedTable) -> None:
        self.source = source
        self.seen: tuple[Fingerprint, ...] = ()
        self.passes = 0
        self._seconds: float | None = None  # of the last pass

    @property
    def shape(self) -> tuple[int, int]:
        """Records and features."""
        return sum(fingerprint.records for fingerprint in self.seen), len(self.source.columns)

    def sum(self, function: Callable[..., tuple[Any, ...]], *parameters: Any, records: Rows | None = None) -> tuple[FloatArray, ...]:
        """Sums of what a function gives of each block: one pass, each block once, added in the order of the blocks.

        The function, which must pickle, makes a tuple of arrays of (Block, *parameters), of shapes that do not depend on the block. Records
        are counted through all blocks in their order: consecutive ones, or at least one by their numbers, each once; None: all. Parameters
        and numbers go to the workers, and are as private as what they were made of or drawn from.
        """
        drawn = records is not None and not isinstance(records, slice)
        parts = self.source.parts if records is None else self.within(records) if isinstance(records, slice) else self._at(records)
        return total(answer.values for answer in self.answers(function, parameters, parts, drawn=drawn))

    def nothing_drawn(self) -> None:
        """A step that drew no record, told as any other: nobody is to see that it was empty."""
        self.passes += 1
        with pass_progress(self.source.progress, self.passes, len(self.source.parts)) as report_progress:
            report_progress(len(self.source.parts))

    def answers(
        self, function: Callable[..., Any], parameters: tuple[Any, ...], parts: Sequence[BlockLocation] | None = None, drawn: bool = False
    ) -> Iterator[BlockResult]:
        """What a function, as of `sum`, gives of each block, in the order of the blocks; of all, or some.

        Of blocks that hold records `drawn` in secret, progress tells of a pass over all, whichever were read. A LetheError says that one
        cannot be used, is not as it was when the table was looked through, or gave nothing.
        """
        chosen = self.source.parts if parts is None else parts
        blocks = len(self.source.parts if drawn else chosen)
        self.passes += 1
        work, begun = Work(self.source.read, function, parameters), monotonic()
        with (
            closing(self.source.executor.answers(chosen, work)) as running,  # pyright: ignore[reportArgumentType]
            pass_progress(self.source.progress, self.passes, blocks, seconds_before=self._seconds) as told,
        ):
            for done, answer in enumerate(once_each(running, [part.place for part in chosen]), start=1):
                if answer.fault is not None:
                    raise answer.fault
                if self.seen and answer.seen != self.seen[answer.place]:
                    raise _changed(self.source.parts[answer.place].name)
                yield answer
                if not drawn:
                    told(done)
            if drawn:
                told(blocks)
        self._seconds = monotonic() - begun

    def within(self, records: slice) -> list[BlockLocation]:
        """The parts that hold some consecutive records, each with its share of them."""
        parts = list[BlockLocation]()
        for part, seen, end in zip(self.source.parts, self.seen, accumulate(fingerprint.records for fingerprint in self.seen), strict=True):
            first = end - seen.records
            start, stop = max(records.start, first), min(records.stop, end)
            if start < stop:
                parts.append(replace(part, rows=slice(start - first, stop - first)))
        return parts

    def _at(self, records: Places) -> list[BlockLocation]:
        """The parts that hold some of these records, each with their places in it."""
        ends, numbers = np.cumsum([fingerprint.records for fingerprint in self.seen]), np.sort(records)
        if len(numbers) == 0 or numbers[0] < 0 or numbers[-1] >= ends[-1] or bool((numbers[1:] == numbers[:-1]).any()):
            raise LetheError(f"records: they need numbers from 0 to {ends[-1] - 1}, each once.", source="what draws batches")
        blocks = np.searchsorted(ends, numbers, side="right")
        return [
            replace(
                self.source.parts[block_index],
                rows=numbers[blocks == block_index] - (int(ends[block_index]) - self.seen[block_index].records),
            )
            for block_index in np.unique(blocks).tolist()
        ]


def _looked_at(block: Block, look: Callable[..., Any], *parameters: Any) -> Any:
    """The answer of `look` on a block whose numbers are finite; refuses others."""
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


def _changed(name: str) -> LetheError:
    return LetheError(
        f"{name}: holds other records, or in another order, than when the table was looked through; nothing was released.",
        source="the files were changed, or Dask computes this partition by chance",
        remedy="write the table to Parquet first, or persist it, and fit again",
    )


class ConsecutiveRecords:
    """Records `start` to `stop` in the order of the blocks of a table that was looked through."""

    def __init__(self, table: ExaminedTable, start: int, stop: int) -> None:
        assert 0 <= start < stop <= table.shape[0]
        self.table, self.start, self.stop = table, start, stop

    @property
    def shape(self) -> tuple[int, int]:
        """Records and features."""
        return self.stop - self.start, self.table.shape[1]

    def part(self, start: int, stop: int) -> ConsecutiveRecords:
        """Some of these, counted from the first of them."""
        assert 0 <= start <= stop <= self.stop - self.start
        return ConsecutiveRecords(self.table, self.start + start, self.start + stop)

    def sum(self, function: Callable[..., tuple[Any, ...]], *parameters: Any) -> tuple[FloatArray, ...]:
        """As `ExaminedTable.sum`: one pass over the blocks that hold them."""
        return self.table.sum(function, *parameters, records=slice(self.start, self.stop))

    def answers(self, function: Callable[..., Any], parameters: tuple[Any, ...]) -> Iterator[BlockResult]:
        """As `ExaminedTable.answers`."""
        return self.table.answers(function, parameters, self.table.within(slice(self.start, self.stop)))


@dataclass(frozen=True, slots=True, eq=False)
class _ChosenReader(OuterReader):
    """Some records of (a block as another reader takes it, which of them as bits, what the block held when they were chosen)."""

    def __call__(self, stored: Any, name: str) -> Block:
        """A block of the records that are kept, or a LetheError: if it changed, a record might be on both sides of a split."""
        whole, bits, expected_fingerprint = stored
        block = self.read(whole, name)
        if tuple(block.fingerprint()) != expected_fingerprint:
            raise _changed(name)
        return block.some(np.flatnonzero(np.unpackbits(bits, count=len(block))))


def chosen_records(table: ExaminedTable, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> PartitionedTable:
    """A table of some of the records, those where `chosen`, of shape (n,), is true; it tells nobody of its passes."""
    ends = list(accumulate(fingerprint.records for fingerprint in table.seen))
    assert chosen.shape == (ends[-1],)
    parts = tuple(
        replace(part, stored=(part.stored, np.packbits(chosen[end - fingerprint.records : end]), tuple(fingerprint)))
        for part, fingerprint, end in zip(table.source.parts, table.seen, ends, strict=True)
    )
    return replace(table.source, parts=parts, read=_ChosenReader(table.source.read), progress=False, chosen=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordSums:
    """A table as mechanisms read it: rows of bounded norm with their targets, of which they get sums only.

    `prepare`, which must pickle, makes chunks of a block, each record by itself, of rows of D columns; one beyond `norm` ends the pass.
    """

    table: ExaminedTable
    prepare: Callable[[Block], Iterator[tuple[FloatArray, FloatArray]]]
    columns: int
    norm: float

    def __len__(self) -> int:
        return self.table.shape[0]

    def require_norm(self, norm: float) -> None:
        """Refuse rows that may be longer than a mechanism supposes."""
        if not self.norm <= norm * _ROUNDING:
            raise InputError(f"features: rows have norms up to {self.norm:g}; the mechanism supposes at most {norm:g}.")

    def sum(self, function: Callable[..., tuple[Any, ...]], *parameters: Any) -> tuple[FloatArray, ...]:
        """Sums of what a function of (Chunks, *parameters) gives of each block: one pass.

        It gives a tuple of arrays of fixed shapes, and must pickle; a block without records has no chunks.
        """
        return self.table.sum(_of_block, self.prepare, self.norm * _ROUNDING, function, *parameters)


def _of_block(block: Block, prepare: Callable[[Block], Chunks], norm: float, function: Callable[..., Any], *rest: Any) -> Any:
    return function(_checked(prepare(block), norm), *rest)


def _checked(chunks: Chunks, norm: float) -> Iterator[tuple[FloatArray, FloatArray]]:
    """The chunks, each refused if a row is longer than the bound on which the sensitivity rests."""
    for rows, targets in chunks:
        if len(rows) and not float(np.einsum("nd,nd->n", rows, rows).max()) <= norm * norm:
            raise LetheError("a row is longer than its bound; nothing was released.", source="what prepares rows for a mechanism")
        yield rows, targets
