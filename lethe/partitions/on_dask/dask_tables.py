"""Tables of Dask's collections: a partition of a DataFrame, or a block of rows of an Array, is a block."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from lethe.errors import InputError
from lethe.partitions.array_tables import default_workers
from lethe.partitions.on_dask.cluster import OnCluster, current_client, given_client
from lethe.partitions.partition_tasks import partition_tasks
from lethe.partitions.passes import BlockLocation, Threads
from lethe.partitions.progress import BlockCallback
from lethe.partitions.readers import ArrayReader, FrameReader, require_numbers
from lethe.partitions.table import PartitionedTable


def dask_table(
    X: Any, y: Any = None, *, client: Any = None, workers: int | None = None, progress: bool | BlockCallback = True
) -> PartitionedTable:
    """A table of Dask's collections. Every pass computes them anew, but for what was persisted.

    Args:
        X: a dask.dataframe.DataFrame, or a dask.array.Array of shape (n, d).
        y: targets: a Series or an Array in the same partitions; None: there are none, or `fit` names a column of X.
        client: a `distributed.Client`; None: the current one, or threads of this process where there is none.
        workers: threads, where there is no client; None: one for each processor.
        progress: as `PartitionedTable`.
    Raises:
        InputError: no such collections, or two that are partitioned in different ways.
    """
    if not is_dask(X) or X.ndim != 2:
        raise InputError(f"X: got {type(X).__name__}; it needs a dask.dataframe.DataFrame or a dask.array.Array.", source="the argument X")
    parts, read = _frames(X, y) if hasattr(X, "columns") else _arrays(X, y)
    found = given_client(client) if client is not None else current_client() if workers is None else None
    return PartitionedTable(
        parts=parts, read=read, executor=Threads(default_workers(workers)) if found is None else OnCluster(found), progress=progress
    )


def is_dask(X: Any) -> bool:
    """Whether X is a DataFrame, a Series or an Array of Dask; asked without importing it."""
    return "dask" in sys.modules and hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed") and hasattr(X, "ndim")


def _frames(X: Any, y: Any) -> tuple[tuple[BlockLocation, ...], FrameReader]:
    names, kinds = tuple(X.columns), tuple(str(kind) for kind in X.dtypes)
    if len(set(names)) < len(names):
        raise InputError("X: two columns have one name; each needs its own.", source="the argument X")
    if y is None:
        return _parts(partition_tasks([(frame,) for frame in X.to_delayed()])), FrameReader(names=names, kinds=kinds)
    if not is_dask(y) or not hasattr(y, "divisions") or y.ndim != 1 or y.npartitions != X.npartitions:
        raise _apart(y, X.npartitions)
    reader = FrameReader(names=names, kinds=kinds, apart=True, target_kind=str(y.dtype))
    # As one collection: by themselves, files of few columns are read in fewer partitions.
    pairs = X.map_partitions(_paired, y, align_dataframes=False, enforce_metadata=False, meta=(None, "object"))
    return _parts(partition_tasks([(pair,) for pair in pairs.to_delayed()])), reader


def _paired(frame: Any, targets: Any) -> tuple[Any, Any]:
    return frame, targets


def _arrays(X: Any, y: Any) -> tuple[tuple[BlockLocation, ...], ArrayReader]:
    require_numbers("X", X.dtype)
    rows = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
    # As they are: Dask's optimisation would make two tasks of what features and targets are both made of, and let go of what is persisted.
    blocks = rows.to_delayed(optimize_graph=False).ravel()
    if y is None:
        reader = ArrayReader(width=int(X.shape[1]), kind=str(X.dtype))
        return _parts([(tasks, None) for tasks in partition_tasks([(block,) for block in blocks])]), reader
    if not is_dask(y) or hasattr(y, "divisions") or y.ndim != 1 or y.npartitions != len(blocks):
        raise _apart(y, len(blocks))
    reader = ArrayReader(width=int(X.shape[1]), kind=str(X.dtype), target_kind=str(y.dtype))
    return _parts(partition_tasks(list(zip(blocks, y.to_delayed(optimize_graph=False).ravel(), strict=True)))), reader


def _parts(stored: Sequence[Any]) -> tuple[BlockLocation, ...]:
    return tuple(BlockLocation(place, f"partition {place}", one) for place, one in enumerate(stored))


def _apart(y: Any, partitions: int) -> InputError:
    got = f"{y.npartitions} partitions" if is_dask(y) else type(y).__name__
    return InputError(
        f"y: got {got}; it needs one column in the {partitions} partitions of X, of the same kind as X.",
        source="the argument y",
        remedy="take X and y from one collection, such as frame[features] and frame[label], or give the name of a column",
    )
