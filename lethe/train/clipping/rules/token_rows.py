"""Sparse per-record gradients of an embedding table, kept as the touched rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lethe.train.clipping.rules.measuring import uncertain
from lethe.train.clipping.rules.parts import Part, squares_of
from lethe.train.core.together.weighing import scaled

# Numbers that are copied to float64 at a time to be added: 2^22 are 32 MiB.
_WIDENED = 2**22


class _Rows(NamedTuple):
    """One entry for each pair of a record and a row it looked up: sums of gradients, shape (U, d), and of their norms, shape (U,)."""

    records: Tensor
    tokens: Tensor
    sums: Tensor
    lengths: Tensor


class TokenRows(Part):
    r"""$G_i[v] = \sum_{n:\, r_n = i,\, v_n = v} g_n$, from a flat list of looked-up rows.

    Norms cost a sort of the N pairs (record, row) and one sum over the N gradients; nothing grows with the table. The rows that are
    measured are the ones that are added. They are summed in float64; a row whose terms cancel so far that float64 leaves it in doubt
    counts as 0.

    Args:
        records: $r_n$, shape (N,), int64, in 0..B-1.
        tokens: $v_n$, shape (N,), int64, the rows of the table.
        gradients: $g_n$, shape (N, d), float32 or float64.
        batch: B.
        table: the number of rows of the table.
    """

    def __init__(self, records: Tensor, tokens: Tensor, gradients: Tensor, *, batch: int, table: int) -> None:
        self.records = records
        self.tokens = tokens
        self.gradients = gradients
        self.batch = batch
        self.table = table
        self.dtype = gradients.dtype
        self._known: _Rows | None = None

    def squared_norms(self) -> Tensor:
        """See Part."""
        rows = self._rows()
        return rows.sums.new_zeros(self.batch, dtype=torch.float64).index_add_(0, rows.records, squares_of(rows.sums))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See Part."""
        rows = self._rows()
        total = rows.sums.new_zeros(self.table, rows.sums.shape[1], dtype=torch.float64)
        size = max(1, _WIDENED // max(1, rows.sums.shape[1]))
        for records, tokens, sums in zip(*(column.split(size) for column in (rows.records, rows.tokens, rows.sums)), strict=True):
            total.index_add_(0, tokens, scaled(sums.double(), weights[records]))
        return total

    def settle(self) -> None:
        """See Part."""
        self._rows()
        self.gradients = self.gradients.new_empty((0, self.gradients.shape[1]))
        self.whole = False

    def lengths(self) -> Tensor:
        """See Part."""
        rows = self._rows()
        return rows.lengths.new_zeros(self.batch).index_add_(0, rows.records, rows.lengths.square()).sqrt()

    def formed(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See Part."""
        formed = self.gradients.new_zeros(len(rows), self.table, self.gradients.shape[1], dtype=dtype)
        self.add_formed(rows, formed)
        return formed

    def add_formed(self, rows: Tensor, to: Tensor) -> None:
        """See Part."""
        places = torch.full((self.batch,), -1, device=rows.device).index_put_((rows,), torch.arange(len(rows), device=rows.device))
        here = places[self.records]
        inside = (here >= 0).nonzero()[:, 0]
        flat = to.view(len(rows) * self.table, self.gradients.shape[1])
        flat.index_add_(0, here[inside] * self.table + self.tokens[inside], self.gradients[inside].to(to.dtype))

    def _rows(self) -> _Rows:
        if self._known is None:
            pairs, owner = torch.unique(self.records * self.table + self.tokens, return_inverse=True)
            sums = self.gradients.new_zeros(pairs.numel(), self.gradients.shape[1], dtype=torch.float64)
            sums.index_add_(0, owner, self.gradients.double())
            sizes = squares_of(self.gradients).sqrt()
            lengths = sizes.new_zeros(pairs.numel()).index_add_(0, owner, sizes)
            sums.masked_fill_(uncertain(lengths, sums)[:, None], 0)
            records, tokens = pairs.div(self.table, rounding_mode="floor"), pairs.remainder(self.table)
            self._known = _Rows(records, tokens, sums.to(self.gradients.dtype), lengths)
        return self._known

    def per_record(self) -> Tensor:
        """See Part."""
        rows = self.gradients.new_zeros(self.batch * self.table, self.gradients.shape[1])
        return rows.index_add_(0, self.records * self.table + self.tokens, self.gradients).view(self.batch, self.table, rows.shape[1])
