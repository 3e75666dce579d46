r"""Parts: the gradients of all B records of a batch in one parameter, in forms that are cheap to measure and to add up.

The rules of layers yield parts; `ClippedSums` asks each for `squares`, makes weights from the norms and asks for the `weighted` sum. A unit
is what is protected: a record, a user with several rows, or a record read several times (augmented). C is the clip norm.

No record moves a sum by more than C because what is added is never longer than what was measured, up to the 44 eps of `clip_weights`:

- Gradients that are held are measured and added as they are.
- Those that are formed for the sum, again or for the first time, are measured there, and brought back to what was measured where rounding
  made them longer (`no_longer`).
- Those that are never formed are measured and added in float64. The computed square of n products of lengths that add up to L is off by
  at most $\gamma_nL^2$, $\gamma_n\le 2n2^{-53}$, in any order of the additions (Higham 2002, section 3.1): it counts as so much larger.
  Where the terms are more than `CANCELLED` times as long as their sum, it counts as longer, so that a sum of such products can be
  off by no more than `sum_error` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.clip.float64_sums import looked_up_added, squares_of, weighed
from lethe.train.clip.parts.row_sums import NARROW, contributions, row_sum

Grouping = Callable[[Tensor], Tensor]
"""(rows, ...) -> (units, most, ...), zeros where a unit has fewer rows than the largest."""

CANCELLED = 2**10
"""The lengths of the terms of a sum in float64 count as at most so many times the length of the sum."""


class ParameterGradients(ABC):
    """The gradients of the records in one parameter."""

    dtype: torch.dtype
    """The type in which they are formed, float32 or float64."""
    held: tuple[str, ...]
    """Names of the attributes that hold its tensors, each with the records along dimension 0; an attribute may be None."""
    gradients: Tensor
    """The tensor that the part is linear in: scaling its rows scales the records' gradients."""
    _measured: Tensor | None = None

    @abstractmethod
    def squares(self) -> Tensor:
        """Squared norms, shape (B,), float64."""

    @abstractmethod
    def weighted(self, weights: Tensor) -> Tensor:
        """The sum with weights of shape (B,), float64; of as many numbers as the parameter, in its order; or its rows, see `row_sum`."""

    @abstractmethod
    def rows(self) -> Tensor:
        """The gradients, shape (B, *shape)."""

    def some(self, records: slice) -> Self:
        """The gradients of some records."""
        part = copy(self)
        part.replace(lambda tensor: tensor[records])
        return part

    def one(self, record: int) -> Tensor:
        """The gradient of one record, whatever the others hold, of the parameter's shape or of as many numbers."""
        return self.some(slice(record, record + 1)).rows()[0]

    def drop(self, records: Tensor) -> None:
        """Make the gradients of some records 0, whatever they hold; `records` is bool, shape (B,)."""
        self.replace(lambda tensor: tensor.masked_fill(records.view(-1, *[1] * (tensor.dim() - 1)), 0))

    def replace(self, replaced: Callable[[Tensor], Tensor]) -> None:
        """Apply a function to each tensor that it is made of, in place."""
        for name in self.held:
            if (tensor := getattr(self, name)) is not None:
                setattr(self, name, replaced(tensor))

    def scaled(self, factors: Tensor) -> Self:
        """The gradients, each record's times its factor, shape (B,)."""
        part, gradients = copy(self), self.gradients
        part.gradients, part._measured = gradients * factors.to(gradients).view(-1, *[1] * (gradients.dim() - 1)), None
        return part

    @abstractmethod
    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """The gradients of units in place of those of rows: of each unit the sum over its rows."""

    def settled(self) -> ParameterGradients:
        """This part, or the formed and measured gradients where they take little more memory; the tensors it is made of are then freed."""
        return self

    def joined(self, later_calls: Sequence[ParameterGradients]) -> ParameterGradients | None:
        """One part of a parameter with those of further calls, without forming them; None: it must be formed."""
        return None


