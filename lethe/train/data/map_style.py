"""PyTorch's map-style data sets as a `Source`, collated, with a check that each row of a batch is made from its own record alone. A
collator that pads or normalises over the batch would let one record change others' rows. `as_source` makes a `MapStyleSource`; the
transformers integration gives it the Trainer's collator.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Sized
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from lethe.errors import InputError
from lethe.train.core.comparison import first_line, sample
from lethe.train.core.samplers import Batch
from lethe.train.data.sources import Tensors, fetched

READING = {"num_workers", "multiprocessing_context", "prefetch_factor", "pin_memory"}
"""Options of a DataLoader that are used in reading."""

_ALONE = (64, 3)  # records that are made alone: in the first batch, in others
_ROUNDINGS = 16  # where shapes differ, sums within a record may be taken in another order


class Padded(tuple[Tensor, ...]):
    """A batch of which some records were padded; `alone` has these as they are collated by themselves, by row number."""

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
        leave_out: fields of records that are mappings which are not read, such as texts; where there is no collate function.
        declared_apart: True declares that each row of a batch is made of its own record, and of random numbers that are its own; nothing is
            looked at then. Needed where collate or `__getitems__` draw random numbers: nobody can tell these from a mixture.
        reading: options of the DataLoader that reads it: num_workers, multiprocessing_context, prefetch_factor, pin_memory.

    A record, or what a collate function makes of a batch, may be a mapping: the model is then given its tensors, arrays, numbers or lists
    of numbers by their names.

    Attributes:
        declared: what a certificate rests on besides, of the data.
        fields: the names of a record's parts, in the order of the tensors, which is that of the alphabet; None: they have none.

    Raises:
        InputError: no length, no records, a first record that cannot be collated to tensors, or options that no DataLoader takes.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate: Callable[[list[Any]], Any] | None = None,
        leave_out: Collection[str] = (),
        declared_apart: bool = False,
        **reading: Any,
    ) -> None:
        self.dataset, self.reading, self._collate, self._leave_out = dataset, reading, collate, frozenset(leave_out)
        self.fields: tuple[str, ...] | None = None
        self._several = callable(getattr(dataset, "__getitems__", None))
        kind = type(dataset).__name__
        makers = [*(["collate"] if collate else []), *([f"{kind}.__getitems__"] if self._several else [])]
        self._apart = ApartCheck(" and ".join(makers)) if makers and not declared_apart else None
        where = " (declared_apart=True: not looked at)" if declared_apart else ", also in unchecked batches"
        besides = (f"{' and '.join(makers)} make each row of its own record alone{where}",) if makers else ()
        self.declared = (f"record i of {kind} is made of record i alone, with its own random numbers", *besides)
        self._records = length_of(dataset)
        try:
            if strange := reading.keys() - READING:
                raise TypeError(f"unknown option {', '.join(sorted(strange))}")
            DataLoader(range(1), **reading)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"MapStyleSource: {first_line(error)}",
                source="the options of the DataLoader that reads the data set",
                remedy=f"give some of {', '.join(sorted(READING))}, as torch.utils.data.DataLoader takes them.",
            ) from error
        fetched(self, slice(0, 1))

    def __len__(self) -> int:
        return self._records

    def fetch(self, batch: Batch) -> Padded:
        """The records of a batch, read and collated in this process."""
        if (now := length_of(self.dataset)) != self._records:
            raise InputError(f"data: the data set had {self._records} records and now has {now}; their number is part of the guarantee.")
        indices = list(range(self._records)[batch]) if isinstance(batch, slice) else batch.tolist()
        records = self._read(indices)
        padded = Padded(self._batch(records))
        padded.alone = {}
        if self._apart is not None and all(isinstance(part, Tensor) and part.dim() and len(part) == len(records) for part in padded):
            reread = (lambda row: self._read([indices[row]])) if self._several else (lambda place: [records[place]])
            padded.alone = self._apart(lambda row: self._batch(reread(row)), records, padded)
        return padded

    def _read(self, indices: list[int]) -> Sequence[Any]:
        if self._several:
            return self.dataset.__getitems__(indices)
        return [_own(self.dataset[index]) for index in indices]

    def _batch(self, records: Sequence[Any]) -> Tensors:
        record_copies: list[Any] = [
            record.copy() if type(record) in (dict, list) else record for record in records
        ]  # collators may take parts out
        try:
            if record_copies and isinstance(record_copies[0], Mapping) and self._collate is None:
                record_copies = [
                    {name: as_field(name, part) for name, part in record.items() if name not in self._leave_out} for record in record_copies
                ]
            batch = (self._collate or default_collate)(record_copies)
        except InputError:
            raise
        except Exception as error:  # whatever a collate function makes of records that do not fit together
            raise InputError(
                f"collate: of {len(record_copies)} records it makes no batch: {type(error).__name__}: {first_line(error)}",
                source="the collate function, or records of unequal lengths or without numbers",
                remedy="pad to one length in dataset[i], or by the tokeniser's padding='max_length', or by collate: "
                "DataCollatorWithPadding(tokenizer).",
            ) from error
        if not isinstance(batch, Mapping):
            if self.fields:
                raise InputError(f"collate: made a {type(batch).__name__}; the first batch was a mapping.")
            return tuple(batch) if isinstance(batch, tuple | list) else (batch,)
        names = tuple(sorted(name for name, part in batch.items() if part is not None))
        if not names or names != (self.fields or names):  # those of the first batch
            first_fields = f"; the first was of {', '.join(self.fields)}" if self.fields else ""
            raise InputError(
                f"collate: made a batch of {', '.join(names) or 'nothing'}{first_fields}.", remedy="give every record all its parts."
            )
        self.fields = names
        return tuple(batch[name] for name in names)


def as_field(name: Any, entry: Any) -> Tensor:
    """The numbers of a field, as `torch.as_tensor` reads them."""
    try:
        tensors = isinstance(entry, list | tuple) and len(entry) > 0 and isinstance(entry[0], Tensor)
        return torch.stack(tuple(entry)) if tensors else torch.as_tensor(entry)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"data: field {name} cannot become a tensor: {type(entry).__name__}: {first_line(error)}",
            source="texts, missing values, or lists with parts of different kinds or lengths",
            remedy=f"take it out: dataset.remove_columns([{name!r}]), or MapStyleSource(..., leave_out=[{name!r}]); or make numbers of it.",
        ) from error


def _own(part: Any) -> Any:
    """A part of a record, with copies of its arrays and lists: a data set may fill them anew for each record."""
    if isinstance(part, Tensor):
        return part.clone()
    if isinstance(part, tuple) or (isinstance(part, list) and not set(map(type, part)) <= {int, float, bool, str}):
        return type(part)(*map(_own, part)) if hasattr(part, "_fields") else type(part)(map(_own, part))
    if isinstance(part, dict):
        return part | {name: _own(entry) for name, entry in part.items()}
    return part.copy() if isinstance(part, np.ndarray | list) else part


def length_of(dataset: Any) -> int:
    """The number of records of a map-style data set; an InputError where it has no length."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError, ValueError) as error:
        raise InputError(
            f"data: {type(dataset).__name__} has no length; the number of records is a public part of the guarantee.",
            remedy="give a map-style data set: one with len(dataset) and dataset[i]; or store the records as .npy or Parquet files.",
        ) from error


