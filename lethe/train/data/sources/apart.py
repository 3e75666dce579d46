"""Check that a collate function makes each row from its own record alone, at random batches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from typing import Any

import torch

from lethe.errors import InputError
from lethe.train.core.comparison import chance, first_line, sample
from lethe.train.data.sources.base import Tensors
from lethe.train.data.sources.padding import Padding, same

Made = Callable[[list[Any]], Tensors]

_FIRST = 3  # batches that are all looked at
_ODDS = 128  # one batch in so many is looked at, besides powers of two and new shapes
_SHAPES = 16  # of so many shapes the first batch is looked at
_ALONE = 3  # records that are made alone; in the first batches all are


class CollateCheck:
    """Compares batches with the same records collated again, alone and among other records.

    A row must be the same, number for number; where the batch is padded to its longest record, the row of the record alone must stand in
    it at one end, and the rest be one number that is the same in all batches.

    Args:
        what: is asked, for errors: "collate", "the data set's __getitems__".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._batches = 0
        self._shapes: set[tuple[torch.Size, ...]] = set()
        self._padding = Padding()
        self._uneven = 0

    def due(self, batch: Tensors, records: Sequence[Any] = ()) -> bool:
        """Whether a batch that was made is to be looked at; one of a single record shows nothing.

        The first batches of records of different sizes are, whenever they come: before them nothing was padded.
        """
        if len(batch[0]) < 2:
            return False
        self._batches += 1
        shapes = tuple(part.shape[1:] for part in batch)
        new = shapes not in self._shapes and len(self._shapes) < _SHAPES
        if new:
            self._shapes.add(shapes)
        self._uneven += (uneven := len({_size(record) for record in records}) > 1)
        power = self._batches & (self._batches - 1) == 0 or (uneven and self._uneven & (self._uneven - 1) == 0)
        return new or power or (uneven and self._uneven <= _FIRST) or self._batches <= _FIRST or chance.randrange(_ODDS) == 0

    def require(self, made: Made, records: list[Any], batch: Tensors) -> dict[int, Tensors]:
        """Refuse rows that depend on other records of the batch.

        Args:
            made: from records to a batch.
            records: two or more.
            batch: what it made of them.
        Returns:
            Some records that were padded, made alone, by their place in the batch.
        Raises:
            InputError: a row depends on the other records; or it is random, or cannot be made alone, so that nobody can tell.
        """
        again = self._asked(made, records)
        if [part.shape for part in again] != [part.shape for part in batch] or not all(map(same, again, batch)):
            raise self._undetermined("it makes another batch of the same records the second time")
        half = set(sample(range(len(records)), len(records) // 2))
        for gone in (half, set(range(len(records))) - half):
            kept = [record for record in range(len(records)) if record not in gone]
            copied = records[chance.choice(kept)]
            company = self._asked(made, [copied if place in gone else record for place, record in enumerate(records)])
            self._require_same(company, kept, batch, kept, "the record in its batch against the record where others are copies of one")
        alone: dict[int, Tensors] = {}
        for record in self._to_be_alone(records):
            single = self._asked(made, [records[record]])
            self._require_same(single, [0], batch, [record], "the record in its batch against the record alone")
            if len(alone) < _ALONE and any(one.shape[1:] != other.shape[1:] for one, other in zip(single, batch, strict=True)):
                alone[record] = single
        return alone

    def _to_be_alone(self, records: list[Any]) -> list[int]:
        """All in the first batches; then some, of which most are smaller than the largest, and so padded."""
        everyone = sample(range(len(records)), len(records))
        if self._batches <= _FIRST:
            return everyone
        sizes = [_size(record) for record in records]
        smaller = [record for record in everyone if sizes[record] != max(sizes, key=repr)]
        return list(dict.fromkeys([*smaller[: _ALONE - 1], *everyone]))[:_ALONE]

    def _asked(self, made: Made, records: list[Any]) -> Tensors:
        try:
            return made(records)
        except Exception as error:  # whatever a data set's own code makes of it
            raise self._undetermined(f"of {len(records)} records it makes no batch: {first_line(error)}") from error

    def _require_same(self, made: Tensors, rows: Sequence[int], batch: Tensors, records: Sequence[int], comparison: str) -> None:
        if len(made) != len(batch):
            raise self._undetermined(f"it gives {len(batch)} tensors, and {len(made)} of other records")
        for row, record in zip(rows, records, strict=True):
            for part, (one, other) in enumerate(zip(made, batch, strict=True)):
                if not self._padding.agree(one[row], other[record], part):
                    raise InputError(
                        f"data: {self._what} makes the row of record {record} of a batch, in part {part}, of more than that record.",
                        source=f"the check of the data: {comparison}",
                        remedy="mix, centre, sort and repeat nothing there (a mixture of records is no record: the sum moves by more "
                        "than C when one of them does); pad with one number; what must look at a whole batch cannot be certified.",
                    )

    def _undetermined(self, why: str) -> InputError:
        return InputError(
            f"data: whether {self._what} makes each row of its own record alone cannot be found out: {why}.",
            source="the check of the data: a batch made again, of the same records, of others in their place, and of one",
            remedy="draw what is random in dataset[i], which sees one record; or, if each row is made of its own record and of random "
            "numbers that are its own, declare so: MapStyleSource(..., declared_apart=True). The certificate then rests on it.",
        )


def _size(record: Any) -> Hashable:
    """The lengths of a record's entries: records of different sizes are padded."""
    if isinstance(record, torch.Tensor):
        return tuple(record.shape)
    entries = list(record.values()) if isinstance(record, Mapping) else record if isinstance(record, tuple | list) else [record]
    return tuple([tuple(entry.shape) if hasattr(entry, "shape") else len(entry) if isinstance(entry, Sized) else 0 for entry in entries])
