"""User ids of a table's records: which records are of one user, exactly as the ids say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import DataLoader

from lethe.errors import InputError
from lethe.train.data.sources.base import Source
from lethe.train.data.sources.map_style import MapStyleSource


class Owners(NamedTuple):
    """The user of each record: places in the list of users, which is sorted by id, shape (n,), int64; and how many users there are."""

    places: torch.Tensor
    users: int


def owners_of(ids: Any) -> Owners:
    """Whose each record is.

    Users stand in the order of their ids, so that a user's place says nothing of the records: in the order of their first records, a user
    whose records change would move others into other batches.

    Args:
        ids: one for each record: an array, tensor, series or list of whole numbers, or of texts. Compared exactly: "a" and "A" are two
            users.
    Raises:
        InputError: no ids, some are missing, or they are of several types or of one that is not compared exactly, such as 1.0.
    """
    found, places = np.unique(plain_ids(ids), return_inverse=True)
    return Owners(torch.from_numpy(places.astype(np.int64).reshape(-1)), len(found))


def plain_ids(ids: Any) -> np.ndarray[Any, Any]:
    """The ids, those of `owners_of`, as an array of whole numbers or of texts, shape (n,)."""
    if isinstance(ids, torch.Tensor):
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, np.ma.MaskedArray | str | bytes | dict | set) or not hasattr(type(ids), "__iter__"):
        raise _wrong(f"{ids!r}, and no table with such a column" if isinstance(ids, str) else type(ids).__name__)
    if isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise _wrong(f"ids of shape {ids.shape}")
    if len(ids) == 0:
        raise _wrong("none")
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iuU":
        ids = _of_one_type(list(ids.tolist() if isinstance(ids, np.ndarray) else ids))
    if ids.dtype.kind == "U" and bool((ids == "").any()):
        raise _wrong(f"an id that is an empty text, at record {int((ids == '').argmax())}")
    return ids


def _of_one_type(ids: list[Any]) -> np.ndarray[Any, Any]:
    """By itself NumPy would make texts of numbers that stand among texts."""
    kinds = [int if isinstance(one, int | np.integer) and not isinstance(one, bool) else type(one) for one in ids]
    for record, (one, kind) in enumerate(zip(ids, kinds, strict=True)):
        if kind is not int and not isinstance(one, str):
            missing = kind.__name__ in ("NoneType", "NAType", "NaTType") or (kind is float and one != one)
            raise _wrong(f"{'a missing id' if missing else f'a {kind.__name__}'}, at record {record}")
        if (kind is int) != (kinds[0] is int):
            raise _wrong("whole numbers and texts: 1 and '1' would be two users")
        if kind is not int and "\0" in one:
            raise _wrong("a text with a zero character")
    try:
        return np.array(ids, dtype=np.int64 if kinds[0] is int else np.str_)
    except OverflowError as error:
        raise _wrong("numbers that do not fit into 64 bits") from error


def _wrong(got: str) -> InputError:
    return InputError(
        f"users: got {got}; it needs an id for each record, a whole number or a text.",
        source="users",
        remedy="give users=table['patient'], and the records without it: all whole numbers or all texts. Of other ids make texts yourself, "
        "the same for all records of a user; leave records without a user out, or give each an id of its own.",
    )


def ids_of(users: Any, data: Any, source: Source | None = None) -> Any:
    """The id of each record's user, as it was given or as a column of the data has it.

    Args:
        users: the ids, the name of a column, or None, which is returned.
        data: a mapping of columns, a data set with columns, such as a `datasets.Dataset`, or records that are mappings; or its DataLoader.
        source: made of it, one with a method `column`, such as a ParquetSource; None: there is none yet.
    Raises:
        InputError: the data have no columns with names, or not this one.
    """
    if not isinstance(users, str):
        return users
    if callable(read := getattr(source, "column", None)):
        return read(users)
    data = data.dataset if isinstance(data, DataLoader | MapStyleSource) else data
    names: Any = list(cast(Mapping[Any, Any], data)) if isinstance(data, Mapping) else getattr(data, "column_names", None)
    if isinstance(names, list | tuple) and users in names:
        plain: Any = getattr(data, "with_format", None)
        columns: Any = plain(None) if callable(plain) else data
        return list(columns[users])
    numbered = names is None and not isinstance(data, tuple) and hasattr(type(data), "__getitem__") and hasattr(type(data), "__len__")
    records: list[Any] = [data[place] for place in range(len(data))] if numbered and isinstance(data[0], Mapping) else []
    if records and all(isinstance(record, Mapping) and users in record for record in records):
        entries = [record[users] for record in records]
        return [entry.item() if isinstance(entry, torch.Tensor | np.ndarray) and entry.ndim == 0 else entry for entry in entries]
    names = list(records[0]) if records else names
    has = ", ".join(map(str, names)) if isinstance(names, list | tuple) else "no columns with names"
    raise InputError(
        f"users: {users!r} names a column, and these data, a {type(data).__name__}, have {has}.",
        source="users",
        remedy="give the ids themselves: one for each record, in the order of the records.",
    )