class ApartCheck:
    """Compares rows of a batch with their records collated alone, in batches 1, 2, 4, 8, ..., and so among those that are padded.

    A row must be the same, number for number; where the batch is padded to its longest record, the row of the record alone must stand in
    it at one end, and the rest be one number that is the same in all batches. `what` makes the batches, for errors.
    """

    def __init__(self, what: str) -> None:
        self._what, self._padding = what, dict[int, Tensor]()
        self._batches: Counter[bool] = Counter()  # of records of one size, and of several

    def __call__(self, make: Callable[[int], Tensors], records: Sequence[Any], batch: Tensors) -> dict[int, Tensors]:
        """Some records that were padded, by their row, as `make` makes of that a batch of one record."""
        sizes = [_size(record) for record in records]
        uneven = len(set(sizes)) > 1
        self._batches[uneven] += len(records) > 1
        number = self._batches[uneven]
        if len(records) < 2 or number & (number - 1):
            return {}
        largest = max(sizes, key=repr)
        chosen = sorted(sample(range(len(records)), len(records)), key=lambda row: sizes[row] == largest)  # the padded ones first
        single_records: dict[int, Tensors] = {}
        for place in chosen[: _ALONE[number > 1]]:
            single = make(place)
            pairs = enumerate(zip(single, batch, strict=False))
            if len(single) != len(batch) or not all(
                len(single_row) == 1 and self._agrees(single_row[0], rows[place], part) for part, (single_row, rows) in pairs
            ):
                raise InputError(
                    f"data: {self._what} makes the row of record {place} of more than that record.",
                    source="a mixture of records, or random numbers, which look the same from outside",
                    remedy="mix no records, and draw random numbers in dataset[i]; or, if each row has its own: MapStyleSource(..., "
                    "declared_apart=True).",
                )
            if len(single_records) < _ALONE[1] and any(
                single_part.shape[1:] != rows.shape[1:] for single_part, rows in zip(single, batch, strict=True)
            ):
                single_records[place] = single
        return single_records

    def _agrees(self, single_row: Tensor, row: Tensor, part: int) -> bool:
        """Whether the row of a batch is that of the record alone, up to padding at one end of each dimension."""
        if single_row.dtype != row.dtype or single_row.dim() != row.dim() or any(map(int.__gt__, single_row.shape, row.shape)):
            return False
        if single_row.shape == row.shape:
            return _same(single_row, row)
        for ends in product(*({0, long - short} for short, long in zip(single_row.shape, row.shape, strict=True))):
            outside = torch.ones(row.shape, dtype=torch.bool, device=row.device)
            outside[tuple(slice(end, end + size) for end, size in zip(ends, single_row.shape, strict=True))] = False
            filler = self._padding.get(part, row[outside][0])
            if _same(row[~outside].view(single_row.shape), single_row, _ROUNDINGS) and _same(row[outside], filler):
                self._padding[part] = filler.clone()
                return True
        return False


def _size(record: Any) -> Hashable:
    """The lengths of a record's entries: records of different sizes are padded."""
    entries = record.values() if isinstance(record, Mapping) else record if isinstance(record, tuple | list) else [record]
    return tuple([tuple(entry.shape) if hasattr(entry, "shape") else len(entry) if isinstance(entry, Sized) else 0 for entry in entries])


def _same(first: Tensor, second: Tensor, roundings: int = 0) -> bool:
    """Whether they hold the same numbers, NaN included, up to some roundings."""
    equal = (first == second) | ((first != first) & (second != second))
    if roundings and first.is_floating_point() and first.numel():
        equal |= (first - second).abs() <= roundings * torch.finfo(first.dtype).eps * torch.where(second.isfinite(), second, 0).abs().max()
    return bool(equal.all())
