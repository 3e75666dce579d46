r"""Parts: the gradients of the records in one parameter, in forms that are cheap to measure and to add up.

What is measured and what is added may be rounded differently: `slack` bounds the distance, by
$|\mathrm{fl}(\sum_{t\le T} a_t) - \sum_t a_t| \le \frac T2\epsilon\sum_t|a_t|$, in any order of the additions (Higham 2002, section 3.1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.train.clip.grouping import Grouping
from lethe.train.clip.lengths import lengths_of, squares_of
from lethe.train.clip.memory import Memory, forming
from lethe.train.clip.weighted_sums import products_added, weighed
from lethe.train.core.tensors import has_fast_doubles, on_cpu

# From so many positions on, forming records in their own type and adding them in float64 is faster than products in float64.
_FEW = 24

# Numbers that are formed at once where they are not kept, and of products of positions: 4 and 8 MiB; on a GPU 64 and 256.
_FORMED, _FORMED_ON_GPU = 2**20, 2**24
_PAIRED, _PAIRED_ON_GPU = 2**20, 2**25


class Part(ABC):
    """The gradients of the records in one parameter."""

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

    def slack(self) -> Tensor | None:
        r"""How far a record's part of the weighted sum may lie from $w_iG_i$ as measured, over $w_i$; shape (B,); None: nowhere."""
        return None


class Rows(Part):
    """Gradients held as they are.

    Args:
        gradients: shape (B, *shape).
    """

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients if gradients.dim() > 1 else gradients[:, None]

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
    """

    def __init__(self, inputs: Tensor, gradients: Tensor, memory: Memory) -> None:
        self.inputs, self.gradients, self.memory = inputs, gradients, memory
        self._kept: Tensor | None = None
        self._of_products = False

    def squares(self) -> Tensor:
        """See Part."""
        x, g = self.inputs, self.gradients
        records, positions, width = x.shape
        if positions == 1:
            return (lengths_of(x) * lengths_of(g)).square()
        outputs = g.shape[2]
        if_kept, always = forming(positions, width, outputs, x)
        if if_kept and self.memory.take(records * width * outputs * x.element_size()):
            self._kept = torch.bmm(g.mT, x)
            return squares_of(self._kept)
        if always:
            return torch.cat([squares_of(torch.bmm(a.mT, b)) for a, b in self._pieces(width * outputs)])
        self._of_products = True
        return torch.cat([products_of(b, b, a, a) for a, b in self._pieces(positions * positions, pairs=True)]).clamp(min=0)

    def weighted(self, weights: Tensor) -> Tensor:
        """See Part."""
        if self._kept is not None:
            return weighed(weights, self._kept)
        if not self._formed_for_sum:
            return products_added(weights, self.gradients, self.inputs)
        total, numbers = None, self.inputs.shape[2] * self.gradients.shape[2]
        for (a, b), some in zip(self._pieces(numbers), weights.split(self._at_once(numbers)), strict=True):
            added = weighed(some, torch.bmm(a.mT, b))
            total = added if total is None else total.add_(added)
        assert total is not None
        return total

    @property
    def _formed_for_sum(self) -> bool:
        x = self.inputs
        return x.dtype != torch.float64 and x.shape[1] >= _FEW and (on_cpu(x) or not has_fast_doubles(x.device))

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

    def slack(self) -> Tensor | None:
        """See Part."""
        if self._kept is not None or self.inputs.shape[1] == 1:
            return None
        x, g = self.inputs, self.gradients
        lengths = (_norms(x) * _norms(g)).sum(1)
        added = x.dtype if self._formed_for_sum else torch.float64
        share = _rounding(x.shape[1], added) + (
            _of_squares(x.shape[2] + g.shape[2] + 2 * x.shape[1]) if self._of_products else _rounding(x.shape[1], x.dtype)
        )
        return lengths * share

    def _at_once(self, numbers: int, *, pairs: bool = False) -> int:
        cpu, gpu = (_PAIRED, _PAIRED_ON_GPU) if pairs else (_FORMED, _FORMED_ON_GPU)
        return max(1, (cpu if on_cpu(self.inputs) else gpu) // max(1, numbers))

    def _pieces(self, numbers: int, *, pairs: bool = False) -> Sequence[tuple[Tensor, Tensor]]:
        """Some records' gradients and inputs at a time."""
        size = self._at_once(numbers, pairs=pairs)
        return list(zip(self.gradients.split(size), self.inputs.split(size), strict=True))


