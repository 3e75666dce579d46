"""Tables of Parquet files: a row group is a block."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from lethe.errors import InputError, MissingExtraError
from lethe.partitions.array_tables import default_workers
from lethe.partitions.block import Block, refused
from lethe.partitions.on_dask.cluster import OnCluster, given_client
from lethe.partitions.passes import BlockLocation, Threads
from lethe.partitions.progress import BlockCallback
from lethe.partitions.readers import FrameReader, common_type
from lethe.partitions.table import PartitionedTable


class ParquetReader(FrameReader):
    """Blocks of (file, row group); `kinds` are Arrow's types."""

    __slots__ = ()

    def __call__(self, stored: Any, name: str) -> Block:
        """Read one row group, the columns that are used and no others.

        Raises:
            InputError: a file that cannot be read, another type than the first file's, or missing values.
        """
        path, group = stored
        file = _file(path)
        _refuse_other(file.schema_arrow, self.names, self.kinds, name)
        try:
            table = file.read_row_group(group, columns=list(self.names), use_threads=False)
        except (OSError, ValueError) as error:
            raise InputError(f"{name}: cannot be read: {error}.", source=path) from error
        for column in self.names:
            if table.column(column).null_count:
                raise refused(name, column, "a value is missing", "fill it by a number known without looking at the records, before")
        kind = common_type(self.columns, [_numpy_type(table.schema.field(column).type) for column in self.columns], name)
        held = np.empty((len(self.columns), table.num_rows), kind)
        for place, column in enumerate(self.columns):
            held[place] = table.column(column).to_numpy()
        beside = (self.target, self.weights, self.users)
        targets, weights, users = (None if column is None else table.column(column).to_numpy() for column in beside)
        return Block(name=name, columns=self.columns, features=held.T, targets=targets, weights=weights, users=users)


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
        InputError: a file that cannot be read or is listed twice, an unknown column or one that is named twice, or files that differ in
            columns, their order, or types.
        MissingExtraError: pyarrow is not installed.
    """
    files = [(path, _file(path)) for path in _listed(paths)]
    first, schema = files[0][0], files[0][1].schema_arrow
    names = tuple(schema.names) if columns is None else tuple(columns)
    if missing := [name for name in names if name not in schema.names]:
        raise InputError(f"columns: got {missing[0]!r}; {first} has the columns {', '.join(schema.names)}.", source="the argument columns")
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"columns: got {twice[0]!r} twice; each needs a name of its own.", source="the argument columns")
    kinds = tuple(str(schema.field(name).type) for name in names)
    for path, file in files:
        if list(file.schema_arrow.names) != list(schema.names):
            pairs = zip([*file.schema_arrow.names, None], [*schema.names, None], strict=False)
            got, needed = next(pair for pair in pairs if pair[0] != pair[1])
            raise refused(
                path,
                needed or got,
                f"{got!r} stands where {first} has {needed!r}",
                "write all files with the same columns in the same order",
            )
        _refuse_other(file.schema_arrow, names, kinds, path)
        if file.metadata.num_rows == 0:
            raise InputError(
                f"{path}: holds no records; each file needs one at least.", source=f"{path}; nothing was released", remedy="leave it out"
            )
    groups = [(path, group) for path, file in files for group in range(file.num_row_groups)]
    return PartitionedTable(
        parts=tuple(BlockLocation(place, f"{path}, row group {group}", (path, group)) for place, (path, group) in enumerate(groups)),
        read=ParquetReader(names=names, kinds=kinds, left_out=tuple(name for name in schema.names if name not in names)),
        executor=Threads(default_workers(workers)) if client is None else OnCluster(given_client(client)),
        progress=progress,
    )


def _refuse_other(schema: Any, names: tuple[str, ...], kinds: tuple[str, ...], where: str) -> None:
    for name, kind in zip(names, kinds, strict=True):
        got = str(schema.field(name).type) if name in schema.names else "nothing"
        if got != kind:
            raise refused(where, name, f"it holds {got}; the first file holds {kind}", "write all files with the same types")


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
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        found = [path] if path.is_file() else sorted(path.glob("*.parquet") if path.is_dir() else path.parent.glob(path.name))
    elif isinstance(paths, Sequence) and all(isinstance(one, str | os.PathLike) for one in cast(Sequence[Any], paths)):
        found = [Path(one) for one in cast(Sequence[Any], paths)]
    else:
        raise InputError(
            f"paths: got {paths!r}; it needs a file, a folder, a pattern or a list of files.",
            source="the argument paths",
            remedy='parquet_table("people.parquet")',
        )
    if not found:
        raise InputError(
            f"paths: got {paths!r}; there is no such file.", source="the argument paths", remedy="give .parquet files, or a folder"
        )
    _refuse_twice(found)
    return [str(one.absolute()) for one in found]


def _refuse_twice(files: list[Path]) -> None:
    """A file that is listed twice, whatever its names: its records would count twice in every sum, and each move it by twice its bound."""
    seen = dict[object, Path]()
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue  # whoever opens it will say so
        before = seen.setdefault((found.st_dev, found.st_ino) if found.st_ino else file.resolve(), file)
        if before is not file:
            other = "" if before == file else f", as {before}"
            raise InputError(
                f"{file}: is listed twice{other}; its records would count twice, and no certificate would cover them.",
                source="the argument paths",
                remedy="list every file once, and no links to it",
            )
