"""Prefetching in a background thread with a bounded queue."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits

T = TypeVar("T")

# Seconds after which a thread that waits for room looks whether it is still wanted.
_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class _Ended:
    """What comes after the last item: an error, or None."""

    error: BaseException | None


def prefetched(items: Iterator[T], depth: int) -> Generator[T]:
    """`items`, at most `depth` + 1 of them drawn ahead in a background thread.

    An error in `items` is raised here, after the items that came before it. When the consumer stops early (break, an error, an
    interruption, `close`), the thread ends once the item it is drawing is there, `items` is closed, and only then does this return. A
    generator that a script leaves half used is ended when the interpreter exits, before the modules that it needs are gone.

    Args:
        items: drawn in the thread, and nowhere else.
        depth: >= 0; 0 draws in the caller's thread.
    """
    if depth == 0:
        yield from items
        return
    queue: Queue[Any] = Queue(maxsize=depth)
    unwanted = threading.Event()
    thread = threading.Thread(target=_draw, args=(items, queue, unwanted), name="lethe-prefetch", daemon=True)
    thread.start()
    end = weakref.finalize(thread, _end, queue, unwanted, thread)
    try:
        while not isinstance(entry := queue.get(), _Ended):
            yield entry
        if entry.error is not None:
            raise entry.error
    finally:
        end()


def _end(queue: Queue[Any], unwanted: threading.Event, thread: threading.Thread) -> None:
    unwanted.set()
    _drained(queue)
    thread.join()


def _draw(items: Iterator[Any], queue: Queue[Any], unwanted: threading.Event) -> None:
    error: BaseException | None = None
    try:
        try:
            with _one_core():
                for item in items:
                    if not _put(item, queue, unwanted):
                        break
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
    except BaseException as caught:  # passed on, so that it is raised where somebody sees it
        error = caught
    _put(_Ended(error), queue, unwanted)


@contextmanager
def _one_core() -> Generator[None]:
    """Within: PyTorch's operations in this thread are not divided among others.

    Those others would be more than there are processors, together with those of the thread that trains: then OpenMP's threads do not wait
    for work but sleep, and each operation takes longer (ViT on two cores: 1.3 plain steps in the place of 1.2).
    """
    torch.get_num_threads()  # what PyTorch sets once in each thread, it sets here
    with threadpool_limits(limits=1, user_api="openmp"):
        yield


def _put(entry: Any, queue: Queue[Any], unwanted: threading.Event) -> bool:
    while not unwanted.is_set():
        try:
            queue.put(entry, timeout=_PATIENCE)
        except Full:
            continue
        return not unwanted.is_set()
    return False


def _drained(queue: Queue[Any]) -> None:
    try:
        while True:
            queue.get_nowait()
    except Empty:
        return
