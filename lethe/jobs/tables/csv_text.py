"""Comma-separated text as a table of pyarrow; what cannot be read is refused with the remedy, and without a word that stands in a row."""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from lethe.errors import InputError
from lethe.jobs.tables.optional import extra

_LOOK = 2**16
_OTHERS = {b";": ("semicolons", 'sep=";", decimal=","'), b"\t": ("tabs", 'sep="\\t"'), b"|": ("bars", 'sep="|"')}
"""Separator -> its name, and what pandas reads it by; where semicolons separate, a comma stands in numbers."""


def read_csv(file: Path, *, as_text: Collection[str] = ()) -> Any:
    """The table in a .csv or .csv.gz file whose first line names the columns.

    Args:
        file: UTF-8, entries separated by commas.
        as_text: columns whose entries are kept as they stand.
    Raises:
        InputError: another separator, another encoding, or rows that do not fit the first line.
        OSError: the file cannot be opened.
        MissingExtraError: pyarrow is not installed.
    """
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
            raise _refused(
                file, counts, "give every row as many entries, and put those that hold a comma or a quote into quotes."
            ) from None
        if "invalid UTF8" in str(error):
            raise _other_encoding(file, "it holds letters that are") from None
        raise _refused(file, "it is no comma-separated text, or is empty", "give a .csv file with named columns.") from None
    for name, kind in zip(names, content.schema.types, strict=True):
        if arrow.types.is_binary(kind):
            raise _other_encoding(file, f"column {name!r} holds letters that are")
    return content


def _look_at_the_start(file: Path) -> None:
    """Refuse what pyarrow would read as one column, or as rows of zeros.

    Raises:
        InputError: UTF-16, or another separator.
        OSError: the file cannot be opened.
    """
    with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as stream:
        start = stream.read(_LOOK)
    if (encoding := _utf_16(start)) is not None:
        raise _refused(file, "it is UTF-16", _rewritten(file, f'encoding="{encoding}"'))
    first = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    other = max(_OTHERS, key=first.count)
    if first.count(other) > first.count(b","):
        name, option = _OTHERS[other]
        raise _refused(file, f"{name} separate its entries; it needs commas", _rewritten(file, option))


def _utf_16(start: bytes) -> str | None:
    """The name of the encoding, where it is UTF-16: by its mark, or since every second byte of most letters is 0."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding, high in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if high.count(0) > len(high) / 2:
            return encoding
    return None


def _other_encoding(file: Path, what: str) -> InputError:
    return _refused(file, f"{what} not UTF-8, but perhaps Latin-1 (Windows-1252)", _rewritten(file, 'encoding="cp1252"'))


def _rewritten(file: Path, option: str) -> str:
    return f'write it anew: pandas.read_csv("{file.name}", {option}).to_csv("table.csv", index=False)'


def _refused(file: Path, what: str, remedy: str) -> InputError:
    return InputError(f"{file} cannot be read: {what}.", source=str(file), remedy=remedy)
