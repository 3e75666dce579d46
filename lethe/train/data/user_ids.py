"""User ids of a table's records: which records are of one user, exactly as the ids say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import DataLoader

from lethe.errors import InputError
from lethe.train.data.sources.base import Source

_REMEDY = (
    "give one id for each record, all whole numbers or all texts; of other ids make texts yourself, one and the same for all records of "
    "a user; leave records without a user out, or give each an id of its own."
)


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
    """The ids as an array of whole numbers or of texts, shape (n,).

    Args:
        ids: as of `owners_of`.
    Raises:
        InputError: as there.
    """
    listed = _listed(ids)
    if len(listed) == 0:
        raise InputError("users: got none; it needs an id for each record.", remedy=_REMEDY)
    if listed.dtype.kind not in "iuU":
        listed = _of_one_type(listed)
    if listed.dtype.kind == "U" and bool((listed == "").any()):
        raise InputError(f"users: the id of record {int((listed == '').argmax())} is an empty text.", source="users", remedy=_REMEDY)
    return listed


def ids_of(users: Any, data: Any, source: Source | None = None) -> Any:
    """The id of each record's user, as it was given or as a column of the data has it.

    Args:
        users: the ids, the name of a column, or None, which is returned.
        data: as they were given; of a DataLoader its data set has the column.
        source: made of it: one with a method `column`, such as a ParquetSource; None: there is none yet.
    Raises:
        InputError: the data have no columns with names, or not this one.
    """
    if not isinstance(users, str):
        return users
    if callable(found := getattr(source, "column", None)):
        return found(users)
    return _in_column(data.dataset if isinstance(data, DataLoader) else data, users)


def _in_column(data: Any, column: str) -> Any:
    if isinstance(data, Mapping):
        names: Any = list(map(str, cast(Mapping[Any, Any], data)))
    else:
        names = getattr(data, "column_names", None)
    if isinstance(names, list | tuple) and column in names:
        return data[column] if isinstance(data, Mapping) else list(data[column])
    if isinstance(data, list):
        records = cast(list[Any], data)
        if records and all(isinstance(record, Mapping) and column in record for record in records):
            return [record[column] for record in records]
    raise InputError(
        f"users: {column!r} names a column, and these data, a {type(data).__name__}, {_has(names)}.",
        source="users",
        remedy="give the ids themselves: one for each record, in the order of the records.",
    )


def _has(names: object) -> str:
    return f"have {', '.join(map(str, names))}" if isinstance(names, list | tuple) else "have no columns with names"


def _listed(ids: Any) -> np.ndarray[Any, Any]:
    if isinstance(ids, torch.Tensor):
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, str):
        what = f"users: got {ids!r}, and no table to find such a column in; it needs an id for each record."
        raise InputError(what, remedy=f"give the column, users=table[{ids!r}], and the records without it.")
    if isinstance(ids, np.ma.MaskedArray | bytes | dict | set):
        raise InputError(f"users: got {type(ids).__name__}; it needs an id for each record.", remedy=_REMEDY)
    if not isinstance(ids, np.ndarray):
        try:
            told = list(ids)
        except TypeError as error:
            raise InputError(f"users: got {type(ids).__name__}; it needs an id for each record.", remedy=_REMEDY) from error
        # By itself NumPy would make texts of numbers that stand among texts.
        ids = np.empty(len(told), dtype=object)
        ids[:] = told if all(np.ndim(one) == 0 for one in told) else [None] * len(told)
    if ids.ndim != 1:
        raise InputError(f"users: got ids of shape {ids.shape}; it needs shape (records,).", remedy=_REMEDY)
    return ids


def _of_one_type(listed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    told = listed.tolist()
    kinds = {_kind(one) for one in told}
    if kinds == {int}:
        low, high = min(told), max(told)
        if not -(2**63) <= low <= high < 2**63:
            raise InputError(f"users: ids run from {low} to {high}; whole numbers need to fit into 64 bits.", remedy="give texts.")
        return np.array(told, dtype=np.int64)
    if kinds == {str}:
        return np.array(told, dtype=np.str_) if not any("\0" in one for one in told) else _refused("a text with a zero character")
    wrong = next((one for one in told if _kind(one) is None), None)
    if None in kinds:
        record = next(place for place, one in enumerate(told) if _kind(one) is None)
        missing = wrong is None or (isinstance(wrong, float) and wrong != wrong) or type(wrong).__name__ in ("NAType", "NaTType")
        return _refused(f"{'a missing id' if missing else f'{wrong!r}, a {type(wrong).__name__}'}, at record {record}")
    return _refused("whole numbers and texts: 1 and '1' would be two users")


def _kind(one: object) -> type | None:
    if isinstance(one, bool | np.bool_):
        return None
    return int if isinstance(one, int | np.integer) else str if isinstance(one, str) else None


def _refused(got: str) -> np.ndarray[Any, Any]:
    raise InputError(f"users: got {got}; ids are whole numbers, or texts.", source="users", remedy=_REMEDY)
