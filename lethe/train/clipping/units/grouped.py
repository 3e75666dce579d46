"""Rows of a part formed and added up, unit by unit."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.train.clipping.rules.measuring import lost
from lethe.train.clipping.rules.parts import Part, squares_of
from lethe.train.clipping.rules.rounding import Cancelling
from lethe.train.core.together.weighing import added_up

# Numbers that may be held besides the activations, at most: 2^24 float32 are 64 MiB.
_HELD = 2**24

# Rounding of one row's share of a weighted sum beyond its slack, in eps of its norm: half of what `clip_weights` grants a record.
_OWN = 32


class Grouped(Cancelling):
    r"""$G_u = \sum_{r \in u} G_r$ of a part that has one row for each row of a batch.

    Args:
        part: $G_r$.
        places: the unit of each row, shape (rows,), int64.
        sizes: how many rows each unit has, >= 1, shape (U,), int64.
        numbers: how many numbers the parameter has.
    """

    def __init__(self, part: Part, places: Tensor, sizes: Tensor, numbers: int) -> None:
        self.part, self.places, self.sizes, self.numbers = part, places, sizes, numbers
        self.dtype = part.dtype
        self._order = places.argsort(stable=True)
        self._starts = sizes.cumsum(0) - sizes

    def _squares(self) -> Tensor:
        units = torch.arange(len(self.sizes), device=self.places.device)
        if max(len(self.sizes), len(self.places)) * self.numbers <= _HELD:
            self._kept = self._raw(units, self.dtype)
            return squares_of(self._kept)
        return torch.cat([squares_of(self.formed(chunk, torch.float64)) for chunk in units.split(self._at_once(_HELD // 2))])

    def lengths(self) -> Tensor:
        """See Part."""
        return self._added(self.part.lengths())

    def _between(self, lengths: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """Every row of a unit may be off by what its part says, and by some eps of its own norm."""
        slack = _OWN * torch.finfo(self.dtype).eps * lengths
        own = self.part.slack()
        return slack if own is None else slack + self._added(own), lost(lengths, self.dtype)

    def _largest(self) -> Tensor | None:
        size = self.part._largest() if isinstance(self.part, Cancelling) else None
        if size is None:
            return None
        found = torch.zeros(len(self.sizes), dtype=size.dtype, device=size.device)
        return found.scatter_reduce_(0, self.places, size, "amax")

    def _raw(self, rows: Tensor, dtype: torch.dtype, *, brief: bool = False) -> Tensor:
        """The gradients of some units, a few rows of theirs at a time."""
        mine = self._rows_of(rows)
        owners = torch.arange(len(rows), device=rows.device).repeat_interleave(self.sizes[rows])
        summed: Tensor | None = None
        size = max(1, _HELD // max(1, self.numbers))
        for chunk, owner in zip(mine.split(size), owners.split(size), strict=True):
            formed = self.part.formed(chunk, dtype)
            if summed is None:
                summed = formed.new_zeros((len(rows), *formed.shape[1:]))
            summed.index_add_(0, owner, formed)
        assert summed is not None  # a unit has rows
        return summed

    def _added(self, rows: Tensor) -> Tensor:
        return torch.zeros(len(self.sizes), dtype=torch.float64, device=rows.device).index_add_(0, self.places, rows.double())

    def _rows_of(self, units: Tensor) -> Tensor:
        sizes = self.sizes[units]
        within = torch.arange(int(sizes.sum()), device=units.device) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        return self._order[self._starts[units].repeat_interleave(sizes) + within]

    def _sum(self, weights: Tensor) -> Tensor:
        # Not row by row: a product over the rows of many units adds more numbers up than `sum_error` counts.
        units = torch.arange(len(self.sizes), device=self.places.device)
        return added_up((weights[chunk], self._raw(chunk, self.dtype)) for chunk in units.split(self._at_once(_HELD)))

    def per_record(self) -> Tensor:
        """See Part."""
        return self._raw(torch.arange(len(self.sizes), device=self.places.device), self.dtype)
