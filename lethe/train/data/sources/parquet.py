"""Parquet files: read in order with bounded memory, or by row groups when records are asked for out of order."""

from __future__ import annotations

import importlib
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lethe.documents.strict import as_path
from lethe.errors import InputError, MissingExtraError
from lethe.train.core.samplers import Batch
from lethe.train.data.sources.base import Tensors, require_batch, require_whole
from lethe.train.data.sources.parquet_columns import chosen_columns

# Records read at a time when fewer are asked for: the way to a record inside a row group is then not one by one.
_LEAST_CHUNK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One row group: its file, its place in the file, its first record and the number of its records."""

    file: int
    place: int
    first: int
    rows: int


class ParquetSource:
    """Records that are the rows of Parquet files, read with pyarrow.

    Consecutive slices, as cyclic and full batches ask for, stream through each file once a pass; in memory are about two batches. Records
    asked for out of order come from whole row groups, of which `cached_groups` are kept: batches drawn at random touch nearly every row
    group of a file, so each step may read all of it. For random designs on data larger than memory, .npy files are the better store.

    Args:
        paths: a .parquet file, a folder of them (in alphabetical order), or a list of files.
        columns: what each tensor of a batch holds: a column's name (shape (k,), or (k, width) for lists of one width), or a list of
            names side by side (shape (k, names), in their common type).
        cached_groups: row groups kept in memory, >= 1.
    Raises:
        InputError: a file that cannot be read, an unknown column, one that holds no numbers, files that differ in types, or no records.
        MissingExtraError: pyarrow is not installed.
    """

    __slots__ = ("_cache", "_cached_groups", "_columns", "_cursor", "_files", "_firsts", "_groups", "_records")

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        columns: Sequence[str | Sequence[str]],
        *,
        cached_groups: int = 2,
    ) -> None:
        self._cached_groups = require_whole("cached_groups", cached_groups, 1)
        listed = _listed(paths)
        self._files = [_opened(path) for path in listed]
        self._columns = chosen_columns(columns, [file.schema_arrow for file in self._files], [path.name for path in listed])
        self._groups = list(_groups(self._files))
        self._records = sum(group.rows for group in self._groups)
        if self._records == 0:
            raise InputError("data: the Parquet files have no records; it needs at least one.")
        self._firsts = [group.first for group in self._groups]
        self._cache: OrderedDict[int, list[np.ndarray[Any, Any]]] = OrderedDict()
        self._cursor: _Cursor | None = None

    def __len__(self) -> int:
        return self._records

    def fetch(self, batch: Batch) -> Tensors:
        """The rows of a batch.

        Raises:
            InputError: a value is missing, a list has another width, or the file can no longer be read.
        """
        rows = require_batch(batch, self._records)
        try:
            arrays = self._in_order(rows) if isinstance(rows, slice) else self._anywhere(rows.numpy())
        except (OSError, _arrow().ArrowException) as error:
            raise InputError(f"data: the Parquet files can no longer be read: {error}.") from error
        return tuple(torch.from_numpy(array) for array in arrays)

    def column(self, name: str) -> list[Any]:
        """A whole column, such as ids of users, in the order of the records.

        Raises:
            InputError: a file has no such column.
        """
        for file in self._files:
            if name not in file.schema_arrow.names:
                raise InputError(f"data: no column {name!r}; the files have {', '.join(file.schema_arrow.names)}.")
        return [value for file in self._files for value in file.read(columns=[name]).column(0).to_pylist()]

    def _in_order(self, rows: slice) -> list[np.ndarray[Any, Any]]:
        if rows.stop == rows.start:
            return self._columns.empty()
        if not self._ahead(rows.start):
            self._cursor = _Cursor(rows.start, self._chunks(rows.start, max(_LEAST_CHUNK, rows.stop - rows.start)))
        assert self._cursor is not None  # made above, or ahead
        try:
            self._cursor.skip_to(rows.start)
            return self._cursor.take(rows.stop - rows.start)
        except BaseException:
            self._cursor = None
            raise

    def _ahead(self, row: int) -> bool:
        """Whether the cursor need only go on to reach a record: it is the next, or further on in the same row group."""
        position = self._records if self._cursor is None else self._cursor.position
        return position == row < self._records or (position < row and self._group_of(position) == self._group_of(row))

    def _chunks(self, first: int, rows: int) -> Iterator[list[np.ndarray[Any, Any]]]:
        """Arrays of at most `rows` records each, from record `first` to the last."""
        start = self._group_of(first)
        skipped = first - self._groups[start].first
        for number, file in enumerate(self._files):
            places = [group.place for group in self._groups[start:] if group.file == number]
            if not places:
                continue
            for chunk in file.iter_batches(batch_size=rows, row_groups=places, columns=self._columns.names):
                if skipped >= chunk.num_rows:
                    skipped -= chunk.num_rows
                    continue
                yield self._columns.arrays(chunk.slice(skipped))
                skipped = 0

    def _anywhere(self, rows: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        if len(rows) == 0:
            return self._columns.empty()
        groups = np.searchsorted(np.asarray(self._firsts), rows, side="right") - 1
        result: list[np.ndarray[Any, Any]] | None = None
        for group in np.unique(groups).tolist():
            arrays, here = self._group(group), groups == group
            if result is None:
                result = [np.empty((len(rows), *array.shape[1:]), dtype=array.dtype) for array in arrays]
            for target, array in zip(result, arrays, strict=True):
                target[here] = array[rows[here] - self._firsts[group]]
        assert result is not None  # there is at least one row
        return result

    def _group(self, number: int) -> list[np.ndarray[Any, Any]]:
        if number not in self._cache:
            while len(self._cache) >= self._cached_groups:
                self._cache.popitem(last=False)
            group = self._groups[number]
            self._cache[number] = self._columns.arrays(self._files[group.file].read_row_group(group.place, columns=self._columns.names))
        self._cache.move_to_end(number)
        return self._cache[number]

    def _group_of(self, row: int) -> int:
        return bisect_right(self._firsts, row) - 1


class _Cursor:
    """Takes consecutive records off a stream of chunks."""

    __slots__ = ("_chunks", "_left", "position")

    def __init__(self, position: int, chunks: Iterator[list[np.ndarray[Any, Any]]]) -> None:
        self.position = position
        self._chunks = chunks
        self._left: list[np.ndarray[Any, Any]] | None = None

    def take(self, rows: int) -> list[np.ndarray[Any, Any]]:
        """The next `rows` records."""
        return [np.concatenate(parts) for parts in zip(*self._pieces(rows), strict=True)]

    def skip_to(self, position: int) -> None:
        """Pass over the records before `position`."""
        for _ in self._pieces(position - self.position):
            pass

    def _pieces(self, rows: int) -> Iterator[list[np.ndarray[Any, Any]]]:
        while rows:
            chunk = self._left if self._left is not None else next(self._chunks, None)
            if chunk is None:
                raise InputError(f"data: the Parquet files end {rows} records early.", remedy="keep them as they are while a run lasts.")
            piece = [array[:rows] for array in chunk]
            taken = len(piece[0])
            self._left = [array[taken:] for array in chunk] if taken < len(chunk[0]) else None
            self.position += taken
            rows -= taken
            yield piece


def _listed(paths: object) -> list[Path]:
    many: list[Any] = list(paths) if isinstance(paths, Sequence) and not isinstance(paths, str | bytes) else [paths]
    files = [as_path(path) for path in many]
    if len(files) == 1 and files[0].is_dir():
        files = sorted(files[0].glob("*.parquet"))
    if not files:
        raise InputError("data: got no Parquet file.", remedy="give a .parquet file, a folder of them, or a list of files.")
    return files


def _opened(path: Path) -> Any:
    arrow = _arrow()
    try:
        return importlib.import_module("pyarrow.parquet").ParquetFile(path, memory_map=True)
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {error}.", remedy="give a .parquet file.") from error


def _arrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingExtraError("pyarrow is needed and not installed.", remedy='pip install "lethe-dp[train]"') from error


def _groups(files: Sequence[Any]) -> Iterator[_Group]:
    first = 0
    for number, file in enumerate(files):
        for place in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(place).num_rows
            if rows:
                yield _Group(file=number, place=place, first=first, rows=rows)
                first += rows
