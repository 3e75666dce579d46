"""Passes on a cluster of Dask: one task for each block, its answer to the driver and nowhere else."""

from __future__ import annotations

import importlib
import pickle
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from lethe.errors import InputError, LetheError, MissingExtraError
from lethe.partitions.on_dask.paused_workers import SMALLER_PARTITIONS, refuse_paused
from lethe.partitions.partition_tasks import computed
from lethe.partitions.passes import BlockLocation, BlockResult, Rows, Work, not_computed

STANDSTILL = 60.0  # seconds without a block until workers are asked whether they are paused
_SLOW_IMPORTS = "lethe.train", "lethe.estimators"  # seconds; workers import those that are in use here


def dask_module(name: str) -> Any:
    """A module of Dask.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{name} is not installed.", remedy='pip install "lethe-dp[dask]"') from error


def given_client(client: Any) -> Any:
    """A `distributed.Client` that blocks.

    Raises:
        InputError: it is none.
    """
    kind = dask_module("distributed").Client
    if not isinstance(client, kind) or client.asynchronous:
        raise InputError(f"client: got {type(client).__name__}; it needs a distributed.Client that is not asynchronous.")
    return client


def current_client() -> Any | None:
    """The client that is current in this thread; None: there is none."""
    try:
        client = dask_module("distributed").get_client(timeout=0)
    except (MissingExtraError, ValueError):
        return None
    return given_client(client)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unshown:
    """The records of a block that are asked for, in a form that workers do not write into their logs where a task fails.

    Args:
        rows: as of `BlockLocation`.
    """

    rows: Rows | None

    def __repr__(self) -> str:
        return "<records of a batch>"


@dataclass(frozen=True, slots=True, eq=False)
class OnCluster:
    """Blocks as tasks of a cluster: each reads its block and computes what is asked of it, so that no block waits between two tasks.

    A worker that dies is Dask's business: the task runs again elsewhere, and counts once.

    Args:
        client: of the cluster.
    """

    client: Any
    _warm: set[str] = field(default_factory=set, init=False)

    def answers(self, parts: Sequence[BlockLocation], work: Work) -> Iterator[BlockResult]:
        """As tasks end; if this ends before, those that are left are cancelled.

        Raises:
            LetheError: the cluster gave up a task, or stands still because workers are paused.
        """
        delayed, distributed = dask_module("dask").delayed, dask_module("distributed")
        self._warm_up()
        token = secrets.token_hex(8)  # a task of a pass is never taken for one of another
        shared = delayed(work, name=f"lethe-work-{token}", traverse=False)
        task = delayed(_answer, pure=False, traverse=False)
        tasks = [
            task(shared, part.place, part.name, part.stored, asked, dask_key_name=f"lethe-block-{token}-{part.place}")
            for part, asked in ((part, Unshown(part.rows)) for part in parts)
        ]
        try:
            futures = self.client.compute(tasks)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise InputError(
                f"partitions: what is done to them cannot be sent to the workers: {error}",
                source="Dask; nothing was released",
                remedy="give what can be pickled, such as modules of classes that are defined in a file",
            ) from error
        part_of = dict(zip(futures, parts, strict=True))
        ended: SimpleQueue[Any] = SimpleQueue()
        for future in futures:
            future.add_done_callback(ended.put)
        largest = 0
        try:
            for done in range(len(futures)):
                future = self._next(ended, done=done, blocks=len(futures), largest=largest)
                try:
                    answer = future.result()
                except distributed.KilledWorker as error:
                    raise _given_up(part_of[future], error, f"if it was their memory, {SMALLER_PARTITIONS}; else ") from error
                except (distributed.client.FutureCancelledError, LetheError) as error:
                    raise _given_up(part_of[future], error) from error
                except Exception as error:  # whatever the user's own graph does
                    answer = BlockResult(part_of[future].place, None, None, fault=not_computed(part_of[future].name, error))
                future.release()
                largest = max(largest, answer.size)
                yield answer
        finally:
            left = [future for future in futures if future.status == "pending"]
            if left:
                self.client.cancel(left, force=True)

    def _warm_up(self) -> None:
        """Import Lethe on all workers at once, not on one after the other while tasks wait for it."""
        cold = [worker for worker in self.client.nthreads() if worker not in self._warm]
        if cold:
            # Of a worker that fails here, the tasks say why.
            self.client.run(_import, [name for name in _SLOW_IMPORTS if name in sys.modules], workers=cold, on_error="ignore")
            self._warm.update(cold)

    def _next(self, ended: SimpleQueue[Any], **progress: int) -> Any:
        while True:
            try:
                return ended.get(timeout=STANDSTILL)
            except Empty:
                refuse_paused(self.client, **progress)


def _import(names: list[str]) -> None:
    for name in names:
        importlib.import_module(name)


def _given_up(part: BlockLocation, error: Exception, remedy: str = "") -> LetheError:
    return LetheError(
        f"{part.name}: the cluster gave it up: {error}", source="Dask; nothing was released", remedy=f"{remedy}look at the workers' logs"
    )


def _answer(work: Work, place: int, name: str, stored: Any, asked: Unshown) -> BlockResult:
    return work(place, name, computed(stored), asked.rows)
