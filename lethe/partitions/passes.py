"""One pass over a table in blocks: a pure function of each block and of public parameters, whose results are summed once each.

`ExaminedTable` (table.py) runs every sum of a mechanism as a pass; executors are threads here or a Dask cluster. A record counted twice
would break the sensitivity, so a repeated answer counts once.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from lethe.calculus.domains import FloatArray, require_count
from lethe.errors import InputError, LetheError
from lethe.partitions.block import Block, Fingerprint, Rows
from lethe.partitions.partition_tasks import computed

# Of a partition as it is stored, and its name; refuses what is not as the table says.
Reader = Callable[[Any, str], Block]
# The number of the pass, from 1; blocks done; blocks of the pass.
BlockCallback = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class BlockLocation:
    """Where one block is: its number in every pass, its name, and which records are asked for (None: all).

    `stored` is what the reader makes a Block of: an address, arrays, or tasks of Dask with their inputs (`partition_tasks`).
    """

    place: int
    name: str
    stored: Any
    rows: Rows | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BlockResult:
    """What came of a block: how it was read, what the function gave, bytes of its features as an array; or why it was refused."""

    place: int
    seen: Fingerprint | None
    values: Any
    size: int = 0
    fault: LetheError | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Work:
    """What is done to every block, which must pickle; its text has no parameters, since workers log it where a task fails."""

    read: Reader
    function: Callable[..., Any]
    parameters: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"<Work of {getattr(self.function, '__name__', 'a function')}>"

    def __call__(self, index: int, name: str, stored: Any, rows: Rows | None) -> BlockResult:
        """What comes of a part, whose fields these are, with what it holds computed."""
        try:
            block = self.read(stored, name)
            fingerprint, size = block.fingerprint(), block.features.nbytes
            return BlockResult(index, fingerprint, self.function(block if rows is None else block.some(rows), *self.parameters), size)
        except LetheError as fault:
            return BlockResult(index, None, None, fault=fault)


class Executor(Protocol):
    """Carries out a pass."""

    def answers(self, parts: Sequence[BlockLocation], work: Work) -> Iterator[BlockResult]:
        """In any order, and maybe more than once; closing the iterator ends what still runs."""
        ...


@dataclass(frozen=True, slots=True)
class Threads:
    """Blocks on so many threads of this process: at most one more block than threads is in memory."""

    workers: int

    def answers(self, parts: Sequence[BlockLocation], work: Work) -> Iterator[BlockResult]:
        """In the order of the parts."""
        if self.workers == 1 or len(parts) == 1:
            yield from (_answered(work, part) for part in parts)
            return
        pool, waiting = ThreadPoolExecutor(self.workers), deque[Future[BlockResult]]()
        try:
            for part in parts:
                if len(waiting) > self.workers:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(_answered, work, part))
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def default_workers(workers: int | None) -> int:
    """How many threads: as asked for, or one for each processor that this process may use."""
    if workers is not None:
        return require_count("workers", workers)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def not_computed(name: str, error: Exception) -> InputError:
    """The fault of a partition that was not there to be read."""
    return InputError(f"{name}: cannot be computed: {error}", source=f"{name}; nothing was released", remedy="compute it alone to see why")


def _answered(work: Work, part: BlockLocation) -> BlockResult:
    """Carry the work out on one block in this process; an error in reading it becomes the result's fault."""
    try:
        stored = computed(part.stored)
    except Exception as error:  # whatever the user's own graph does
        return BlockResult(part.place, None, None, fault=not_computed(part.name, error))
    return work(part.place, part.name, stored, part.rows)


def once_each(answers: Iterator[BlockResult], indices: Sequence[int]) -> Iterator[BlockResult]:
    """One answer for each block, in the order of the places: later ones are dropped; a LetheError where a block gave none."""
    expected, early, next_place = set(indices), dict[int, BlockResult](), 0
    for answer in answers:
        if answer.place not in expected:
            continue  # a duplicate, or none of this pass
        expected.discard(answer.place)
        early[answer.place] = answer
        while next_place < len(indices) and indices[next_place] in early:
            yield early.pop(indices[next_place])
            next_place += 1
        if not expected:
            return
    raise LetheError(
        f"partitions: {len(expected)} of {len(indices)} gave no result; nothing was released.",
        source="whatever carries out the tasks",
        remedy="look at its logs, and fit again",
    )


def total(parts: Iterable[tuple[Any, ...]]) -> tuple[FloatArray, ...]:
    """Sums of tuples of arrays of the same shapes, in float64, by Neumaier's summation: as if added in twice the precision."""
    sums: list[FloatArray] = []
    lost: list[FloatArray] = []
    for values in parts:
        arrays = [np.asarray(value, dtype=np.float64) for value in values]
        if not sums:
            sums, lost = [array.copy() for array in arrays], [np.zeros_like(array) for array in arrays]
            continue
        for index, array in enumerate(arrays):
            before = sums[index]
            after = before + array
            lost[index] += np.where(np.abs(before) >= np.abs(array), (before - after) + array, (array - after) + before)
            sums[index] = after
    return tuple(partial_sum + rest for partial_sum, rest in zip(sums, lost, strict=True))


@contextmanager
def pass_progress(
    progress: bool | BlockCallback, number: int, blocks: int, *, seconds_before: float | None = None
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of finished blocks of a pass; a bar shows what the pass before took."""
    if callable(progress):
        yield lambda done: progress(number, done, blocks)
    elif progress and sys.stderr.isatty():
        with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
            before = "" if seconds_before is None else f" (the one before took {seconds_before:.0f} s)"
            task = bar.add_task(f"pass {number}{before}", total=blocks)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield lambda done: None
