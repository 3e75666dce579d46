"""Rows of a batch that belong together: k rows of each record, or the records of each user."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Grouping = Callable[[Tensor], Tensor]
"""(rows, ...) -> (units, most, ...), zeros where a unit has fewer rows than the largest."""


class Table:
    """Units with any rows, which are given for each."""

    def __init__(self, rows: list[list[int]], device: torch.device) -> None:
        most = max(map(len, rows))
        table = torch.tensor([[*own, *[-1] * (most - len(own))] for own in rows], device=device)
        self._table, self._empty = table.clamp(min=0), table < 0
        self._full = all(len(own) == most for own in rows)

    def __call__(self, rows: Tensor) -> Tensor:
        """See Grouping."""
        gathered = rows[self._table]
        return gathered if self._full else gathered.masked_fill_(self._empty.view(*self._empty.shape, *[1] * (rows.dim() - 1)), 0)
