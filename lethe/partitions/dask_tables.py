"""Tables made of Dask's collections, and passes over them on a cluster: one task a block, whose result goes to the driver only.

Users call `dask_table`; estimators call `table_in_blocks` on what `fit` was given, and take its result as any table in blocks.
"""

import importlib
import pickle
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from lethe.errors import InputError, LetheError, MissingExtraError
from lethe.partitions.block import Rows
from lethe.partitions.partition_tasks import computed, partition_tasks
from lethe.partitions.passes import BlockCallback, BlockLocation, BlockResult, Threads, Work, default_workers, not_computed
from lethe.partitions.readers import ArrayReader, FrameReader, require_numbers
from lethe.partitions.table import PartitionedTable

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
    """Blocks as tasks of a client's cluster: each reads its block and computes what is asked of it; one that runs again counts once."""

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
            pending = [future for future in futures if future.status == "pending"]
            if pending:
                self.client.cancel(pending, force=True)


def _given_up(part: BlockLocation, error: Exception, remedy: str = "") -> LetheError:
    return LetheError(
        f"{part.name}: the cluster gave it up: {error}", source="Dask; nothing was released", remedy=f"{remedy}look at the workers' logs"
    )


def _answer(work: Work, index: int, name: str, stored: Any, rows: Unshown) -> BlockResult:
    return work(index, name, computed(stored), rows.rows)


def _refuse_paused(client: Any, *, done: int, blocks: int, largest: int) -> None:
    """End a pass that cannot go on: at least one worker is paused, and none computes anything."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"].values())
    paused = [worker for worker in workers if worker["status"] == "paused"]
    if not paused or any(worker["metrics"]["task_counts"].get("executing") for worker in workers):
        return
    memory_words = ", ".join(f"{_gigabytes(worker['metrics']['memory'])} of {_gigabytes(worker['memory_limit'])}" for worker in paused[:4])
    size = f"the largest of them holds {_gigabytes(largest)} as an array" if done else "how large blocks are is not known yet"
    raise LetheError(
        f"partitions: {len(paused)} of {len(workers)} workers are paused and full ({memory_words}); "
        f"{done} of {blocks} blocks were read, {size}.",
        source="Dask; nothing was released",
        remedy=_SMALLER,
    )


def _gigabytes(size: int | None) -> str:
    return f"{size / 1e9:.3g} GB" if size else "no limit"


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
    cluster_client = require_client(client) if client is not None else current_client() if workers is None else None
    return PartitionedTable(
        parts=parts,
        read=read,
        executor=Threads(default_workers(workers)) if cluster_client is None else OnCluster(cluster_client),
        progress=progress,
    )


def table_in_blocks(
    X: Any, y: Any = None, *, targets: bool = True, weights_and_users: tuple[Any, Any] | None = None
) -> PartitionedTable | None:
    """The table, where X is one in blocks; None: it is in memory.

    y is the name of a column, or of Dask's collections one in the same partitions; `weights_and_users` are the columns with the
    weights of records and with their users, each None where none is named, or None: the caller takes neither.
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
    if weights_and_users is not None:
        return table.with_beside(weights=weights_and_users[0], users=weights_and_users[1])
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
    """The partitions of a DataFrame, with targets where y is given, and the reader of them."""
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
    """The blocks of an Array, with targets where y is given, and the reader of them."""
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
    return tuple(BlockLocation(index, f"partition {index}", stored_part) for index, stored_part in enumerate(stored))


def _apart(y: Any, partitions: int) -> InputError:
    """The error for a y that is not in the partitions of X."""
    got = f"{y.npartitions} partitions" if is_dask(y) else type(y).__name__
    return InputError(
        f"y: got {got}; it needs one column in the {partitions} partitions of X, of the same kind as X.",
        source="the argument y",
        remedy="take X and y from one collection, such as frame[features] and frame[label], or give the name of a column",
    )
