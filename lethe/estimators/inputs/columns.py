"""Columns as a frame declares them: names and dtypes, refused before a value is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lethe.errors import InputError
from lethe.partitions.dask_tables import is_dask
from lethe.partitions.table import PartitionedTable

# By name, so that neither pandas nor polars nor pyarrow need be installed. A column of objects may hold numbers: reading it will tell.
_NUMBER = re.compile(
    r"(\w+\.|sparse\[)?(bool(ean)?|u?int\d+|b?float\d*|halffloat|double|decimal\w*|complex\d*|null|object)\b", flags=re.IGNORECASE
)
_NUMBER_KINDS = tuple("biufc")
_TIME = re.compile(r"date|time|duration|period|[<>=|]?m8", flags=re.IGNORECASE)
_SHOWN = 5
DATES = "give dates and durations as numbers of a public unit, such as days since a public date"
CATEGORIES = (
    "give one column of 0 and 1 for each category of a public list, as OneHotEncoder(categories=[...]) does; convert numbers that are text"
)

Schema = tuple[list[Any], list[Any]]


def schema_of(table: Any) -> Schema | None:
    """The names and the dtypes of a frame's columns; None for what is no frame."""
    if hasattr(table, "column_names") and hasattr(table, "schema"):  # pyarrow's
        return list(table.column_names), list(table.schema.types)
    if hasattr(table, "columns") and hasattr(table, "dtypes"):
        return list(table.columns), list(table.dtypes)
    return None


def require_values(name: str, table: Any) -> None:
    """Refuse a lazy frame, and a table in blocks, where one in memory is needed.

    Raises:
        InputError: it is one, and has no values before it is collected.
    """
    if is_dask(table) or isinstance(table, PartitionedTable):
        raise InputError(
            f"{name}: got {type(table).__name__}, a table in blocks; this needs one in memory.",
            source=f"the argument {name}",
            remedy="fit linear models, PrivateMean or private preprocessing on it; predict by frame.map_partitions(model.predict).",
        )
    if type(table).__name__ == "LazyFrame":
        raise InputError(f"{name}: got a LazyFrame; it needs values.", source=f"the argument {name}", remedy="call .collect() on it")


def require_numbers(name: str, table: Any) -> None:
    """Look at the names and dtypes of a table's columns, not at its values.

    Args:
        name: of the argument.
        table: a frame, an array, or anything else, of which nothing is asked here.
    Raises:
        InputError: a lazy frame, two columns of one name, or a dtype that holds no numbers.
    """
    require_values(name, table)
    source, schema = f"the argument {name}", schema_of(table)
    if schema is None:
        dtype = getattr(table, "dtype", None)
        if dtype is not None and not _is_number(dtype):
            raise InputError(f"{name}: got {_word(dtype)}; it needs numbers.", source=source, remedy=_numbers_instead([dtype]))
        return
    names, dtypes = schema
    if len(set(names)) < len(names):
        twice = [one for one in dict.fromkeys(names) if names.count(one) > 1]
        raise InputError(
            f"{name}: more than one column is named {listed(twice)}; it needs a name of its own for every column.",
            source=source,
            remedy="rename them, or drop those that are copies",
        )
    strange = {dtype for dtype in set(dtypes) if not _is_number(dtype)}
    if strange:
        wrong = [(one, dtype) for one, dtype in zip(names, dtypes, strict=True) if dtype in strange]
        shown = listed([one for one, _ in wrong], [_word(dtype) for _, dtype in wrong])
        raise InputError(
            f"{name}: it needs numbers; there are none in {'the column' if len(wrong) == 1 else 'the columns'} {shown}.",
            source=source,
            remedy=_numbers_instead([dtype for _, dtype in wrong]),
        )


def listed(names: Sequence[Any], words: Sequence[str] | None = None) -> str:
    """The first few columns by name, each with a word in brackets where such are given."""
    shown = [f"{name!r}" if words is None else f"{name!r} ({words[place]})" for place, name in enumerate(names[:_SHOWN])]
    return f"{', '.join(shown)}{' and others' if len(names) > _SHOWN else ''}"


def _is_number(dtype: Any) -> bool:
    categories = getattr(getattr(dtype, "categories", None), "dtype", None)
    if categories is not None:  # a category of numbers is read as those
        return _is_number(categories)
    return getattr(dtype, "kind", None) in _NUMBER_KINDS or _NUMBER.match(str(dtype)) is not None


def _word(dtype: Any) -> str:
    """A dtype without what it lists in brackets; of a category, of what."""
    categories = getattr(getattr(dtype, "categories", None), "dtype", None)
    return str(dtype).partition("(")[0] if categories is None else f"categories of {categories}"


def _numbers_instead(dtypes: Sequence[Any]) -> str:
    times = [_TIME.search(_word(dtype)) is not None for dtype in dtypes]
    return "; ".join([*([] if all(times) else [CATEGORIES]), *([DATES] if any(times) else [])])
