"""Privacy of users: whose record each is, by the ids of the caller, and which records of a user take part in a step. A unit is what is
drawn into batches: a record, or a user with all records. `BatchStream` turns drawn units into rows by `Members`.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.core.samplers import Batch, refuse_other_records
from lethe.train.core.tensors import contents
from lethe.train.data.map_style import MapStyleSource
from lethe.train.data.sources import Source

_STREAM = 0x75736572  # tells the choice of records under a seed from batches and noise


def owners_of(ids: Any) -> torch.Tensor:
    """Whose each record is: places in the list of users, which is sorted by id, shape (n,), int64.

    Users stand in the order of their ids, so that a user's place says nothing of the records: in the order of their first records, a user
    whose records change would move others into other batches. Ids are compared exactly: "a" and "A" are two users.
    """
    return torch.from_numpy(np.unique(plain_ids(ids), return_inverse=True)[1].astype(np.int64).reshape(-1))


def plain_ids(ids: Any) -> np.ndarray[Any, Any]:
    """The ids, those of `owners_of`, as an array of whole numbers or of texts, shape (n,)."""
    if isinstance(ids, torch.Tensor):
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, np.ma.MaskedArray | str | bytes | dict | set) or not hasattr(type(ids), "__iter__") or getattr(ids, "ndim", 1) != 1:
        raise _wrong(
            f"{ids!r}, and no such column" if isinstance(ids, str) else f"{type(ids).__name__} {getattr(ids, 'shape', '')}".strip()
        )
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iuU":  # by itself NumPy would make texts of numbers that are among texts
        listed: list[Any] = list(ids.tolist() if isinstance(ids, np.ndarray) else ids)
        whole = [isinstance(entry, int | np.integer) and not isinstance(entry, bool) for entry in listed]
        if not all(whole) and not all(isinstance(entry, str) for entry in listed):
            raise _wrong(f"ids of the types {', '.join({type(entry).__name__: None for entry in listed})}")
        ids = np.array(listed, dtype=object if all(whole) else np.str_)
    if not len(ids) or (ids.dtype.kind == "U" and bool((ids == "").any())):
        raise _wrong(f"an empty text, at record {int((ids == '').argmax())}" if len(ids) else "none")
    return ids


def _wrong(got: str) -> InputError:
    return InputError(
        f"users: got {got}; it needs one id for each record, all whole numbers or all texts.",
        source="users",
        remedy="give users=table['patient']; make texts of other ids, and give a record without a user an id of its own, or leave it out.",
    )


def ids_of(users: Any, data: Any) -> Any:
    """The id of each record's user, as it was given or as a column of the data has it: of a mapping of columns, a data set with
    columns, such as a `datasets.Dataset`, or records that are mappings; or of its DataLoader.
    """
    if not isinstance(users, str):
        return users
    data = data.dataset if isinstance(data, DataLoader | MapStyleSource) else data
    names: Any = list(data) if isinstance(data, Mapping) else getattr(data, "column_names", None)
    try:
        if names is not None:
            columns: Any = data
            return list((columns.with_format(None) if hasattr(columns, "with_format") else columns)[users])
        entries = [data[index][users] for index in range(len(data))]
        return [entry.item() if isinstance(entry, torch.Tensor | np.ndarray) and entry.ndim == 0 else entry for entry in entries]
    except (LookupError, TypeError) as error:
        has = ", ".join(map(str, names)) if isinstance(names, list | tuple) else "no such column with a name"
        raise InputError(
            f"users: {users!r} names a column, and these data, a {type(data).__name__}, have {has}.",
            source="users",
            remedy="give the ids themselves: one for each record, in the order of the records.",
        ) from error


class Members:
    """Which records each unit is made of.

    At most `records_per_user` records of a unit take part in a step, chosen anew and uniformly each time, each read `views` times.
    Whatever is chosen, the unit's contribution is clipped: the guarantee does not rest on the choice being secret.
    """

    def __init__(self, owners: torch.Tensor, *, records_per_user: int | None = None, views: int = 1, seed: int | None = None) -> None:
        self.records_per_user = None if records_per_user is None else require_count("records_per_user", records_per_user)
        self.views, self._owners, self._order = views, owners, owners.argsort(stable=True)
        self._ends = owners.bincount().cumsum(0)
        self.units = len(self._ends)
        entropy = np.random.SeedSequence(None if seed is None else int(seed), spawn_key=(_STREAM,))
        self._key = entropy.generate_state(2, np.uint64)

    @property
    def single(self) -> bool:
        """Whether every unit is one record, read once."""
        return self.views == 1 and self.units == len(self._owners)

    def digest(self) -> str:
        """A hash of what belongs together and of how it is read; as private as the ids."""
        return hashlib.blake2b(
            repr((self.records_per_user, self.views, self.units)).encode() + contents(self._owners), digest_size=32
        ).hexdigest()

    def rows_of(self, batch: Batch, step: int) -> tuple[Batch, torch.Tensor | None]:
        """The records of a batch of units at a step, counted from 1, and the unit of each, counted from 0; None: each is one by itself.

        A choice depends on the step and the unit alone, not on the batch or the process that the unit is in.
        """
        if self.single:
            return self._order[batch], None
        units = range(batch.start, batch.stop) if isinstance(batch, slice) else batch.tolist()
        rows = [self._rows(unit, step) for unit in units]
        records = torch.cat([torch.zeros(0, dtype=torch.int64), *rows]).repeat_interleave(self.views)
        sizes = torch.tensor([self.views * len(unit_rows) for unit_rows in rows], dtype=torch.int64)  # also of no unit
        return records, None if bool((sizes == 1).all()) else torch.arange(len(units)).repeat_interleave(sizes)

    def _rows(self, unit: int, step: int) -> torch.Tensor:
        """The numbers of a unit's records that take part in a step."""
        unit_rows = self._order[int(self._ends[unit - 1]) if unit else 0 : int(self._ends[unit])]
        if self.records_per_user is None or len(unit_rows) <= self.records_per_user:
            return unit_rows
        chance = np.random.Generator(np.random.Philox(key=self._key, counter=np.array([0, 0, step, unit], dtype=np.uint64)))
        return unit_rows[torch.from_numpy(chance.choice(len(unit_rows), self.records_per_user, replace=False)).sort().values]


