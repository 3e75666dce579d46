"""PublicColumns: what is stated of all columns of a table, and the feature vectors that this makes of its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.errors import InputError, quoted
from lethe.jobs.tables.columns import DROP, Array, BadEntry, Column, NumberColumn, Texts, as_column
from lethe.jobs.tables.reading import ColumnTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicColumns:
    """An encoding of rows that learns nothing from them: every row is encoded by itself, with constants that were stated.

    Args:
        stated: by name; None: the column is dropped.
    """

    stated: Mapping[str, Column | None]

    @classmethod
    def parse(cls, value: Any) -> PublicColumns:
        """From {name: {range: [low, high]}, name: {categories: [...]}, name: drop}.

        Raises:
            InputError: a column is stated wrongly, or none is kept.
        """
        if isinstance(value, PublicColumns):
            return value
        if not isinstance(value, Mapping):
            raise InputError(f"got {quoted(value)}; it needs a mapping from the names of columns to what is known of each.")
        stated: dict[str, Column | None] = {}
        for name, entry in value.items():
            try:
                stated[str(name)] = as_column(entry)
            except InputError as error:
                raise InputError(f"column {str(name)!r}: {error.what}", remedy=error.remedy) from error
        return cls(stated=stated)

    @property
    def kept(self) -> dict[str, Column]:
        """The columns that are used, in the order in which they were stated."""
        return {name: column for name, column in self.stated.items() if column is not None}

    @property
    def feature_names(self) -> list[str]:
        """Of all features."""
        return [feature for name, column in self.kept.items() for feature in column.feature_names(name)]

    @property
    def longest(self) -> float:
        r"""$\sqrt k$ of k columns used: no row is longer, since every column makes a vector of norm at most 1."""
        return math.sqrt(len(self.kept))

    def describe(self) -> list[str]:
        """What is taken as public, a line a column."""
        return [f"{name}: {'not used' if column is None else column.describe()}" for name, column in self.stated.items()]

    def to_document(self) -> dict[str, Any]:
        """As plain data that `parse` takes."""
        return {name: DROP if column is None else column.to_document() for name, column in self.stated.items()}

    def encode(self, table: ColumnTable, target: str | None) -> Array:
        """Features, shape (n, d).

        Args:
            table: with every column that was stated, and no others but the target.
            target: the column to predict; None: there may be one more column or not, as for prediction.
        Raises:
            InputError: a column that is not stated, not there, or is the target; or an entry that cannot be used, by row and column.
        """
        self._require(table, target)
        parts = [self._encoded(table, name, column) for name, column in self.kept.items()]
        return np.hstack(parts)

    def _require(self, table: ColumnTable, target: str | None) -> None:
        source = str(table.file)
        if target is not None and target in self.stated:
            raise InputError(
                f"columns: {target!r} is the target; it cannot be a feature.", source=source, remedy="leave it out of columns."
            )
        absent = [name for name in self.kept if name not in table.names]
        if absent:
            raise InputError(
                f"columns: there is no column {absent[0]!r} in the file; it has {', '.join(table.names)}.",
                source=source,
                remedy="correct the name, or leave it out.",
            )
        if target is None:
            return
        unstated = [name for name in table.names if name != target and name not in self.stated]
        if unstated:
            lines = [
                f"column {name!r} holds {table.type_of(name)} and is not stated: it needs {_needed(table, name)}." for name in unstated
            ]
            raise InputError(
                "columns: " + "\n".join(lines),
                source=source,
                remedy=f"state each without a look at the records, or {DROP}; `lethe init --data {table.file.name} --target {target}` "
                "asks for them.",
            )
        if not self.kept:
            raise InputError("columns: all of them are dropped; there are no features.", source=source)

    def _encoded(self, table: ColumnTable, name: str, column: Column) -> Array:
        try:
            return column.encode(_entries(table, name, column))
        except BadEntry as error:
            raise InputError(
                f"row {error.row}, column {name!r}: {error.what} (rows counted from 0, without the header).",
                source=str(table.file),
                remedy=error.remedy,
            ) from error


def _entries(table: ColumnTable, name: str, column: Column) -> Any:
    if isinstance(column, NumberColumn) and table.is_number(name):
        numbers: Array = table.numbers(name)
        return numbers
    texts: Texts = table.texts(name)
    return texts


def _needed(table: ColumnTable, name: str) -> str:
    return "a range" if table.is_number(name) else "categories"
