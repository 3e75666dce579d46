"""A part whose units are divided among several parts, such as by how many rows they have."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.train.clipping.rules.parts import Part


class Divided(Part):
    """Gradients of units, each of which is in one of several parts.

    Args:
        parts: with the units that each holds, in their order there, int64; together every unit from 0 to count - 1 once.
        count: U.
    """

    def __init__(self, parts: Sequence[tuple[Tensor, Part]], count: int) -> None:
        self.parts, self.count = tuple(parts), count
        self.dtype = self.parts[0][1].dtype

    def squared_norms(self) -> Tensor:
        """See Part."""
        return self._together([part.squared_norms().double() for _, part in self.parts])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See Part."""
        first, *others = [part.weighted_sum(weights[units]) for units, part in self.parts]
        for other in others:
            first = first.add_(other)
        return first

    def per_record(self) -> Tensor:
        """See Part."""
        return self._together([part.per_record() for _, part in self.parts])

    def slack(self) -> Tensor | None:
        """See Part."""
        known = [(part.squared_norms().double() * 0 if (slack := part.slack()) is None else slack) for _, part in self.parts]
        return self._together(known)

    def lengths(self) -> Tensor:
        """See Part."""
        return self._together([part.lengths() for _, part in self.parts])

    def formed(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See Part."""
        where = torch.zeros(self.count, dtype=torch.int64, device=rows.device)
        found: Tensor | None = None
        for units, part in self.parts:
            here = torch.isin(rows, units).nonzero()[:, 0]
            if not len(here):
                continue
            where[units] = torch.arange(len(units), device=rows.device)
            formed = part.formed(where[rows[here]], dtype)
            found = formed.new_zeros((len(rows), *formed.shape[1:])) if found is None else found
            found[here] = formed
        return self.per_record()[rows].to(dtype) if found is None else found

    def _together(self, told: Sequence[Tensor]) -> Tensor:
        """What each part tells of its units, in the order of all."""
        found = told[0].new_zeros((self.count, *told[0].shape[1:]))
        for (units, _), one in zip(self.parts, told, strict=True):
            found[units] = one.to(found)
        return found
