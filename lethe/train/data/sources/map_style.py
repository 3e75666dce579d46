"""Map-style data sets of PyTorch and their like: a length, and record i for every i."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from lethe.errors import InputError
from lethe.train.core.generators import fresh_generator
from lethe.train.core.samplers import Batch
from lethe.train.data.sources.base import Tensors, require_batch, require_rows, require_whole
from lethe.train.data.sources.reader import Collate, Reader


class MapStyleSource:
    """A data set with `len(dataset)` and `dataset[i]`; its batches are collated to tensors.

    Random augmentation inside `dataset[i]` is allowed: it works on one record alone. A data set whose records look at one another is not,
    and nobody but its author can see that: it is `declared`. What sees several records at once, a collate function or the data set's own
    `__getitems__`, is asked for records again, alone and in other company, at the first batches and at some later ones (`CollateCheck`).

    Args:
        dataset: map-style, with a length that stays the same.
        collate: from a list of records to a tensor, or a tuple or mapping of tensors, with a row for each; None: PyTorch's own, and of
            records that are mappings the tensors of each field in one.
        workers: processes that fetch ahead while a BatchStream reads; 0: none.
        context: how they start: "fork", "spawn" or "forkserver"; None: the platform's way.
        leave_out: fields of records that are mappings which are not read, such as texts; where there is no collate function.
        declared_apart: True declares that each row of a batch is made of its own record, and of random numbers that are its own; nothing is
            asked then. Needed where collate or `__getitems__` draw random numbers: nobody can tell these from a mixture.

    A record may be a mapping from the names of the model's arguments to tensors, arrays, numbers or lists of numbers; or a collate function
    may make such a mapping of a batch, as those of transformers do. The model is then given them by these names.

    Attributes:
        declared: what a certificate rests on besides, of the data.

    Raises:
        InputError: no length, no records, or a first record that cannot be read or collated to tensors.
    """

    __slots__ = ("_context", "_dataset", "_reader", "_records", "declared", "workers")

    def __init__(
        self,
        dataset: Any,
        *,
        collate: Collate | None = None,
        workers: int = 0,
        context: str | None = None,
        leave_out: Collection[str] = (),
        declared_apart: bool = False,
    ) -> None:
        if collate is not None and not callable(collate):
            raise InputError(f"collate: got {type(collate).__name__}; it needs a function of a list of records, or None.")
        if not isinstance(declared_apart, bool):
            raise InputError(f"declared_apart: got {declared_apart!r}; it needs True or False.")
        if context not in (None, "fork", "spawn", "forkserver"):
            raise InputError(f"context: got {context!r}; it needs fork, spawn, forkserver or None.")
        self._dataset = dataset
        if isinstance(leave_out, str) or not isinstance(leave_out, Collection):
            raise InputError(f"leave_out: got {leave_out!r}; it needs a list of the fields' names.")
        self._reader = Reader(dataset, collate, asked=not declared_apart, leave_out=leave_out)
        self.declared = (self._reader.declared,)
        self.workers = require_whole("workers", workers, 0)
        self._context = context
        self._records = length_of(dataset)
        if self._records == 0:
            raise InputError("data: the data set has no records; it needs at least one.")
        try:
            self.fetch(slice(0, 1))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"data: the first record of {type(dataset).__name__} cannot be read: {type(error).__name__}: {error}.",
                remedy="give a data set that answers dataset[0] with numbers or tensors, or a collate function.",
            ) from error

    def __len__(self) -> int:
        return self._records

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The names of a record's parts, in the order of the tensors; None: they have none."""
        return self._reader.fields

    def column(self, name: str) -> list[Any]:
        """One entry of every record, such as the id of its user.

        Args:
            name: of a column of the data set, or of a field of its records.
        Raises:
            InputError: there is none of that name.
        """
        names: Any = getattr(self._dataset, "column_names", None)
        if isinstance(names, list | tuple) and name in names:
            plain: Any = getattr(self._dataset, "with_format", None)
            columns: Any = plain(None) if callable(plain) else self._dataset
            return list(columns[name])
        first = self._dataset[0]
        if not isinstance(first, Mapping) or name not in first:
            has = f"fields {', '.join(map(str, first))}" if isinstance(first, Mapping) else "no columns with names"
            raise InputError(
                f"users: {name!r} names a column, and these data, a {type(self._dataset).__name__}, have {has}.",
                source="users",
                remedy="give the ids themselves: one for each record, in the order of the records.",
            )
        entries = [self._dataset[place][name] for place in range(self._records)]
        return [entry.item() if isinstance(entry, torch.Tensor | np.ndarray) and entry.ndim == 0 else entry for entry in entries]

    def fetch(self, batch: Batch) -> Tensors:
        """The records of a batch, read in this process and collated.

        Raises:
            InputError: the data set's length has changed, or the batch is not one row a record.
        """
        self._refuse_change()
        wanted = _listed(batch, self._records)
        return require_rows(self._reader(wanted), len(wanted), type(self._dataset).__name__)

    def fetch_all(self, batches: Iterator[Batch]) -> Iterator[Tensors]:
        """`fetch` of one batch after another, in order, read ahead by worker processes if there are any."""
        if self.workers == 0:
            yield from map(self.fetch, batches)
            return
        loader: DataLoader[Any] = DataLoader(
            _Whole(self._reader, self._records),  # pyright: ignore[reportArgumentType]
            batch_sampler=_Fed(batches, self),  # pyright: ignore[reportArgumentType]
            num_workers=self.workers,
            collate_fn=_as_it_is,  # pyright: ignore[reportArgumentType]
            multiprocessing_context=self._context,
            # Its own, so that PyTorch's global generator is where it was.
            generator=fresh_generator(torch.device("cpu")),
        )
        ahead = iter(loader)
        try:
            yield from ahead
        finally:
            # At once, not when the last traceback that holds the iterator is gone.
            ahead._shutdown_workers()  # pyright: ignore[reportAttributeAccessIssue]

    def indices(self, batch: Batch) -> list[int]:
        """The batch as a list, for the workers."""
        self._refuse_change()
        return _listed(batch, self._records)

    def _refuse_change(self) -> None:
        now = length_of(self._dataset)
        if now != self._records:
            raise InputError(
                f"data: the data set had {self._records} records and now has {now}.",
                remedy="keep it as it is while a run lasts: the number of records is part of the guarantee.",
            )


