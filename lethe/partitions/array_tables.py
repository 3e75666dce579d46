"""Tables of arrays and of .npy files, which are mapped and never read whole."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.partitions.passes import BlockLocation, Threads
from lethe.partitions.progress import BlockCallback
from lethe.partitions.readers import ArrayReader, require_numbers
from lethe.partitions.table import PartitionedTable


class _Rows:
    """Rows of a .npy file: an address, so that it can be sent to another process, and is mapped there."""

    def __init__(self, path: str, start: int, stop: int) -> None:
        self.path, self.start, self.stop = path, start, stop

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(_mapped(self.path)[self.start : self.stop], dtype=dtype)


def array_table(
    X: Any, y: Any = None, *, blocks: int | None = None, workers: int | None = None, progress: bool | BlockCallback = True
) -> PartitionedTable:
    """A table of arrays in memory, or of .npy files.

    Args:
        X: shape (n, d), numbers: an array, or the path of a .npy file. Neither is copied as a whole.
        y: targets, shape (n,), the same; None: there are none.
        blocks: into how many equal parts the records are cut, one record each at the least; None: about 2**24 numbers each.
        workers: threads; None: one for each processor that this process may use.
        progress: as `PartitionedTable`.
    Raises:
        InputError: no such arrays, a file that cannot be read, or another number of targets than of records.
    """
    features, targets = _opened("X", X), None if y is None else _opened("y", y)
    require_numbers("X", features)
    if features.ndim != 2 or features.shape[1] == 0:
        raise InputError(f"X: got shape {features.shape}; it needs (records, columns) with at least one column.", source="the argument X")
    if targets is not None and targets.shape != (len(features),):
        raise InputError(f"y: got shape {targets.shape}; it needs ({len(features)},), one for each record.", source="the argument y")
    count = max(1, -(-features.size // 2**24)) if blocks is None else min(require_count("blocks", blocks), max(1, len(features)))
    edges = [len(features) * place // count for place in range(count + 1)]
    return PartitionedTable(
        parts=tuple(
            BlockLocation(
                place, f"block {place} (records {start} to {stop})", (_rows(X, features, start, stop), _rows(y, targets, start, stop))
            )
            for place, (start, stop) in enumerate(pairwise(edges))
        ),
        read=ArrayReader(width=features.shape[1], kind=str(features.dtype), target_kind=None if targets is None else str(targets.dtype)),
        executor=Threads(default_workers(workers)),
        progress=progress,
    )


def default_workers(workers: int | None) -> int:
    """How many threads: as asked for, or one for each processor that this process may use.

    Raises:
        InputError: no whole number >= 1.
    """
    if workers is not None:
        return require_count("workers", workers)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _opened(name: str, given: Any) -> np.ndarray[Any, Any]:
    if isinstance(given, str | os.PathLike):
        return _mapped(os.fspath(given))
    try:
        return np.asarray(given)
    except (TypeError, ValueError):
        raise InputError(f"{name}: got {type(given).__name__}, which is no array.", source=f"the argument {name}") from None


def _mapped(path: str) -> np.ndarray[Any, Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a .npy file: {error}.", source=path, remedy="write it by numpy.save") from error


def _rows(given: Any, array: np.ndarray[Any, Any] | None, start: int, stop: int) -> Any:
    if array is None:
        return None
    return _Rows(str(Path(given).absolute()), start, stop) if isinstance(given, str | os.PathLike) else array[start:stop]