class TokenRows(Part):
    """The gradients in a table of which each record looks some rows up.

    Args:
        tokens: shape (B, S), int64.
        gradients: of what was looked up, shape (B, S, d).
        table: rows of the table.
    """

    def __init__(self, tokens: Tensor, gradients: Tensor, table: int) -> None:
        self.tokens, self.gradients, self.table = tokens, gradients, table

    def squares(self) -> Tensor:
        """See Part."""
        if self.tokens.shape[1] == 1:
            return squares_of(self.gradients)
        size = max(1, (_PAIRED if on_cpu(self.tokens) else _PAIRED_ON_GPU) // max(1, self.tokens.shape[1] ** 2))
        pieces = zip(self.tokens.split(size), self.gradients.split(size), strict=True)
        return torch.cat([_where_equal(tokens, tokens, g, g) for tokens, g in pieces]).clamp(min=0)

    def weighted(self, weights: Tensor) -> Tensor:
        """See Part."""
        total = self.gradients.new_zeros(self.table, self.gradients.shape[2], dtype=torch.float64)
        return total.index_add_(0, self.tokens.flatten(), (self.gradients.double() * weights[:, None, None]).flatten(0, 1))

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

    def slack(self) -> Tensor | None:
        """See Part."""
        if self.tokens.shape[1] == 1:
            return None
        positions = self.tokens.shape[1]
        return _norms(self.gradients).sum(1) * (_rounding(positions, torch.float64) + _of_squares(self.gradients.shape[2] + 2 * positions))


class Several(Part):
    """A parameter of several layers or calls, too large to form: norms by products between the calls.

    Args:
        parts: outer products and rows of a table, of one parameter.
    """

    def __init__(self, parts: Sequence[OuterProducts | TokenRows]) -> None:
        self.parts = parts

    def squares(self) -> Tensor:
        """See Part."""
        total = torch.stack([part.squares() for part in self.parts]).sum(0)
        for place, one in enumerate(self.parts):
            for other in self.parts[:place]:
                total += 2 * torch.cat([between(a, b) for a, b in _records_of(one, other)])
        return total.clamp(min=0)

    def weighted(self, weights: Tensor) -> Tensor:
        """See Part."""
        return torch.stack([part.weighted(weights) for part in self.parts]).sum(0)

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

    def slack(self) -> Tensor | None:
        """See Part."""
        known = [slack for part in self.parts if (slack := part.slack()) is not None]
        lengths = torch.stack([_lengths_of(part) for part in self.parts]).sum(0)
        widest = max(part.gradients.shape[2] + 2 * part.gradients.shape[1] for part in self.parts)
        return torch.stack([*known, lengths * _of_squares(2 * widest)]).sum(0)


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
    assert isinstance(product, OuterProducts) and isinstance(looked_up, TokenRows)
    places = looked_up.tokens[:, None].expand(-1, product.gradients.shape[1], -1)
    hit = product.gradients.gather(2, places).double()
    return hit.mul_(torch.bmm(product.inputs.double(), looked_up.gradients.double().mT)).sum(2).sum(1)


def _where_equal(tokens: Tensor, others: Tensor, gradients: Tensor, other_gradients: Tensor) -> Tensor:
    products = torch.bmm(gradients.double(), other_gradients.double().mT)
    return products.mul_(tokens[:, :, None] == others[:, None]).sum(2).sum(1)


def _records_of(one: OuterProducts | TokenRows, other: OuterProducts | TokenRows) -> Sequence[tuple[OuterProducts, TokenRows]]:
    """Some records of both at a time."""
    pairs = one.gradients.shape[1] * other.gradients.shape[1]
    size = max(1, (_PAIRED if on_cpu(one.gradients) else _PAIRED_ON_GPU) // max(1, pairs))
    return [tuple(_slice(part, slice(first, first + size)) for part in (one, other)) for first in range(0, len(one.gradients), size)]  # pyright: ignore


def _slice(part: OuterProducts | TokenRows, records: slice) -> OuterProducts | TokenRows:
    if isinstance(part, OuterProducts):
        return OuterProducts(part.inputs[records], part.gradients[records], part.memory)
    return TokenRows(part.tokens[records], part.gradients[records], part.table)


def without(tensor: Tensor, records: Tensor) -> Tensor:
    """Zeros for some records."""
    return tensor.masked_fill(records.view(-1, *[1] * (tensor.dim() - 1)), 0)


def _norms(tensor: Tensor) -> Tensor:
    return torch.linalg.vector_norm(tensor, dim=2, dtype=torch.float64)


def _lengths_of(part: OuterProducts | TokenRows) -> Tensor:
    lengths = _norms(part.gradients)
    return (lengths * _norms(part.inputs) if isinstance(part, OuterProducts) else lengths).sum(1)


def _rounding(terms: int, dtype: torch.dtype) -> float:
    """Of a sum of so many products, over the sum of their lengths."""
    return (terms / 2 + 1) * torch.finfo(dtype).eps


def _of_squares(terms: int) -> float:
    """Of a norm whose square was summed of products in float64, over the sum of lengths."""
    return math.sqrt(2 * terms * 2.0**-53)