class _Whole:
    """What a DataLoader takes for a data set: asked for a list of indices it gives the batch; a class, so that processes can be sent it."""

    def __init__(self, reader: Reader, records: int) -> None:
        self._reader, self._records = reader, records

    def __len__(self) -> int:
        return self._records

    def __getitem__(self, index: int) -> Tensors:
        return self._reader([index])

    def __getitems__(self, indices: list[int]) -> Tensors:
        return self._reader(indices)


def _as_it_is(batch: Tensors) -> Tensors:
    return batch


class _Fed:
    """Lists of indices for a DataLoader, drawn when it asks for them."""

    def __init__(self, batches: Iterator[Batch], source: MapStyleSource) -> None:
        self._batches, self._source = batches, source

    def __iter__(self) -> Iterator[list[int]]:
        return map(self._source.indices, self._batches)


def _listed(batch: Batch, records: int) -> list[int]:
    rows = require_batch(batch, records)
    return list(range(rows.start, rows.stop)) if isinstance(rows, slice) else rows.tolist()


def length_of(dataset: Any) -> int:
    """The number of records of a map-style data set.

    Raises:
        InputError: it has no length.
    """
    try:
        return len(dataset)
    except (TypeError, NotImplementedError, ValueError) as error:
        raise InputError(
            f"data: {type(dataset).__name__} has no length; the number of records is a public part of the guarantee.",
            remedy="give a map-style data set: one with len(dataset) and dataset[i].",
        ) from error
