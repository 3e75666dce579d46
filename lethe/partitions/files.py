"""Tables of arrays and of files: .npy files, which are mapped and never read whole, and Parquet files, of which a row group is a block.

Users call them for tables larger than memory, and give the result to `fit` of an estimator or of `lethe.train`.
"""

import importlib
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from lethe.calculus.domains import require_count
from lethe.errors import InputError, MissingExtraError
from lethe.partitions.block import Block, refused
from lethe.partitions.dask_tables import OnCluster, require_client
from lethe.partitions.passes import BlockCallback, BlockLocation, Threads, default_workers
from lethe.partitions.readers import ArrayReader, FrameReader, require_numbers
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
    """
    features, targets = _opened("X", X), None if y is None else _opened("y", y)
    require_numbers("X", features.dtype)
    if features.ndim != 2 or features.shape[1] == 0:
        raise InputError(f"X: got shape {features.shape}; it needs (records, columns) with at least one column.", source="the argument X")
    if targets is not None and targets.shape != (len(features),):
        raise InputError(f"y: got shape {targets.shape}; it needs ({len(features)},), one for each record.", source="the argument y")
    count = max(1, -(-features.size // 2**24)) if blocks is None else min(require_count("blocks", blocks), max(1, len(features)))
    edges = pairwise(len(features) * index // count for index in range(count + 1))
    parts = [
        BlockLocation(
            index, f"block {index} (records {start} to {stop})", (_rows(X, features, start, stop), _rows(y, targets, start, stop))
        )
        for index, (start, stop) in enumerate(edges)
    ]
    return PartitionedTable(
        parts=tuple(parts),
        read=ArrayReader(width=features.shape[1], kind=str(features.dtype), target_kind=None if targets is None else str(targets.dtype)),
        executor=Threads(default_workers(workers)),
        progress=progress,
    )


def _opened(name: str, array: Any) -> np.ndarray[Any, Any]:
    if isinstance(array, str | os.PathLike):
        return _mapped(os.fspath(array))
    try:
        return np.asarray(array)
    except (TypeError, ValueError):
        raise InputError(f"{name}: got {type(array).__name__}, which is no array.", source=f"the argument {name}") from None


def _mapped(path: str) -> np.ndarray[Any, Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a .npy file: {error}.", source=path, remedy="write it by numpy.save") from error


def _rows(source: Any, array: np.ndarray[Any, Any] | None, start: int, stop: int) -> Any:
    if array is None:
        return None
    return _Rows(str(Path(source).absolute()), start, stop) if isinstance(source, str | os.PathLike) else array[start:stop]


class ParquetReader(FrameReader):
    """Blocks of (file, row group)."""

    __slots__ = ()

    def __call__(self, stored: Any, name: str) -> Block:
        """Read one row group, the columns that are used and no others."""
        path, group = stored
        try:
            table = _file(path).read_row_group(group, columns=list(self.names), use_threads=False)
        except (OSError, ValueError) as error:
            raise InputError(f"{name}: cannot be read: {error}.", source=path) from error
        for column in table.column_names:
            if table.column(column).null_count:
                raise refused(name, column, "a value is missing", "fill it by a number known without looking at the records, before")
        frame = _ArrowFrame(table.select([column for column in self.names if column in table.column_names]))
        return FrameReader.__call__(self, frame, name)


def parquet_table(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    columns: Sequence[str] | None = None,
    workers: int | None = None,
    client: Any = None,
    progress: bool | BlockCallback = True,
) -> PartitionedTable:
    """A table of Parquet files, read row group by row group.

    Args:
        paths: a file, a folder of them, a pattern such as "people/*.parquet", or a list of files; records are in the order
            of the names.
        columns: those that are used, the target, weights and users included; None: all.
        workers: threads of this process that read; None: one for each processor.
        client: a `distributed.Client`, whose workers read in their place: every one of them must see the files under the same paths.
        progress: as `PartitionedTable`.
    Raises:
        InputError: a file that cannot be read or is listed twice, an unknown column, or files that differ in columns, order, or types.
        MissingExtraError: pyarrow is not installed.
    """
    files = [(path, _file(path)) for path in _listed(paths)]
    like = _ArrowFrame(files[0][1].schema_arrow.empty_table())
    read = ParquetReader(names=tuple(like.columns), kinds=tuple(map(str, like.dtypes)))
    for path, file in files:
        read.require_like(_ArrowFrame(file.schema_arrow.empty_table()), path)
        if file.metadata.num_rows == 0:
            raise InputError(
                f"{path}: holds no records; each file needs one at least.", source=f"{path}; nothing was released", remedy="leave it out"
            )
    groups = [(path, group) for path, file in files for group in range(file.num_row_groups)]
    return PartitionedTable(
        parts=tuple(BlockLocation(index, f"{path}, row group {group}", (path, group)) for index, (path, group) in enumerate(groups)),
        read=read if columns is None else read.only(tuple(columns)),
        executor=Threads(default_workers(workers)) if client is None else OnCluster(require_client(client)),
        progress=progress,
    )


class _ArrowFrame:
    """An Arrow table as `FrameReader` reads frames, without pandas."""

    def __init__(self, table: Any) -> None:
        self.columns, self.dtypes = table.column_names, [_numpy_type(field.type) for field in table.schema]
        self._table = table

    def __len__(self) -> int:
        return self._table.num_rows

    def __getitem__(self, column: str) -> Any:
        return self._table.column(column)


def _numpy_type(kind: Any) -> np.dtype[Any]:
    try:
        return np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return np.dtype(object)


def _file(path: str) -> Any:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError("Parquet files need pyarrow, which is not installed.", remedy='pip install "lethe-dp[train]"') from error
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a Parquet file: {error}.", source=path) from error


def _listed(paths: Any) -> list[str]:
    """Absolute paths of a file, a folder, a pattern or a list; refuses a file that is listed twice."""
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        files = [path] if path.is_file() else sorted(path.glob("*.parquet") if path.is_dir() else path.parent.glob(path.name))
    else:
        many = isinstance(paths, Sequence) and all(isinstance(path, str | os.PathLike) for path in cast(Sequence[Any], paths))
        files = [Path(path) for path in cast(Sequence[Any], paths)] if many else []
    if not files:
        needed = "a file, a folder, a pattern or a list of files, of which there is one at least"
        raise InputError(f"paths: got {paths!r}; it needs {needed}.", source="the argument paths", remedy='parquet_table("people.parquet")')
    files_by_inode = dict[object, Path]()
    for file in files:
        status = file.stat() if file.exists() else None  # whoever opens it will say so
        # Whatever its names: its records would count twice in every sum, and each move it by twice its bound.
        before = files_by_inode.setdefault((status.st_dev, status.st_ino) if status and status.st_ino else file.resolve(), file)
        if before is not file:
            raise InputError(
                f"{file}: is listed twice, as {before} too; its records would count twice, and no certificate would cover them.",
                source="the argument paths",
                remedy="list every file once, and no links to it",
            )
    return [str(file.absolute()) for file in files]
