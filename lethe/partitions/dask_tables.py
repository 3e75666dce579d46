"""Tables of Dask's collections, of which a partition or a block of rows is a block; and what `fit` makes of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from lethe.errors import InputError
from lethe.partitions.cluster import OnCluster, current_client, require_client
from lethe.partitions.files import default_workers
from lethe.partitions.partition_tasks import partition_tasks
from lethe.partitions.passes import BlockCallback, BlockLocation, Threads
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
    """
    if not is_dask(X) or X.ndim != 2:
        raise InputError(f"X: got {type(X).__name__}; it needs a dask.dataframe.DataFrame or a dask.array.Array.", source="the argument X")
    parts, read = _frames(X, y) if hasattr(X, "columns") else _arrays(X, y)
    found = require_client(client) if client is not None else current_client() if workers is None else None
    return PartitionedTable(
        parts=parts, read=read, executor=Threads(default_workers(workers)) if found is None else OnCluster(found), progress=progress
    )


def table_in_blocks(X: Any, y: Any = None, *, targets: bool = True, beside: tuple[Any, Any] | None = None) -> PartitionedTable | None:
    """The table, where X is one in blocks; None: it is in memory.

    Args:
        X: a PartitionedTable, or a DataFrame or an Array of Dask.
        y: where X has columns with names, that of the target, or of Dask's collections one in the same partitions.
        targets: whether there must be some.
        beside: columns with what records weigh, and whose they are, each None where none is named; None: whoever asks takes neither.
    """
    if is_dask(X):
        table = dask_table(X) if y is None or isinstance(y, str) else dask_table(X, y)
    elif isinstance(X, PartitionedTable):
        table = X
        if y is not None and not isinstance(y, str):
            raise InputError(
                f"y: got {type(y).__name__}; for a table in blocks it is the name of a column.",
                source="the argument y",
                remedy="give its name, or the targets where the table is made, such as array_table(X, y)",
            )
    else:
        return None
    if isinstance(y, str):
        table = table.with_target(y)
    if targets and "targets" not in table.read.roles:
        raise InputError("y: it needs the targets, and the table in blocks has none.", source="the argument y", remedy="name a column")
    if beside is not None:
        return table.with_beside(weights=beside[0], users=beside[1])
    if more := sorted(table.read.roles - {"targets"}, reverse=True):  # left out in silence, a certificate would be of something else
        raise InputError(
            f"X: the table in blocks has {more[0]}; only fit of the linear models takes them, and of these no search and no step before.",
            source="the argument X, with_beside",
            remedy="give the table without with_beside, of the columns that are to be read",
        )
    return table


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
    reader = FrameReader(names=names, kinds=kinds, target_kind=str(y.dtype))
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
