"""Columns of Parquet files as NumPy arrays: numbers, and lists of numbers of one width."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.errors import InputError

_LISTS = ("fixed_size_list", "list", "large_list")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Which columns make up each tensor of a batch.

    Args:
        parts: for each tensor a column's name, or several side by side.
        names: every column read, once.
        dtypes: the type of each tensor.
        widths: of the list columns, by name; None where the file does not fix it.
    """

    parts: tuple[str | tuple[str, ...], ...]
    names: list[str]
    dtypes: tuple[np.dtype[Any], ...]
    widths: dict[str, int | None]

    def arrays(self, table: Any) -> list[np.ndarray[Any, Any]]:
        """The tensors' rows in a table or record batch, shape (k, ...) each.

        Raises:
            InputError: a value is missing, or a list is of another width than its neighbours.
        """
        columns = {name: self._values(name, table.column(name)) for name in self.names}
        return [
            np.array(columns[part], dtype=dtype) if isinstance(part, str) else np.stack([columns[name] for name in part], 1).astype(dtype)
            for part, dtype in zip(self.parts, self.dtypes, strict=True)
        ]

    def empty(self) -> list[np.ndarray[Any, Any]]:
        """No rows."""
        shapes = [
            ((self.widths[part] or 0,) if part in self.widths else ()) if isinstance(part, str) else (len(part),) for part in self.parts
        ]
        return [np.empty((0, *shape), dtype=dtype) for shape, dtype in zip(shapes, self.dtypes, strict=True)]

    def _values(self, name: str, column: Any) -> np.ndarray[Any, Any]:
        column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        _refuse_missing(name, column)
        if name not in self.widths:
            return column.to_numpy(zero_copy_only=False)
        items = column.flatten()
        _refuse_missing(name, items)
        values = items.to_numpy(zero_copy_only=False)
        if self.widths[name] is not None:
            return values.reshape(len(column), self.widths[name])
        widths = column.value_lengths().to_numpy(zero_copy_only=False)
        if len(widths) and widths.min() != widths.max():
            raise InputError(f"column {name!r} holds lists of {widths.min()} to {widths.max()} numbers; a batch needs lists of one width.")
        return values.reshape(len(column), int(widths[0]) if len(widths) else 0)


def chosen_columns(columns: object, schemas: Sequence[Any], files: Sequence[str]) -> Columns:
    """The columns that the user named, looked up in the files' schemas.

    Args:
        columns: what the user gave.
        schemas: of the files, as pyarrow gives them.
        files: their names.
    Raises:
        InputError: no column, an unknown one, one that holds no numbers, lists side by side, or files that differ in types.
    """
    parts = _parts(columns)
    names = list(dict.fromkeys(name for part in parts for name in ([part] if isinstance(part, str) else part)))
    for schema, file in zip(schemas, files, strict=True):
        for name in names:
            if schema.names.count(name) != 1:
                raise InputError(f"columns: got {name!r}; {file} has the columns {', '.join(schema.names)}.", source=file)
            if schema.field(name).type != schemas[0].field(name).type:
                raise InputError(
                    f"column {name!r} holds {schema.field(name).type} in {file} and {schemas[0].field(name).type} in {files[0]}.",
                    remedy="write all files with the same types.",
                )
    kinds = {name: schemas[0].field(name).type for name in names}
    dtypes = {name: _dtype(name, kind) for name, kind in kinds.items()}
    widths = {name: getattr(kind, "list_size", None) for name, kind in kinds.items() if _is_list(kind)}
    for part in parts:
        if not isinstance(part, str) and (lists := [name for name in part if name in widths]):
            raise InputError(f"columns: {lists[0]!r} holds lists, which cannot stand side by side.", remedy="name it on its own.")
    return Columns(
        parts=parts,
        names=names,
        dtypes=tuple(dtypes[part] if isinstance(part, str) else np.result_type(*(dtypes[name] for name in part)) for part in parts),
        widths=widths,
    )


def _parts(columns: object) -> tuple[str | tuple[str, ...], ...]:
    listed = list(columns) if isinstance(columns, Sequence) and not isinstance(columns, str | bytes) else None
    if listed:
        parts = [part if isinstance(part, str) else tuple(part) if isinstance(part, Sequence) else () for part in listed]
        if all(part and all(isinstance(name, str) for name in part) for part in parts):
            return tuple(parts)
    raise InputError(
        f"columns: got {columns!r}; it needs a list with a column's name, or a list of names, for each tensor.",
        remedy='such as columns=[["height", "weight"], "label"].',
    )


def _is_list(kind: Any) -> bool:
    return str(kind).split("<", 1)[0].split("[", 1)[0] in _LISTS


def _dtype(name: str, kind: Any) -> np.dtype[Any]:
    types: Any = importlib.import_module("pyarrow").types
    inner = kind.value_type if _is_list(kind) else kind
    if not (types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)):
        raise InputError(
            f"column {name!r} holds {kind}, not numbers.",
            remedy="leave the column out, or encode it first by a public rule.",
        )
    return np.dtype(inner.to_pandas_dtype())


def _refuse_missing(name: str, column: Any) -> None:
    if column.null_count:
        raise InputError(
            f"column {name!r}: a value is missing.", remedy="drop such rows, or fill them in by a rule that does not look at other records."
        )
