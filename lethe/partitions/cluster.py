"""Passes on a cluster of Dask: one task for each block, its answer to the driver and nowhere else."""

from __future__ import annotations

import importlib
import pickle
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.errors import InputError, LetheError, MissingExtraError
from lethe.partitions.passes import Answer, Part, Rows, Work, not_computed


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
        rows: as of `Part`.
    """

    rows: Rows | None

    def __repr__(self) -> str:
        return "<records of a batch>"


@dataclass(frozen=True, slots=True, eq=False)
class OnCluster:
    """Blocks as tasks of a cluster. A worker that dies is Dask's business: the task runs again elsewhere, and counts once.

    Args:
        client: of the cluster.
    """

    client: Any

    def answers(self, parts: Sequence[Part], work: Work) -> Iterator[Answer]:
        """As tasks end; if this ends before, those that are left are cancelled.

        Raises:
            LetheError: the cluster gave up a task.
        """
        delayed, distributed = dask_module("dask").delayed, dask_module("distributed")
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
        try:
            for future in distributed.as_completed(futures):
                try:
                    answer = future.result()
                except (distributed.KilledWorker, distributed.client.FutureCancelledError, LetheError) as error:
                    name = part_of[future].name
                    raise LetheError(
                        f"{name}: the cluster gave it up: {error}", source="Dask; nothing was released", remedy="look at the workers' logs"
                    ) from error
                except Exception as error:  # whatever the user's own graph does
                    answer = Answer(part_of[future].place, None, None, not_computed(part_of[future].name, error))
                future.release()
                yield answer
        finally:
            left = [future for future in futures if future.status == "pending"]
            if left:
                self.client.cancel(left, force=True)


def _answer(work: Work, place: int, name: str, stored: Any, asked: Unshown) -> Answer:
    return work(place, name, stored, asked.rows)
