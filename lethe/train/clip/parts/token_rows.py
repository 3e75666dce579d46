"""A table of which each record looks some rows up."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.train.clip.in_float64 import looked_up_added, squares_of
from lethe.train.clip.parts.part import Grouping, ParameterGradients, norms_of


class TokenRows(ParameterGradients):
    """The gradients in a table of which each record looks some rows up; those of one row are added, so that none is there twice.

    Args:
        tokens: shape (B, S), int64.
        gradients: of what was looked up, shape (B, S, d).
        table: rows of the table.
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
        places = (slots + positions * torch.arange(records, device=slots.device)[:, None]).flatten()
        added = torch.zeros_like(gradients, memory_format=torch.contiguous_format).flatten(0, 1)
        self.gradients = added.index_add_(0, places, gradients.flatten(0, 1)).view_as(gradients)

    def squares(self) -> Tensor:
        """See ParameterGradients."""
        return squares_of(self.gradients)

    def products(self) -> Tensor:
        """The same in float64."""
        return norms_of(self.gradients).square().sum(1)

    @property
    def terms(self) -> int:
        """See OuterProducts."""
        return self.gradients.shape[2] + 2 * self.gradients.shape[1]

    def lengths(self) -> Tensor:
        """The sum of the rows' lengths, shape (B,)."""
        return norms_of(self.gradients).sum(1)

    def weighted(self, weights: Tensor) -> Tensor:
        """See ParameterGradients."""
        return looked_up_added(weights, self.tokens, self.gradients, self.table)

    def rows(self) -> Tensor:
        """See ParameterGradients."""
        return self.added_to(self.gradients.new_zeros(len(self.tokens), self.table, self.gradients.shape[2]))

    def added_to(self, formed: Tensor) -> Tensor:
        """The gradients of the whole table, with these added to them, shape (B, table, d)."""
        return formed.scatter_add_(1, self.tokens[..., None].expand_as(self.gradients), self.gradients)

    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """See ParameterGradients."""
        return TokenRows(grouping(self.tokens).flatten(1, 2), grouping(self.gradients).flatten(1, 2), self.table)
