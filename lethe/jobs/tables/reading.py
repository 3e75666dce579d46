"""ColumnTable: a .csv, .csv.gz or .parquet file as named columns; errors never quote a record.

datasets.py, init.py and saved.py read by it. Errors may be logged where records may not be seen, so they name row and column, and quote
nothing.
"""

from __future__ import annotations

import codecs
import gzip
import importlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.errors import InputError, MissingExtraError

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_LOOK = 2**16
_OTHER_SEPARATORS = {b";": ("semicolons", 'sep=";", decimal=","'), b"\t": ("tabs", 'sep="\\t"'), b"|": ("bars", 'sep="|"')}
"""Separator -> its name, and what pandas reads it by; where semicolons separate, a comma stands in numbers."""


def extra(module: str) -> ModuleType:
    """A module that only some tables need; MissingExtraError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module.split('.')[0]} is needed and not installed.", remedy='pip install "lethe-dp[train]"') from error


def bad_entry(file: Path, row: int, column: object, what: str, remedy: str) -> InputError:
    """The error for an entry of a table that cannot be used: rows are counted from 0, and `what` is a clause."""
    return InputError(f"row {row}, column {column!r}: {what} (rows counted from 0, without the header).", source=str(file), remedy=remedy)


def table_suffix(file: Path) -> str:
    """How the name of a table ends, .gz being part of it."""
    name = file.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), file.suffix.lower())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnTable:
    """Columns of a table of pyarrow by their names, each once, and the file that they are from."""

    file: Path
    names: tuple[str, ...]
    content: Any

    @classmethod
    def read(cls, file: Path, *, as_text: Collection[str] = ()) -> ColumnTable:
        """Read a .csv, .csv.gz or .parquet file.

        Args:
            file: its path.
            as_text: columns of a .csv whose entries are kept as they stand, so that no entry decides how others are read; an entry that
                is empty is then the empty text.
        Raises:
            InputError: it cannot be read, has no rows, or a column twice.
        """
        arrow, suffix = extra("pyarrow"), table_suffix(file)
        if suffix not in SUFFIXES:
            raise InputError(f"{file.name} ends in {file.suffix!r}; a table ends in {', '.join(SUFFIXES)}.")
        try:
            content: Any = extra("pyarrow.parquet").read_table(file) if suffix == ".parquet" else _read_csv(file, as_text)
        except (OSError, EOFError, arrow.ArrowException) as error:
            raise InputError(f"{file} cannot be read: {error}.", remedy=f"give a {suffix} file with named columns.") from error
        if content.num_rows == 0:
            raise InputError(f"{file} has no rows.", remedy="give a file with at least one record.")
        names: list[str] = list(content.column_names)
        if repeated := [name for name in names if names.count(name) > 1]:
            what = f"column {repeated[0]!r} occurs {names.count(repeated[0])} times."
            raise InputError(what, source=str(file), remedy="give each column its own name.")
        # pandas writes its row labels as columns of this name; they are no features.
        return cls(file=file, names=tuple(name for name in names if not name.startswith("__index_level_")), content=content)

    def require_target(self, target: str | None) -> str:
        """The name of a column; InputError where there is no such column, or no other one."""
        if target is None or target not in self.names:
            what = f"target: got {target!r}; it needs one of the columns {', '.join(self.names)}."
            raise InputError(what, source=str(self.file), remedy="name the column to predict.")
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

    def is_date(self, name: str) -> bool:
        """Whether a column holds days, with the time of day or without."""
        return self.type_of(name).startswith(("date", "timestamp"))

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column of numbers, shape (n,), NaN where one is missing."""
        arrow, column = extra("pyarrow"), self.column(name)
        if arrow.types.is_boolean(column.type):
            column = column.cast(arrow.int8())
        return np.asarray(column.cast(arrow.float64(), safe=False).to_numpy(), dtype=np.float64)

    def texts(self, name: str) -> list[str | None]:
        """A column as text, None where there is none; InputError of a type that has no text, such as a list."""
        arrow, column = extra("pyarrow"), self.column(name)
        try:
            entries: list[str | None] = column.cast(arrow.string()).to_pylist()
        except arrow.ArrowException as error:
            what = f"column {name!r} holds {column.type}, which is neither numbers nor words."
            raise InputError(what, source=str(self.file), remedy="leave it out.") from error
        return entries


def _read_csv(file: Path, as_text: Collection[str]) -> Any:
    """The table of pyarrow; InputError of another separator or encoding, or of rows that do not fit the first line."""
    arrow, csv = extra("pyarrow"), extra("pyarrow.csv")
    _look_at_the_start(file)
    misfits: list[Any] = []

    def keep(row: Any) -> str:
        misfits.append(row)
        return "error"

    try:
        content = csv.read_csv(
            file,
            parse_options=csv.ParseOptions(invalid_row_handler=keep),
            convert_options=csv.ConvertOptions(column_types={name: arrow.string() for name in as_text}, strings_can_be_null=False),
        )
        names: list[str] = content.column_names
    except UnicodeDecodeError:
        raise _other_encoding(file, "the first line holds letters that are") from None
    except arrow.ArrowException as error:  # its text quotes rows
        if misfits:
            counts = f"a row has {misfits[0].actual_columns} entries where the first line names {misfits[0].expected_columns} columns"
            remedy = "give every row as many entries, and put those that hold a comma or a quote into quotes."
            raise _refused(file, counts, remedy) from None
        if "invalid UTF8" in str(error):
            raise _other_encoding(file, "it holds letters that are") from None
        raise _refused(file, "it is no comma-separated text, or is empty", "give a .csv file with named columns.") from None
    for name, kind in zip(names, content.schema.types, strict=True):
        if arrow.types.is_binary(kind):
            raise _other_encoding(file, f"column {name!r} holds letters that are")
    return content


def _look_at_the_start(file: Path) -> None:
    """Refuse what pyarrow would read as one column, or as rows of zeros: UTF-16, or another separator."""
    with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as stream:
        start = stream.read(_LOOK)
    marked = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding, high in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if marked or high.count(0) > len(high) / 2:  # every second byte of most letters is 0
            raise _refused(file, "it is UTF-16", _rewritten(file, f'encoding="{"utf-16" if marked else encoding}"'))
    first = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    separator = max(_OTHER_SEPARATORS, key=first.count)
    if first.count(separator) > first.count(b","):
        name, option = _OTHER_SEPARATORS[separator]
        raise _refused(file, f"{name} separate its entries; it needs commas", _rewritten(file, option))


def _other_encoding(file: Path, what: str) -> InputError:
    return _refused(file, f"{what} not UTF-8, but perhaps Latin-1 (Windows-1252)", _rewritten(file, 'encoding="cp1252"'))


def _rewritten(file: Path, option: str) -> str:
    return f'write it anew: pandas.read_csv("{file.name}", {option}).to_csv("table.csv", index=False)'


def _refused(file: Path, what: str, remedy: str) -> InputError:
    return InputError(f"{file} cannot be read: {what}.", source=str(file), remedy=remedy)
