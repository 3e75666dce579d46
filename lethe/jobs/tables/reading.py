"""ColumnTable: a .csv, .csv.gz or .parquet file as named columns, without a look at what stands in them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.errors import InputError
from lethe.jobs.tables.csv_text import read_csv
from lethe.jobs.tables.optional import extra

SUFFIXES = (".csv", ".csv.gz", ".parquet")


def table_suffix(file: Path) -> str:
    """How the name of a table ends, .gz being part of it."""
    name = file.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), file.suffix.lower())


def table_name(file: Path) -> str:
    """The name of a table without its ending."""
    return file.name[: len(file.name) - len(table_suffix(file))]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnTable:
    """Named columns.

    Args:
        file: where they are from.
        names: of the columns, each once; without the row labels that pandas writes.
        content: the table of pyarrow.
    """

    file: Path
    names: tuple[str, ...]
    content: Any

    @classmethod
    def read(cls, file: Path, *, as_text: Collection[str] = ()) -> ColumnTable:
        """Read a file.

        Args:
            file: .csv, .csv.gz or .parquet.
            as_text: columns of a .csv whose entries are kept as they stand, so that no entry decides how others are read; an entry that
                is empty is then the empty text.
        Raises:
            InputError: it cannot be read, has no rows, or a column twice.
            MissingExtraError: pyarrow is not installed.
        """
        arrow, suffix = extra("pyarrow"), table_suffix(file)
        try:
            is_parquet = suffix == ".parquet"
            content: Any = extra("pyarrow.parquet").read_table(file) if is_parquet else read_csv(file, as_text=as_text)
        except (OSError, EOFError, arrow.ArrowException) as error:
            raise InputError(f"{file} cannot be read: {error}.", remedy=f"give a {suffix} file with named columns.") from error
        if content.num_rows == 0:
            raise InputError(f"{file} has no rows.", remedy="give a file with at least one record.")
        names: list[str] = list(content.column_names)
        repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if repeated:
            raise InputError(
                f"column {repeated[0]!r} occurs {names.count(repeated[0])} times.",
                source=str(file),
                remedy="give each column its own name.",
            )
        # pandas writes its row labels as columns of this name; they are no features.
        return cls(file=file, names=tuple(name for name in names if not name.startswith("__index_level_")), content=content)

    def require_target(self, target: str | None) -> str:
        """The name of a column.

        Raises:
            InputError: there is no such column, or no other one.
        """
        if target is None or target not in self.names:
            raise InputError(
                f"target: got {target!r}; it needs one of the columns {', '.join(self.names)}.",
                source=str(self.file),
                remedy="name the column to predict.",
            )
        if len(self.names) < 2:
            raise InputError(f"{target!r} is the only column; there are no features.", source=str(self.file))
        return target

    def column(self, name: str) -> Any:
        """A column as pyarrow has it; words of a dictionary are written out."""
        column = self.content.column(name)
        return column.cast(column.type.value_type) if extra("pyarrow").types.is_dictionary(column.type) else column

    def type_of(self, name: str) -> str:
        """The type of a column, in a word."""
        return str(self.column(name).type)

    def is_number(self, name: str) -> bool:
        """Whether a column holds numbers, or true and false."""
        kind, types = self.column(name).type, extra("pyarrow").types
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))

    def is_truth(self, name: str) -> bool:
        """Whether a column holds true and false."""
        return bool(extra("pyarrow").types.is_boolean(self.column(name).type))

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column of numbers, shape (n,), NaN where one is missing."""
        arrow, column = extra("pyarrow"), self.column(name)
        if arrow.types.is_boolean(column.type):
            column = column.cast(arrow.int8())
        return np.asarray(column.cast(arrow.float64(), safe=False).to_numpy(), dtype=np.float64)

    def texts(self, name: str) -> list[str | None]:
        """A column as text, None where there is none.

        Raises:
            InputError: its type has no text, such as a list.
        """
        arrow, column = extra("pyarrow"), self.column(name)
        try:
            entries: list[str | None] = column.cast(arrow.string()).to_pylist()
        except arrow.ArrowException as error:
            raise InputError(
                f"column {name!r} holds {column.type}, which is neither numbers nor words.", source=str(self.file), remedy="leave it out."
            ) from error
        return entries
