"""Map-style data sets of PyTorch and their like: a length, and record i for every i."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.utils.data import default_collate

from lethe.errors import InputError
from lethe.train.core.comparison import first_line
from lethe.train.core.samplers import Batch
from lethe.train.data.sources.apart import ApartCheck, copied, meet
from lethe.train.data.sources.base import Tensors, require_rows, require_whole
from lethe.train.data.sources.fields import Fields, stacked

Collate = Callable[[list[Any]], Any]


class Padded(tuple[torch.Tensor, ...]):
    """A batch of which some records were padded, with `alone`: these as they are collated alone, by their place."""

    alone: dict[int, Tensors]


class MapStyleSource:
    """A data set with `len(dataset)` and `dataset[i]`; its batches are collated to tensors.

    Random augmentation inside `dataset[i]` is allowed: it works on one record alone. That no record looks at another is `declared`. What
    sees several records at once, a collate function or the data set's own `__getitems__`, is given some of them again, alone, in batches
    1, 2, 4, 8, ... (`ApartCheck`).

    Args:
        dataset: map-style, with a length that stays the same.
        collate: from a list of records to a tensor, or a tuple or mapping of tensors, with a row for each; None: PyTorch's own, and of
            records that are mappings the tensors of each field in one.
        workers: processes that read ahead while a BatchStream reads; 0: none.
        context: how they start: "fork", "spawn" or "forkserver"; None: the platform's way.
        leave_out: fields of records that are mappings which are not read, such as texts; where there is no collate function.
        declared_apart: True declares that each row of a batch is made of its own record, and of random numbers that are its own; nothing is
            looked at then. Needed where collate or `__getitems__` draw random numbers: nobody can tell these from a mixture.
        prefetch_factor, pin_memory: as of PyTorch's DataLoader.

    A record may be a mapping from the names of the model's arguments to tensors, arrays, numbers or lists of numbers; or a collate function
    may make such a mapping of a batch, as those of transformers do. The model is then given them by these names.

    Attributes:
        dataset: that was given.
        declared: what a certificate rests on besides, of the data.
        reading: options of the DataLoader that reads it.

    Raises:
        InputError: no length, no records, or a first record that cannot be read or collated to tensors.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate: Collate | None = None,
        workers: int = 0,
        context: str | None = None,
        leave_out: Collection[str] = (),
        declared_apart: bool = False,
        prefetch_factor: int | None = None,
        pin_memory: bool = False,
    ) -> None:
        if collate is not None and not callable(collate):
            raise InputError(f"collate: got {type(collate).__name__}; it needs a function of a list of records, or None.")
        if not isinstance(declared_apart, bool):
            raise InputError(f"declared_apart: got {declared_apart!r}; it needs True or False.")
        if isinstance(leave_out, str) or not isinstance(leave_out, Collection):
            raise InputError(f"leave_out: got {leave_out!r}; it needs a list of the fields' names.")
        self.reading: dict[str, Any] = {"num_workers": require_whole("workers", workers, 0)}
        self.reading |= {"multiprocessing_context": context, "prefetch_factor": prefetch_factor} if workers else {}
        self.reading |= {"pin_memory": True} if pin_memory and torch.cuda.is_available() else {}
        self.dataset, self._collate = dataset, default_collate if collate is None else collate
        self._leave_out, self._fields = frozenset(leave_out), Fields("data" if collate is None else "collate")
        self._several = callable(getattr(dataset, "__getitems__", None))
        self._copying = False  # whether the data set fills one array anew for each record, which shows among
        self._compared = 1  # so many of them at most
        checked = not declared_apart
        self._collates = ApartCheck("collate") if checked and collate is not None else None
        self._gets = ApartCheck("the data set's __getitems__") if checked and self._several else None
        self.declared = (_declared(type(dataset).__name__, collate is not None, self._several, checked=checked),)
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
        return self._fields.names or None

    def fetch(self, batch: Batch) -> Padded:
        """The records of a batch, read and collated in this process.

        Raises:
            InputError: the data set's length has changed, the batch is not one row a record, or a row is made of other records.
        """
        if (now := length_of(self.dataset)) != self._records:
            raise InputError(f"data: the data set had {self._records} records and now has {now}; their number is part of the guarantee.")
        indices = list(range(self._records)[batch]) if isinstance(batch, slice) else batch.tolist()
        records = self._read(indices)
        kept = _guarded(records) if self._collates is not None else []
        made = Padded(require_rows(self._batch(records), len(indices), type(self.dataset).__name__))
        made.alone = {} if self._collates is None else self._collates(lambda some: self._batch(_guarded(some)), kept, made)
        if self._gets is not None:
            made.alone |= self._gets(lambda some: self._batch(self._read(some)), indices, made)
        return made

    def _read(self, indices: list[int]) -> Any:
        records = self.dataset.__getitems__(indices) if self._several else [self._one(index) for index in indices]
        if not self._several and not self._copying and len(indices) > self._compared:
            self._compared, self._copying = len(indices), meet(records)
            records = [self._one(index) for index in indices] if self._copying else records
        if not records:
            raise InputError("data: the data set returned no record where some were asked for.")
        return records

    def _one(self, index: int) -> Any:
        record = self.dataset[index]
        return copied(record, type(self.dataset).__name__) if self._copying else record

    def _batch(self, records: Any) -> Tensors:
        named = isinstance(records[0], Mapping) and self._collate is default_collate
        batch = stacked(records, self._leave_out) if named else self._collated(records)
        if isinstance(batch, Mapping):
            return self._fields.in_order(batch, len(records))
        if self._fields.names:
            raise InputError(f"collate: made a {type(batch).__name__}; the first batch was a mapping.")
        return require_rows(tuple(batch) if isinstance(batch, tuple | list) else (batch,), len(records), "collate")

    def _collated(self, records: Any) -> Any:
        try:
            return self._collate(records)
        except InputError:
            raise
        except Exception as error:  # whatever a collate function makes of records that do not fit together
            if self._collate is default_collate and len(records) == 1:
                raise  # no matter of how they fit together
            raise InputError(
                f"collate: of {len(records)} records it makes no batch: {type(error).__name__}: {first_line(error)}",
                source="the collate function, or records whose parts disagree in length",
                remedy="pad each part of a record to one length: PadTo(length=...), or DataCollatorWithPadding(tokenizer).",
            ) from error


def _declared(kind: str, collate: bool, several: bool, *, checked: bool) -> str:
    whats = [*(["collate"] if collate else []), *([f"{kind}.__getitems__"] if several else [])]
    where = "in batches other than those that were checked" if checked else "(declared_apart=True: not looked at)"
    besides = f"; {' and '.join(whats)} make each row of its own record alone {where}" if whats else ""
    return f"record i of {kind} is made of record i alone, and of random numbers that nothing else is made of{besides}"


def _guarded(records: Any) -> list[Any]:
    """The records, of which a collate function may take entries out without their missing the next time."""
    return [dict(record) if type(record) is dict else list(record) if type(record) is list else record for record in records]


def length_of(dataset: Any) -> int:
    """The number of records of a map-style data set; an InputError where it has no length."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError, ValueError) as error:
        raise InputError(
            f"data: {type(dataset).__name__} has no length; the number of records is a public part of the guarantee.",
            remedy="give a map-style data set: one with len(dataset) and dataset[i].",
        ) from error
