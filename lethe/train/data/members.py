"""The records of each unit, and those of them that take part in a step."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import torch

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.core.samplers import Batch, refuse_other_records
from lethe.train.core.tensors import contents
from lethe.train.data.sources.base import Source, require_whole
from lethe.train.data.user_ids import Owners, ids_of, owners_of

_STREAM = 0x75736572  # tells the choice of records under a seed from batches and noise


class Rows(NamedTuple):
    """The records of some units: which they are, and the unit of each, counted from 0 among these units; None: each is one by itself."""

    records: Batch
    places: torch.Tensor | None


class Members:
    """Which records each unit is made of.

    Args:
        owners: of each record.
        most: the most records of a unit that take part in a step, chosen anew and uniformly each time; None: all.
        views: how often each of them is read, K >= 1.
        seed: makes the choices repeatable; None: fresh entropy. Whatever is chosen of a unit, its contribution is clipped: the guarantee
            does not rest on the choice being secret.
    Raises:
        InputError: a number that is none.
    """

    def __init__(self, owners: Owners, *, most: int | None = None, views: int = 1, seed: int | None = None) -> None:
        self.most = None if most is None else require_whole("records_per_user", most, 1)
        self.views = require_whole("views", views, 1)
        self.units, self.records = owners.users, len(owners.places)
        self._owners = owners.places
        self._order = owners.places.argsort(stable=True)
        self._sizes = torch.bincount(owners.places, minlength=owners.users)
        self._starts = self._sizes.cumsum(0) - self._sizes
        self._in_order = self.single and torch.equal(self._order, torch.arange(self.records))
        entropy = np.random.SeedSequence(None if seed is None else int(seed), spawn_key=(_STREAM,))
        self._key = entropy.generate_state(2, np.uint64)

    @property
    def single(self) -> bool:
        """Whether every unit is one record, read once."""
        return self.views == 1 and self.units == self.records

    def digest(self) -> str:
        """A hash of what belongs together and of how it is read; as private as the ids."""
        return hashlib.blake2b(repr((self.most, self.views, self.units)).encode() + contents(self._owners), digest_size=32).hexdigest()

    def rows_of(self, batch: Batch, step: int) -> Rows:
        """The records of a batch of units at a step, counted from 1.

        A choice depends on the step and the unit alone, not on the batch or the process that the unit is in.
        """
        if self._in_order:
            return Rows(batch, None)
        units = torch.arange(batch.start, batch.stop) if isinstance(batch, slice) else batch
        if self.single:
            return Rows(self._order[units], None)
        rows = [self._rows(unit, step) for unit in units.tolist()]
        records = torch.cat([torch.zeros(0, dtype=torch.int64), *rows]).repeat_interleave(self.views)
        if self.views == 1 and all(len(own) == 1 for own in rows):
            return Rows(records, None)
        sizes = torch.tensor([self.views * len(own) for own in rows], dtype=torch.int64)  # also of no unit
        return Rows(records, torch.arange(len(units)).repeat_interleave(sizes))

    def _rows(self, unit: int, step: int) -> torch.Tensor:
        """Which of a unit's records take part in a step."""
        first, size = int(self._starts[unit]), int(self._sizes[unit])
        mine = self._order[first : first + size]
        if self.most is None or size <= self.most:
            return mine
        chance = np.random.Generator(np.random.Philox(key=self._key, counter=np.array([0, 0, step, unit], dtype=np.uint64)))
        return mine[torch.from_numpy(chance.choice(size, self.most, replace=False)).sort().values]


def members_of(
    run: Run, data: Any, source: Source, *, users: Any, records_per_user: int | None, views: int, seed: int | None
) -> Members | None:
    """The members of the run's units; None where each record is one, read once.

    Args: as `lethe.train.fit`.

    Raises:
        InputError: they contradict the run or the data.
    """
    views = require_whole("views", views, 1)
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
        return None if views == 1 else Members(Owners(torch.arange(len(source)), len(source)), views=views)
    owners = owners_of(ids_of(users, data, source))
    if len(owners.places) != len(source):
        raise InputError(f"users: got {len(owners.places)} ids for {len(source)} records; it needs one for each, in their order.")
    refuse_other_records(run.records, owners.users, "the data are of {} users, and the run's records are users")
    return Members(owners, most=records_per_user, views=views, seed=seed)
