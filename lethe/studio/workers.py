"""Threads that compute beside the loop that serves the page, and that end with the program, whatever they are at."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any


class WorkerThreads:
    """So many threads of that name, and what waits for them. Unlike the standard pool's, they hold no exit up."""

    def __init__(self, count: int, name: str) -> None:
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        for _ in range(count):
            Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have `work(*arguments)` done; what is cancelled before its turn is never begun."""
        future: Future[Any] = Future()
        self._waiting.put((future, work, arguments))
        return future

    def _work(self) -> None:
        while True:
            future, work, arguments = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work(*arguments))
            except BaseException as error:
                future.set_exception(error)
            del future, work, arguments
            # glibc keeps what was freed for its thread: gigabytes after a few runs of a million steps.
            with suppress(OSError, AttributeError, TypeError):  # another system's library
                ctypes.CDLL(None).malloc_trim(0)
