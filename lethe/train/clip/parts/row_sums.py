r"""Sums of a large table's gradients as the few rows that a batch looks up, and how much each record contributes to which row.

`TokenRows` calls it for large embeddings, whose dense sum would cost more than the training step; with `SparseSelection` the contributions
are counted, with noise, to choose the rows that get noise and a step. B records, S lookups of each, tables of rows of d numbers.

A record's contribution map is 1 in each row in which its gradient is not 0, clipped to norm $C_1$: $\min(1, C_1/\sqrt k)$ in k rows.
Rounded down to multiples of $2^{-30}$, the maps of $2^{22}$ records add up without any rounding.
"""

import torch
from torch import Tensor

from lethe.train.clip.float64_sums import looked_up_added

_UNITS = 2.0**30
NARROW = 2**14
"""Of a sum by its rows a piece of the noise holds one row at least."""


def row_sum(weights: Tensor, tokens: Tensor, gradients: Tensor, table: int) -> Tensor:
    """As `looked_up_added`, by the rows that are looked up: coalesced COO, shape (table, d), float64."""
    rows, row_indices = torch.unique(tokens, return_inverse=True)
    return of_rows(rows, looked_up_added(weights, row_indices, gradients, len(rows)), table)


def of_rows(rows: Tensor, values: Tensor, table: int) -> Tensor:
    """Of rows in ascending order, shape (m,), and their values, shape (m, d): coalesced COO, shape (table, d)."""
    return torch.sparse_coo_tensor(rows[None], values, (table, values.shape[1]), is_coalesced=True, check_invariants=False)


def no_rows(parameter: Tensor, contributing: bool) -> Tensor:
    """The sum of no records: 0, of a table with no row at all, and a column more where they would contribute."""
    if not contributing and (parameter.dim() != 2 or parameter.shape[1] > NARROW):
        return torch.zeros_like(parameter.detach(), dtype=torch.float64)
    none = torch.zeros(0, dtype=torch.int64, device=parameter.device)
    return of_rows(none, parameter.new_zeros(0, parameter.shape[1] + contributing, dtype=torch.float64), len(parameter))


def contributions(touched: Tensor, contribution_norm: float) -> Tensor:
    """The clipped maps of records, float64, of the shape of `touched`, (B, S), bool: which of a record's rows are touched."""
    parts = (contribution_norm / touched.sum(1).clamp(min=1).double().sqrt()).clamp(max=1.0)
    return touched * (parts * (_UNITS * (1.0 - 2.0**-50))).floor().div(_UNITS)[:, None]


def added(first: Tensor, second: Tensor) -> Tensor:
    """The sum of two, each by its rows or whole."""
    if first.is_sparse and second.is_sparse:
        return (first + second).coalesce()
    return second + first if first.is_sparse else first + second
