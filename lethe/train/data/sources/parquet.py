"""Parquet files, read with pyarrow by row groups."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lethe.documents.strict import as_path
from lethe.errors import InputError, MissingExtraError
from lethe.train.core.samplers import Batch
from lethe.train.data.sources.base import Tensors, require_whole

Array = np.ndarray[Any, Any]


class ParquetSource:
    """Records that are the rows of Parquet files; in memory are some row groups and a batch.

    Write row groups that fit into memory (`row_group_size`). Batches drawn at random touch nearly every row group of a file, so each step
    may read all of it: for random designs on data larger than memory, .npy files are the better store.

    Args:
        paths: a .parquet file, a folder of them (in alphabetical order), or a list of files.
        columns: what each tensor of a batch holds: a column's name (shape (k,), or (k, width) for lists of one width), or a list of
            names side by side (shape (k, names), in their common type).
        cached_groups: row groups kept in memory, >= 1.
    Raises:
        InputError: a file that cannot be read, an unknown column, one that holds no numbers, files that differ in types, or no records.
        MissingExtraError: pyarrow is not installed.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        columns: Sequence[str | Sequence[str]],
        *,
        cached_groups: int = 2,
    ) -> None:
        self._cached_groups = require_whole("cached_groups", cached_groups, 1)
        self._files = _opened(paths)
        listed = columns if isinstance(columns, list | tuple) else []
        self._parts: list[tuple[str, ...]] = [
            (part,) if isinstance(part, str) else tuple(part) if isinstance(part, list | tuple) else () for part in listed
        ]
        if not self._parts or not all(part and all(isinstance(name, str) for name in part) for part in self._parts):
            raise InputError(
                f"columns: got {columns!r}; it needs a list with a column's name, or a list of names, for each tensor.",
                remedy='such as columns=[["height", "weight"], "label"].',
            )
        self._names = list(dict.fromkeys(name for part in self._parts for name in part))
        schemas = {path: _only(self._names, path, file.schema_arrow) for path, file in self._files.items()}
        (first, schema), *others = schemas.items()
        if differing := [path for path, other in others if not other.equals(schema)]:
            raise InputError(f"columns: those of {differing[0]} are of other types than those of {first}.")
        self._arrays(schema.empty_table())  # refuses what holds no numbers
        self._groups = [(file, group) for file in self._files.values() for group in range(file.metadata.num_row_groups)]
        self._ends = np.cumsum([file.metadata.row_group(group).num_rows for file, group in self._groups], dtype=np.int64)
        if not len(self):
            raise InputError("data: the Parquet files have no records; it needs at least one.")
        self._cache: dict[int, Any] = {}

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def fetch(self, batch: Batch) -> Tensors:
        """The rows of a batch.

        Raises:
            InputError: a value is missing, a list has another width, or the file can no longer be read.
        """
        rows = np.array(range(len(self))[batch], dtype=np.int64) if isinstance(batch, slice) else batch.numpy()
        groups = np.searchsorted(self._ends, rows, side="right")
        places = rows - np.concatenate([[0], self._ends])[groups]
        found = [self._group(group).take(places[groups == group]) for group in np.unique(groups).tolist()]
        back = np.argsort(np.argsort(groups, kind="stable"))  # from the order of the groups to that of the batch
        return tuple(map(torch.from_numpy, self._arrays(_arrow().concat_tables(found).take(back))))

    def column(self, name: str) -> list[Any]:
        """A whole column, such as ids of users, in the order of the records.

        Raises:
            InputError: a file has no such column.
        """
        for path, file in self._files.items():
            _only([name], path, file.schema_arrow)
        return [value for file in self._files.values() for value in file.read(columns=[name]).column(0).to_pylist()]

    def _group(self, number: int) -> Any:
        if number not in self._cache:
            file, group = self._groups[number]
            while len(self._cache) >= self._cached_groups:
                del self._cache[next(iter(self._cache))]  # that was used the longest ago
            try:
                self._cache[number] = file.read_row_group(group, columns=self._names)
            except (OSError, _arrow().ArrowException) as error:
                raise InputError(f"data: the Parquet files can no longer be read: {error}.") from error
        self._cache[number] = self._cache.pop(number)
        return self._cache[number]

    def _arrays(self, table: Any) -> list[Array]:
        values = {name: _values(name, table.column(name).combine_chunks()) for name in self._names}
        if wrong := [name for part in self._parts for name in part if part[1:] and values[name].ndim > 1]:
            raise InputError(f"columns: {wrong[0]!r} holds lists, which cannot stand side by side.", remedy="name it on its own.")
        return [np.stack([values[name] for name in part], 1) if part[1:] else values[part[0]] for part in self._parts]


def _only(names: list[str], path: str, schema: Any) -> Any:
    """The schema of some columns, which the file must have once."""
    for name in names:
        if schema.names.count(name) != 1:
            raise InputError(f"columns: got {name!r}; {path} has the columns {', '.join(schema.names)}.")
    return _arrow().schema([(name, schema.field(name).type) for name in names])


def _values(name: str, column: Any) -> Array:
    """A column's numbers, shape (k,), or (k, width) of lists."""
    listed = column.type.num_fields == 1
    numbers = column.flatten() if listed else column
    if column.null_count or numbers.null_count:
        raise InputError(f"column {name!r}: a value is missing.", remedy="drop such rows, or fill them in without a look at other records.")
    widths = importlib.import_module("pyarrow.compute").list_value_length(column).unique().to_pylist() if listed else []
    if len(widths) > 1:
        raise InputError(f"column {name!r} holds lists of {min(widths)} to {max(widths)} numbers; a batch needs lists of one width.")
    values = np.array(numbers.to_numpy(zero_copy_only=False))
    if values.dtype.kind not in "biuf":
        raise InputError(f"column {name!r} holds {column.type}, not numbers.", remedy="leave it out, or encode it first by a public rule.")
    return values.reshape(len(column), *(widths or [0])) if listed else values


def _opened(paths: Any) -> dict[str, Any]:
    files = [as_path(path) for path in (paths if isinstance(paths, list | tuple) else [paths])]
    if len(files) == 1 and files[0].is_dir():
        files = sorted(files[0].glob("*.parquet"))
    if not files:
        raise InputError("data: got no Parquet file.", remedy="give a .parquet file, a folder of them, or a list of files.")
    arrow, opened = _arrow(), {}
    for path in files:
        try:
            opened[str(path)] = importlib.import_module("pyarrow.parquet").ParquetFile(path, memory_map=True)
        except (OSError, arrow.ArrowException) as error:
            raise InputError(f"{path} cannot be read: {error}.", remedy="give a .parquet file.") from error
    return opened


def _arrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingExtraError("pyarrow is needed and not installed.", remedy='pip install "lethe-dp[train]"') from error