class MaterialisedGradients(ParameterGradients):
    """Gradients held as they are, shape (B, *shape), of half precision made float32; and their squared norms, shape (B,), where they
    are known.
    """

    held = ("gradients", "_measured")

    def __init__(self, gradients: Tensor, measured: Tensor | None = None) -> None:
        self._measured = measured
        wide = gradients if gradients.dtype == torch.float64 else gradients.float()
        self.gradients, self.dtype = wide if wide.dim() > 1 else wide[:, None], wide.dtype

    def squares(self) -> Tensor:
        """The squared norm of each record's gradient, shape (B,), float64."""
        return squares_of(self.gradients) if self._measured is None else self._measured

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum of the records' gradients times `weights`, of the parameter's shape."""
        return weighed(weights, self.gradients)

    def rows(self) -> Tensor:
        """The gradient of each record, shape (B, *parameter)."""
        return self.gradients

    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """Of each unit the sum over its rows; a mean over rows is a factor in the loss."""
        return MaterialisedGradients(grouping(self.gradients).sum(1))


class UnitRows:
    """The `Grouping` of units with any numbers of rows; `rows` lists the row numbers of each unit."""

    def __init__(self, rows: list[list[int]], device: torch.device) -> None:
        longest = max(map(len, rows))
        table = torch.tensor([[*row_list, *[-1] * (longest - len(row_list))] for row_list in rows], device=device)
        self._table, self._empty = table.clamp(min=0), table < 0
        self._full = all(len(row_list) == longest for row_list in rows)

    def __call__(self, rows: Tensor) -> Tensor:
        """The rows of each unit, gathered and not summed: (rows, ...) to (units, most, ...), padded with zeros."""
        gathered = rows[self._table]
        return gathered if self._full else gathered.masked_fill_(self._empty.view(*self._empty.shape, *[1] * (rows.dim() - 1)), 0)


def no_longer(weights: Tensor, measured: Tensor | None, formed: Tensor) -> Tensor:
    """The weighted sum of gradients that are made no longer than what was measured.

    Weights, measured and formed have shapes (B,), float64, (B,), squared norms or None, and (B, *shape).
    """
    if measured is not None:
        squares = squares_of(formed)
        weights = torch.where(squares > measured, weights * (measured / squares).sqrt(), weights)
    return weighed(weights, formed)


def norms_of(tensor: Tensor) -> Tensor:
    """Norms of the vectors along the last of three dimensions, float64."""
    return torch.linalg.vector_norm(tensor, dim=2, dtype=torch.float64)


def at_least(squares: Tensor, lengths: Tensor, terms: int) -> Tensor:
    """An upper bound of a squared norm that was summed of products: the computed value and its rounding error.

    Squares and the lengths of all products together: shape (B,), float64; `terms`: how many roundings one product went through.
    """
    bound = lengths.square()
    return torch.maximum(squares + bound * (2 * terms * 2.0**-53), bound / CANCELLED**2)


# A table of so many numbers, at most a quarter of whose rows are looked up, is summed by its rows.
_LARGE, _FEW_ROWS = 2**16, 4


class TokenRows(ParameterGradients):
    """The gradients, shape (B, S, d), in the rows of a table that each record looks up, by `tokens`, shape (B, S), int64; those of one
    row are added, so that none is there twice.
    """

    held = ("tokens", "gradients")

    def __init__(self, tokens: Tensor, gradients: Tensor, table: int) -> None:
        self.tokens, self.gradients, self.table, self.dtype = tokens, gradients, table, gradients.dtype
        records, positions = tokens.shape
        if positions == 1 or not records:
            return
        ordered, order = tokens.sort(dim=1)
        ranks = torch.zeros_like(tokens)
        ranks[:, 1:] = (ordered.diff(dim=1) != 0).cumsum(1)
        slots = torch.empty_like(ranks).scatter_(1, order, ranks)
        self.tokens = torch.zeros_like(tokens).scatter_(1, ranks, ordered)
        slot_indices = (slots + positions * torch.arange(records, device=slots.device)[:, None]).flatten()
        added = torch.zeros_like(gradients, memory_format=torch.contiguous_format).flatten(0, 1)
        self.gradients = added.index_add_(0, slot_indices, gradients.flatten(0, 1)).view_as(gradients)

    def squares(self) -> Tensor:
        """The squared norm of each record's gradient, shape (B,), float64."""
        return squares_of(self.gradients)

    def products(self) -> Tensor:
        """Squared norms of the records, shape (B,), with every operation in float64."""
        return norms_of(self.gradients).square().sum(1)

    @property
    def terms(self) -> int:
        """The number of terms of the longest sum, for the bound of its rounding."""
        return self.gradients.shape[2] + 2 * self.gradients.shape[1]

    def lengths(self) -> Tensor:
        """The sum of the rows' lengths, shape (B,)."""
        return norms_of(self.gradients).sum(1)

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum of the records' gradients times `weights`, of the parameter's shape."""
        width, arguments = self.gradients.shape[2], (weights, self.tokens, self.gradients, self.table)
        few_rows = self.table * width >= _LARGE and self.tokens.numel() * _FEW_ROWS <= self.table and width <= NARROW
        return row_sum(*arguments) if few_rows else looked_up_added(*arguments)

    def contributing(self, weights: Tensor, contribution_norm: float) -> Tensor:
        """The rows of the weighted sum, and behind each how much the records contribute to it; as `row_sum`, shape (table, d + 1)."""
        parts = contributions((self.gradients != 0).any(2) & (weights > 0)[:, None], contribution_norm)
        columns = torch.cat([self.gradients * weights[:, None, None], parts[..., None]], 2)
        return row_sum(torch.ones_like(weights), self.tokens, columns, self.table)

    def one(self, record: int) -> Tensor:
        """The gradient of one record as a sparse COO tensor of the rows that it looks up, not coalesced."""
        tokens, shape = self.tokens[record][None], (self.table, self.gradients.shape[2])
        return torch.sparse_coo_tensor(tokens, self.gradients[record], shape, check_invariants=False)

    def rows(self) -> Tensor:
        """The gradient of each record, shape (B, *parameter)."""
        return self.added_to(self.gradients.new_zeros(len(self.tokens), self.table, self.gradients.shape[2]))

    def added_to(self, formed: Tensor) -> Tensor:
        """The gradients of the whole table, with these added to them, shape (B, table, d)."""
        return formed.scatter_add_(1, self.tokens[..., None].expand_as(self.gradients), self.gradients)

    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """The looked-up rows of all of a unit's rows side by side; the constructor adds those of one token."""
        return TokenRows(grouping(self.tokens).flatten(1, 2), grouping(self.gradients).flatten(1, 2), self.table)

    def joined(self, later_calls: Sequence[ParameterGradients]) -> ParameterGradients | None:
        """The gradients of several calls of one layer as one, or None where they cannot be joined."""
        parts = [self, *(part for part in later_calls if isinstance(part, TokenRows))]
        if len(parts) <= len(later_calls):
            return None
        tokens, gradients = (torch.cat(tensors, 1) for tensors in zip(*((part.tokens, part.gradients) for part in parts), strict=True))
        return TokenRows(tokens, gradients, self.table)


def as_token_rows(part: ParameterGradients) -> TokenRows:
    """The gradients in a table as rows; refused where it is also a weight, whose gradients are in all rows of it."""
    if isinstance(part, TokenRows):
        return part
    if isinstance(part, MaterialisedGradients):
        rows = torch.arange(part.gradients.shape[1], device=part.gradients.device).expand(part.gradients.shape[:2])
        return TokenRows(rows, part.gradients, part.gradients.shape[1])
    raise InputError(
        "sparse_selection: a table of it is also a weight, as of a tied output layer: each record has a gradient in all of its rows.",
        source="SparseSelection.parameters",
        remedy="leave this table out; or untie the weights.",
    )
