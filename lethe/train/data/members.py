"""The records of each unit, and those of them that take part in a step."""

from __future__ import annotations

import hashlib
import os
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
        self._single = self.views == 1 and int(self._sizes.max()) == 1
        self._in_order = self._single and torch.equal(self._order, torch.arange(self.records))
        self._key = _key(seed)
        self._digest: str | None = None

    @property
    def single(self) -> bool:
        """Whether every unit is one record, read once."""
        return self._single

    def digest(self) -> str:
        """A hash of what belongs together and of how it is read; as private as the ids."""
        if self._digest is None:
            found = hashlib.blake2b(repr((self.most, self.views, self.units)).encode(), digest_size=32)
            found.update(contents(self._owners))
            self._digest = found.hexdigest()
        return self._digest

    def rows_of(self, batch: Batch, step: int) -> Rows:
        """The records of a batch of units at a step.

        A choice depends on the step and the unit alone, not on the batch or the process that the unit is in.

        Args:
            batch: of units.
            step: from 1.
        """
        if self._in_order:
            return Rows(batch, None)
        units = torch.arange(batch.start, batch.stop) if isinstance(batch, slice) else batch
        if self._single:
            return Rows(self._order[units], None)
        sizes = self._sizes[units]
        begins = sizes.cumsum(0) - sizes
        within = torch.arange(int(sizes.sum())) - begins.repeat_interleave(sizes)
        records, places = self._order[self._starts[units].repeat_interleave(sizes) + within], torch.arange(len(units))
        if self.most is not None and bool((sizes > self.most).any()):
            kept = torch.ones(len(records), dtype=torch.bool)
            for place in (sizes > self.most).nonzero()[:, 0].tolist():
                first, size = int(begins[place]), int(sizes[place])
                kept[first : first + size] = False
                kept[first + self._chosen(int(units[place]), size, step)] = True
            records, sizes = records[kept], sizes.clamp(max=self.most)
        if self.views == 1 and bool((sizes == 1).all()):
            return Rows(records, None)
        return Rows(records.repeat_interleave(self.views), places.repeat_interleave(sizes * self.views))

    def _chosen(self, unit: int, size: int, step: int) -> torch.Tensor:
        """Which of a unit's records take part in a step."""
        chance = np.random.Generator(np.random.Philox(key=self._key, counter=np.array([0, 0, step, unit], dtype=np.uint64)))
        return torch.from_numpy(chance.choice(size, self.most, replace=False))


def members_of(
    run: Run, data: Any, source: Source, *, users: Any, records_per_user: int | None, views: int, seed: int | None
) -> Members | None:
    """The members of the run's units; None where each record is one, read once.

    Args:
        run: says the unit.
        data, source: as given, and as read.
        users: ids, or the name of their column; None where records are the unit.
        records_per_user, views: see `lethe.train.fit`.
        seed: of the training.
    Raises:
        InputError: they contradict the run or the data.
    """
    views = require_whole("views", views, 1)
    if (users is None) != (run.unit == "record"):
        needed = "it needs users, the id of each record's user" if users is None else "users are given, and nobody would be told of them"
        remedy = "give users=ids, or a column's name." if users is None else 'plan and certify the run with unit="user".'
        raise InputError(f"unit: the run says {run.unit}; {needed}.", source="run.unit, users", remedy=remedy)
    if users is None:
        if records_per_user is not None:
            raise InputError("records_per_user: given without users.", remedy='give users=ids, and a run that is given unit="user".')
        _refuse_scalar(run, views)
        return None if views == 1 else Members(Owners(torch.arange(len(source)), len(source)), views=views)
    owners = owners_of(ids_of(users, data, source))
    if len(owners.places) != len(source):
        raise InputError(
            f"users: got {len(owners.places)} ids for {len(source)} records.", remedy="give one for each record, in their order."
        )
    refuse_other_records(run.records, owners.users, "the data are of {} users, and the run's records are users")
    return Members(owners, most=records_per_user, views=views, seed=seed)


def _refuse_scalar(run: Run, views: int) -> None:
    """Of a mean over views it is not true that clipping keeps the curvature of a scalar loss."""
    if views > 1 and run.loss.scalar:
        raise InputError(
            f"views: got {views}; the run's {run.loss.summary} has gradients along one direction for each record, and the mean over "
            "several views of it has not: its certificate would count with too little.",
            source="views, run.loss",
            remedy="state the run's loss by its bounds alone, such as lethe.losses.WeaklyConvex, or take one view.",
        )


def _key(seed: int | None) -> np.ndarray[Any, np.dtype[np.uint64]]:
    if seed is None:
        return np.frombuffer(os.urandom(16), dtype=np.uint64)
    return np.random.SeedSequence(int(seed), spawn_key=(_STREAM,)).generate_state(2, np.uint64).astype(np.uint64)
