"""Passes on a cluster of Dask: one task for each block, its answer to the driver and nowhere else."""

from __future__ import annotations

import importlib
import pickle
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from lethe.errors import InputError, LetheError, MissingExtraError
from lethe.partitions.block import Rows
from lethe.partitions.partition_tasks import computed
from lethe.partitions.passes import BlockLocation, BlockResult, Work, not_computed

_SMALLER = (
    "make partitions smaller where they are read (dd.read_parquet(..., split_row_groups=True), smaller row groups or chunks), persist "
    "less, or give workers more memory (memory_limit): a worker holds about two blocks a thread, beside what is persisted"
)
STANDSTILL = 60.0  # seconds without a block until workers are asked whether they are paused


def dask_module(name: str) -> Any:
    """A module of Dask, or MissingExtraError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{name} is not installed.", remedy='pip install "lethe-dp[dask]"') from error


def require_client(client: Any) -> Any:
    """A `distributed.Client` that blocks, or an InputError."""
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
    return require_client(client)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unshown:
    """The records of a block that are asked for, in a form that workers do not write into their logs where a task fails."""

    rows: Rows | None

    def __repr__(self) -> str:
        return "<records of a batch>"


@dataclass(frozen=True, slots=True, eq=False)
class OnCluster:
    """Blocks as tasks of a client's cluster: each reads its block and computes what is asked of it, so that none waits between two tasks.

    A worker that dies is Dask's business: the task runs again elsewhere, and counts once.
    """

    client: Any

    def answers(self, parts: Sequence[BlockLocation], work: Work) -> Iterator[BlockResult]:
        """As tasks end; if this ends before, those that are left are cancelled. A LetheError where the cluster cannot go on."""
        delayed, distributed = dask_module("dask").delayed, dask_module("distributed")
        token = secrets.token_hex(8)  # a task of a pass is never taken for one of another
        shared = delayed(work, name=f"lethe-work-{token}", traverse=False)
        task = delayed(_answer, pure=False, traverse=False)
        tasks = [
            task(shared, part.place, part.name, part.stored, Unshown(part.rows), dask_key_name=f"lethe-block-{token}-{part.place}")
            for part in parts
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
                while True:
                    try:
                        future = ended.get(timeout=STANDSTILL)
                        break
                    except Empty:
                        _refuse_paused(self.client, done=done, blocks=len(futures), largest=largest)
                try:
                    answer = future.result()
                except distributed.KilledWorker as error:
                    raise _given_up(part_of[future], error, f"if it was their memory, {_SMALLER}; else ") from error
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


def _given_up(part: BlockLocation, error: Exception, remedy: str = "") -> LetheError:
    return LetheError(
        f"{part.name}: the cluster gave it up: {error}", source="Dask; nothing was released", remedy=f"{remedy}look at the workers' logs"
    )


def _answer(work: Work, place: int, name: str, stored: Any, asked: Unshown) -> BlockResult:
    return work(place, name, computed(stored), asked.rows)


def _refuse_paused(client: Any, *, done: int, blocks: int, largest: int) -> None:
    """End a pass that cannot go on: at least one worker is paused, and none computes anything."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"].values())
    paused = [worker for worker in workers if worker["status"] == "paused"]
    if not paused or any(worker["metrics"]["task_counts"].get("executing") for worker in workers):
        return
    held = ", ".join(f"{_gigabytes(worker['metrics']['memory'])} of {_gigabytes(worker['memory_limit'])}" for worker in paused[:4])
    size = f"the largest of them holds {_gigabytes(largest)} as an array" if done else "how large blocks are is not known yet"
    raise LetheError(
        f"partitions: {len(paused)} of {len(workers)} workers are paused and full ({held}); {done} of {blocks} blocks were read, {size}.",
        source="Dask; nothing was released",
        remedy=_SMALLER,
    )


def _gigabytes(size: int | None) -> str:
    return f"{size / 1e9:.3g} GB" if size else "no limit"
