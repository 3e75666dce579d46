"""One pass: a pure function of each block and of public parameters, carried out anywhere; what comes back counts once for each block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lethe.errors import InputError, LetheError
from lethe.partitions.block import Block, Fingerprint
from lethe.partitions.partition_tasks import computed

# Of a partition as it is stored, and its name; refuses what is not as the table says.
Reader = Callable[[Any, str], Block]
Rows = tuple[int, int] | np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True, slots=True, eq=False)
class BlockLocation:
    """Where one block is.

    Args:
        place: its number, which it keeps in every pass.
        name: for people.
        stored: what the reader makes a Block of: an address, arrays, or tasks of Dask with their inputs (`partition_tasks`).
        rows: which records are asked for, (start, stop) or their places; None: all.
    """

    place: int
    name: str
    stored: Any
    rows: Rows | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BlockResult:
    """What came of one block.

    Args:
        place: the block's number.
        seen: the block as it was read.
        values: what the function gave; None where the block was refused.
        size: bytes of the block's features, as an array.
        fault: why it was.
    """

    place: int
    seen: Fingerprint | None
    values: Any
    size: int = 0
    fault: LetheError | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Work:
    """What is done to every block; it is sent to workers, so function and parameters must pickle.

    Its text leaves parameters out: workers write it into their logs where a task fails.

    Args:
        read: makes a Block.
        function: of (Block, *parameters).
        parameters: the same for all blocks.
    """

    read: Reader
    function: Callable[..., Any]
    parameters: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"<Work of {getattr(self.function, '__name__', 'a function')}>"

    def __call__(self, place: int, name: str, stored: Any, rows: Rows | None) -> BlockResult:
        """What comes of a part, whose fields these are, with what it holds computed."""
        try:
            block = self.read(stored, name)
            seen, size = block.fingerprint(), block.features.nbytes
            if rows is not None:
                block = block.rows(*rows) if isinstance(rows, tuple) else block.some(rows)
            return BlockResult(place, seen, self.function(block, *self.parameters), size)
        except LetheError as fault:
            return BlockResult(place, None, None, fault=fault)


class Executor(Protocol):
    """Carries out a pass; answers may come in any order, and more than once."""

    def answers(self, parts: Sequence[BlockLocation], work: Work) -> Iterator[BlockResult]:
        """The answers; closing the iterator ends what still runs."""
        ...


@dataclass(frozen=True, slots=True)
class Threads:
    """Blocks on threads of this process: at most one more block than threads is in memory.

    Args:
        workers: how many threads.
    """

    workers: int

    def answers(self, parts: Sequence[BlockLocation], work: Work) -> Iterator[BlockResult]:
        """In the order of the parts."""
        if self.workers == 1 or len(parts) == 1:
            for part in parts:
                yield _answered(work, part)
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


def not_computed(name: str, error: Exception) -> InputError:
    """The fault of a partition that was not there to be read."""
    return InputError(f"{name}: cannot be computed: {error}", source=f"{name}; nothing was released", remedy="compute it alone to see why")


def _answered(work: Work, part: BlockLocation) -> BlockResult:
    try:
        stored = computed(part.stored)
    except Exception as error:  # whatever the user's own graph does
        return BlockResult(part.place, None, None, fault=not_computed(part.name, error))
    return work(part.place, part.name, stored, part.rows)


def once_each(answers: Iterator[BlockResult], places: Sequence[int]) -> Iterator[BlockResult]:
    """One answer for each block, in the order of the places: later ones of the same block are dropped.

    Args:
        answers: in any order.
        places: of the blocks, in the order in which they count.
    Raises:
        LetheError: a block gave none.
    """
    expected, early, given = set(places), dict[int, BlockResult](), 0
    for answer in answers:
        if answer.place not in expected:
            continue  # a duplicate, or none of this pass
        expected.discard(answer.place)
        early[answer.place] = answer
        while given < len(places) and places[given] in early:
            yield early.pop(places[given])
            given += 1
        if not expected:
            return
    raise LetheError(
        f"partitions: {len(expected)} of {len(places)} gave no result; nothing was released.",
        source="whatever carries out the tasks",
        remedy="look at its logs, and fit again",
    )
