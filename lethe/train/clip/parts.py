r"""Parts: the gradients of the records in one parameter, in forms that are cheap to measure and to add up.

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

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from lethe.train.clip.grouping import Grouping
from lethe.train.clip.in_float64 import lengths_of, looked_up_added, products_added, squares_of, weighed
from lethe.train.clip.memory import Memory, forming
from lethe.train.core.tensors import has_fast_doubles

CANCELLED = 2**10
"""The lengths of the terms of a sum in float64 count as at most so many times the length of the sum."""

# From so many positions on, forming records in their own type and adding them in float64 is faster than products in float64.
_FEW = 24

# Numbers that are formed at once where they are not kept, and of products of positions: 4 and 8 MiB; on a GPU 64 and 256.
_FORMED, _FORMED_ON_GPU = 2**20, 2**24
_PAIRED, _PAIRED_ON_GPU = 2**20, 2**25


class Part(ABC):
    """The gradients of the records in one parameter."""

    dtype: torch.dtype
    """In which they are formed, float32 or float64."""

    @abstractmethod
    def squares(self) -> Tensor:
        """Squared norms, shape (B,), float64."""

    @abstractmethod
    def weighted(self, weights: Tensor) -> Tensor:
        """The sum with weights of shape (B,), float64; of as many numbers as the parameter, in its order."""

    @abstractmethod
    def rows(self) -> Tensor:
        """The gradients, shape (B, *shape)."""

    @abstractmethod
    def one(self, record: int) -> Tensor:
        """The gradient of one record, whatever the others hold."""

    @abstractmethod
    def drop(self, records: Tensor) -> None:
        """Make the gradients of some records 0, whatever they hold; `records` is bool, shape (B,)."""

    @abstractmethod
    def grouped(self, grouping: Grouping) -> Part:
        """The sums over the rows of each unit."""

    def joined(self, others: Sequence[Part]) -> Part | None:
        """One part of a parameter with those of further calls, without forming them; None: it must be formed."""
        return None


class Rows(Part):
    """Gradients held as they are.

    Args:
        gradients: shape (B, *shape); of half precision, they are made float32.
    """

    def __init__(self, gradients: Tensor) -> None:
        wide = gradients if gradients.dtype == torch.float64 else gradients.float()
        self.gradients, self.dtype = wide if wide.dim() > 1 else wide[:, None], wide.dtype

    def squares(self) -> Tensor:
        """See Part."""
        return squares_of(self.gradients)

    def weighted(self, weights: Tensor) -> Tensor:
        """See Part."""
        return weighed(weights, self.gradients)

    def rows(self) -> Tensor:
        """See Part."""
        return self.gradients

    def one(self, record: int) -> Tensor:
        """See Part."""
        return self.gradients[record]

    def drop(self, records: Tensor) -> None:
        """See Part."""
        self.gradients = without(self.gradients, records)

    def grouped(self, grouping: Grouping) -> Part:
        """See Part."""
        return Rows(grouping(self.gradients).sum(1))


class OuterProducts(Part):
    r"""$G_i = \sum_t g_{it}x_{it}^\top$, shape (p, d), of a weight W used as $Wx_{it}$.

    $\|G_i\|^2 = \sum_{t,s}(x_{it}\cdot x_{is})(g_{it}\cdot g_{is})$ costs $T^2(p+d)$ multiplications, forming $G_i$ costs $Tpd$: the faster
    is done (Bu et al. 2022, arXiv:2205.10683).

    Args:
        inputs: x, shape (B, T, d).
        gradients: g, shape (B, T, p).
        memory: for gradients that are kept.
        measured: the squared norms, where they were taken before.
    """

    def __init__(self, inputs: Tensor, gradients: Tensor, memory: Memory, measured: Tensor | None = None) -> None:
        self.inputs, self.gradients, self.memory, self._measured = inputs, gradients, memory, measured
        self.dtype = gradients.dtype
        self._kept: Tensor | None = None
        positions, width, outputs = inputs.shape[1], inputs.shape[2], gradients.shape[2]
        self._forming = forming(positions, width, outputs, inputs) if positions > 1 else (False, False)
        few = inputs.dtype == torch.float64 or positions < _FEW or (not inputs.is_cpu and has_fast_doubles(inputs.device))
        self._formed_for_sum = self._forming[1] or not few

    def squares(self) -> Tensor:
        """See Part."""
        self._measured = self._squares() if self._measured is None else self._measured
        return self._measured

    def _squares(self) -> Tensor:
        x, g = self.inputs, self.gradients
        records, positions, width = x.shape
        numbers = width * g.shape[2]
        if positions == 1:
            return (lengths_of(x[:, 0]) * lengths_of(g[:, 0])).square()
        if self._forming[0] and self.memory.take(records * numbers * x.element_size()):
            self._kept = torch.bmm(g.mT, x)
            return squares_of(self._kept)
        if self._forming[1]:
            return torch.cat([squares_of(torch.bmm(a.mT, b)) for a, b in self._pieces(numbers)])
        if self._formed_for_sum:  # where what is formed may exceed the largest number, the record counts as such
            return self.products().masked_fill(~(self.lengths() < torch.finfo(x.dtype).max / 4), math.inf)
        return _at_least(self.products(), self.lengths(), self.terms)

    def products(self) -> Tensor:
        """Squared norms without forming anything, to `terms` roundings of the squares of `lengths`."""
        positions = self.inputs.shape[1]
        return torch.cat([products_of(b, b, a, a) for a, b in self._pieces(positions * positions, pairs=True)]).clamp(min=0)

    @property
    def terms(self) -> int:
        """See `products`: the longest way of one product through the sums."""
        return self.inputs.shape[2] + self.gradients.shape[2] + 2 * self.inputs.shape[1]

    def lengths(self) -> Tensor:
        r"""$\sum_t\|x_{it}\|\|g_{it}\|$, shape (B,)."""
        return (_norms(self.inputs) * _norms(self.gradients)).sum(1)

    def weighted(self, weights: Tensor) -> Tensor:
        """See Part."""
        if self._kept is not None:
            return weighed(weights, self._kept)
        if not self._formed_for_sum:
            return products_added(weights, self.gradients, self.inputs)
        numbers = self.inputs.shape[2] * self.gradients.shape[2]
        total, first = None, 0
        for a, b in self._pieces(numbers):
            rows = slice(first, first + len(a))
            added = no_longer(weights[rows], None if self._measured is None else self._measured[rows], torch.bmm(a.mT, b))
            total, first = added if total is None else total.add_(added), rows.stop
        assert total is not None
        return total

    def rows(self) -> Tensor:
        """See Part."""
        return self._kept if self._kept is not None else torch.bmm(self.gradients.mT, self.inputs)

    def one(self, record: int) -> Tensor:
        """See Part."""
        return self._kept[record] if self._kept is not None else self.gradients[record].mT @ self.inputs[record]

    def drop(self, records: Tensor) -> None:
        """See Part."""
        self.inputs, self.gradients = without(self.inputs, records), without(self.gradients, records)
        self._kept = None if self._kept is None else without(self._kept, records)

    def grouped(self, grouping: Grouping) -> Part:
        """See Part."""
        return OuterProducts(grouping(self.inputs).flatten(1, 2), grouping(self.gradients).flatten(1, 2), self.memory)

    def _pieces(self, numbers: int, *, pairs: bool = False) -> Sequence[tuple[Tensor, Tensor]]:
        """Some records' gradients and inputs at a time."""
        cpu, gpu = (_PAIRED, _PAIRED_ON_GPU) if pairs else (_FORMED, _FORMED_ON_GPU)
        size = max(1, (cpu if self.inputs.is_cpu else gpu) // max(1, numbers))
        return list(zip(self.gradients.split(size), self.inputs.split(size), strict=True))


class TokenRows(Part):
    """The gradients in a table of which each record looks some rows up; those of one row are added, so that none is there twice.

    Args:
        tokens: shape (B, S), int64.
        gradients: of what was looked up, shape (B, S, d).
        table: rows of the table.
    """

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
        """See Part."""
        return squares_of(self.gradients)

    def products(self) -> Tensor:
        """The same in float64."""
        return _norms(self.gradients).square().sum(1)

    @property
    def terms(self) -> int:
        """See OuterProducts."""
        return self.gradients.shape[2] + 2 * self.gradients.shape[1]

    def lengths(self) -> Tensor:
        """The sum of the rows' lengths, shape (B,)."""
        return _norms(self.gradients).sum(1)

    def weighted(self, weights: Tensor) -> Tensor:
        """See Part."""
        return looked_up_added(weights, self.tokens, self.gradients, self.table)

    def rows(self) -> Tensor:
        """See Part."""
        formed = self.gradients.new_zeros(len(self.tokens), self.table, self.gradients.shape[2])
        return formed.scatter_add_(1, self.tokens[..., None].expand_as(self.gradients), self.gradients)

    def one(self, record: int) -> Tensor:
        """See Part."""
        formed = self.gradients.new_zeros(self.table, self.gradients.shape[2])
        return formed.index_add_(0, self.tokens[record], self.gradients[record])

    def drop(self, records: Tensor) -> None:
        """See Part."""
        self.gradients = without(self.gradients, records)

    def grouped(self, grouping: Grouping) -> Part:
        """See Part."""
        return TokenRows(grouping(self.tokens).flatten(1, 2), grouping(self.gradients).flatten(1, 2), self.table)


class Several(Part):
    """A parameter of several layers or calls, too large to form: norms by products between the calls, which may cancel each other.

    Args:
        parts: outer products and rows of a table, of one parameter.
    """

    def __init__(self, parts: Sequence[OuterProducts | TokenRows]) -> None:
        self.parts, self.dtype = parts, parts[0].dtype

    def squares(self) -> Tensor:
        """See Part."""
        total = torch.stack([part.products() for part in self.parts]).sum(0)
        for place, one in enumerate(self.parts):
            for other in self.parts[:place]:
                total += 2 * torch.cat([between(a, b) for a, b in _records_of(one, other)])
        lengths = torch.stack([part.lengths() for part in self.parts]).sum(0)
        return _at_least(total.clamp(min=0), lengths, 2 * max(part.terms for part in self.parts) + len(self.parts) ** 2)

    def weighted(self, weights: Tensor) -> Tensor:
        """See Part."""
        sums = [
            products_added(weights, part.gradients, part.inputs) if isinstance(part, OuterProducts) else part.weighted(weights)
            for part in self.parts
        ]
        return torch.stack(sums).sum(0)

    def rows(self) -> Tensor:
        """See Part."""
        return torch.stack([part.rows() for part in self.parts]).sum(0)

    def one(self, record: int) -> Tensor:
        """See Part."""
        return torch.stack([part.one(record) for part in self.parts]).sum(0)

    def drop(self, records: Tensor) -> None:
        """See Part."""
        for part in self.parts:
            part.drop(records)

    def grouped(self, grouping: Grouping) -> Part:
        """See Part."""
        return Several([part.grouped(grouping) for part in self.parts])  # pyright: ignore[reportArgumentType]


def together(parts: list[Part], numbers: int, memory: Memory) -> Part:
    """One part for all calls in which a parameter took part.

    Args:
        parts: one or more, of the same records.
        numbers: of the parameter.
        memory: for gradients that are kept.
    """
    if len(parts) == 1:
        return parts[0]
    products = [part for part in parts if isinstance(part, OuterProducts)]
    if len(products) > 1 and len(products) == len(parts):
        return OuterProducts(torch.cat([part.inputs for part in products], 1), torch.cat([part.gradients for part in products], 1), memory)
    factored = [part for part in parts if isinstance(part, OuterProducts | TokenRows)]
    if len(factored) == len(parts) and numbers * len(factored[0].gradients) > _FORMED:
        return Several(factored)
    if (joined := parts[0].joined(parts[1:])) is not None:
        return joined
    return Rows(torch.stack([part.rows().flatten(1) for part in parts]).sum(0))


def products_of(inputs: Tensor, other_inputs: Tensor, gradients: Tensor, other_gradients: Tensor) -> Tensor:
    r"""$\sum_{t,s}(x_t\cdot y_s)(g_t\cdot h_s)$ of each record, float64, shape (B,)."""
    x = torch.bmm(inputs.double(), (inputs if other_inputs is inputs else other_inputs).double().mT)
    return x.mul_(torch.bmm(gradients.double(), other_gradients.double().mT)).sum(2).sum(1)


def between(one: OuterProducts | TokenRows, other: OuterProducts | TokenRows) -> Tensor:
    """The inner product of each record's gradients in two calls of one parameter, shape (B,), float64."""
    if isinstance(one, OuterProducts) and isinstance(other, OuterProducts):
        return products_of(one.inputs, other.inputs, one.gradients, other.gradients)
    if isinstance(one, TokenRows) and isinstance(other, TokenRows):
        return _where_equal(one.tokens, other.tokens, one.gradients, other.gradients)
    product, looked_up = (one, other) if isinstance(one, OuterProducts) else (other, one)
    assert isinstance(product, OuterProducts)
    assert isinstance(looked_up, TokenRows)
    places = looked_up.tokens[:, None].expand(-1, product.gradients.shape[1], -1)
    hit = product.gradients.gather(2, places).double()
    return hit.mul_(torch.bmm(product.inputs.double(), looked_up.gradients.double().mT)).sum(2).sum(1)


def _where_equal(tokens: Tensor, others: Tensor, gradients: Tensor, other_gradients: Tensor) -> Tensor:
    products = torch.bmm(gradients.double(), other_gradients.double().mT)
    return products.mul_(tokens[:, :, None] == others[:, None]).sum(2).sum(1)


def _records_of(one: OuterProducts | TokenRows, other: OuterProducts | TokenRows) -> Sequence[tuple[OuterProducts, TokenRows]]:
    """Some records of both at a time."""
    pairs = one.gradients.shape[1] * other.gradients.shape[1]
    size = max(1, (_PAIRED if one.gradients.is_cpu else _PAIRED_ON_GPU) // max(1, pairs))
    return [tuple(_slice(part, slice(first, first + size)) for part in (one, other)) for first in range(0, len(one.gradients), size)]  # pyright: ignore


def _slice(part: OuterProducts | TokenRows, records: slice) -> OuterProducts | TokenRows:
    some = copy(part)
    some.gradients = part.gradients[records]
    if isinstance(part, OuterProducts) and isinstance(some, OuterProducts):
        some.inputs = part.inputs[records]
    if isinstance(part, TokenRows) and isinstance(some, TokenRows):
        some.tokens = part.tokens[records]
    return some


def without(tensor: Tensor, records: Tensor) -> Tensor:
    """Zeros for some records."""
    return tensor.masked_fill(records.view(-1, *[1] * (tensor.dim() - 1)), 0)


def no_longer(weights: Tensor, measured: Tensor | None, formed: Tensor) -> Tensor:
    """The weighted sum of gradients that are made no longer than what was measured; None: they were not measured."""
    if measured is not None:
        squares = squares_of(formed)
        weights = torch.where(squares > measured, weights * (measured / squares).sqrt(), weights)
    return weighed(weights, formed)


def _norms(tensor: Tensor) -> Tensor:
    return torch.linalg.vector_norm(tensor, dim=2, dtype=torch.float64)


def _at_least(squares: Tensor, lengths: Tensor, terms: int) -> Tensor:
    """What a square that was summed of products of these lengths counts as."""
    bound = lengths.square()
    return torch.maximum(squares + bound * (2 * terms * 2.0**-53), bound / CANCELLED**2)