def members_of(
    run: Run, data: Any, source: Source, *, users: Any, records_per_user: int | None, views: int, seed: int | None
) -> Members | None:
    """The members of the run's units; None where each record is one, read once."""
    views = require_count("views", views)
    if (users is None) != (run.unit == "record"):
        needed = "it needs users, the id of each record's user" if users is None else "users are given, and nobody would be told of them"
        raise InputError(f"unit: the run says {run.unit}; {needed}.", remedy='give users=ids, and a run with unit="user"; or neither.')
    if users is None:
        if records_per_user is not None:
            raise InputError("records_per_user: given without users.")
        if views > 1 and run.loss.scalar:  # of a mean over views it is not true that clipping keeps the curvature of a scalar loss
            raise InputError(
                f"views: got {views}; the run's {run.loss.summary} has gradients along one direction for each record, and the mean over "
                "several views of it has not: its certificate would count with too little.",
                remedy="state the run's loss by its bounds alone, such as lethe.losses.WeaklyConvex, or take one view.",
            )
        return None if views == 1 else Members(torch.arange(len(source)), views=views)
    owners = owners_of(ids_of(users, data))
    if len(owners) != len(source):
        raise InputError(f"users: got {len(owners)} ids for {len(source)} records; it needs one for each, in their order.")
    refuse_other_records(run.records, int(owners.max()) + 1, "the data are of {} users, and the run's records are users")
    return Members(owners, records_per_user=records_per_user, views=views, seed=seed)
