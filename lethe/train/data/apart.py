"""Whether what makes a batch makes each row from its own record alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from itertools import product
from typing import Any

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.core.comparison import sample
from lethe.train.data.sources import Tensors

_ALONE = (64, 3)  # records that are made alone: in the first batch, in others
_ROUNDINGS = 16  # where shapes differ, sums within a record may be taken in another order


class ApartCheck:
    """Compares rows of a batch with their records collated alone, in batches 1, 2, 4, 8, ..., and so among those that are padded.

    A row must be the same, number for number; where the batch is padded to its longest record, the row of the record alone must stand in
    it at one end, and the rest be one number that is the same in all batches. `what` makes the batches, for errors.
    """

    def __init__(self, what: str) -> None:
        self._what, self._padding = what, dict[int, Tensor]()
        self._batches: Counter[bool] = Counter()  # of records of one size, and of several

    def __call__(self, made: Callable[[int], Tensors], records: Sequence[Any], batch: Tensors) -> dict[int, Tensors]:
        """Refuse rows that depend on other records of the batch.

        Args:
            made: from a place in the batch to the batch of its record alone.
            records: of the batch.
            batch: what was made of them.
        Returns:
            Some records that were padded, made alone, by their place in the batch.
        Raises:
            InputError: a row depends on the other records, or is random, so that nobody can tell.
        """
        sizes = [_size(record) for record in records]
        uneven = len(set(sizes)) > 1
        self._batches[uneven] += len(records) > 1
        number = self._batches[uneven]
        if len(records) < 2 or number & (number - 1):
            return {}
        largest = max(sizes, key=repr)
        chosen = sorted(sample(range(len(records)), len(records)), key=lambda place: sizes[place] == largest)  # the padded ones first
        alone: dict[int, Tensors] = {}
        for place in chosen[: _ALONE[number > 1]]:
            single = made(place)
            if len(single) != len(batch) or not all(self._agrees(single[part][0], batch[part][place], part) for part in range(len(batch))):
                raise InputError(
                    f"data: {self._what} makes the row of record {place} of a batch of more than that record: it is another one alone.",
                    source="other records, or random numbers, which nobody can tell from a mixture of records",
                    remedy="mix, centre, sort and repeat nothing there: one record of a mixture moves the sum by more than C; pad "
                    "with one number; draw what is random in dataset[i], which sees one record; or, if each row is made of its own record "
                    "and of random numbers that are its own, say so: MapStyleSource(..., declared_apart=True).",
                )
            if len(alone) < _ALONE[1] and any(one.shape[1:] != rows.shape[1:] for one, rows in zip(single, batch, strict=True)):
                alone[place] = single
        return alone

    def _agrees(self, one: Tensor, row: Tensor, part: int) -> bool:
        """Whether the row of a batch is that of the record alone, up to padding at one end of each dimension."""
        if one.dtype != row.dtype or one.dim() != row.dim() or any(map(int.__gt__, one.shape, row.shape)):
            return False
        if one.shape == row.shape:
            return _same(one, row)
        for ends in product(*({0, long - short} for short, long in zip(one.shape, row.shape, strict=True))):
            outside = torch.ones(row.shape, dtype=torch.bool, device=row.device)
            outside[tuple(slice(end, end + size) for end, size in zip(ends, one.shape, strict=True))] = False
            filler = self._padding.get(part, row[outside][0])
            if _same(row[~outside].view(one.shape), one, _ROUNDINGS) and _same(row[outside], filler):
                self._padding[part] = filler.clone()
                return True
        return False


def _size(record: Any) -> Hashable:
    """The lengths of a record's entries: records of different sizes are padded."""
    entries = record.values() if isinstance(record, Mapping) else record if isinstance(record, tuple | list) else [record]
    return tuple([tuple(entry.shape) if hasattr(entry, "shape") else len(entry) if isinstance(entry, Sized) else 0 for entry in entries])


def _same(one: Tensor, other: Tensor, roundings: int = 0) -> bool:
    """Whether they hold the same numbers, NaN included, up to some roundings."""
    equal = (one == other) | ((one != one) & (other != other))
    if roundings and one.is_floating_point() and one.numel():
        equal |= (one - other).abs() <= roundings * torch.finfo(one.dtype).eps * torch.where(other.isfinite(), other, 0).abs().max()
    return bool(equal.all())
