"""Per-record gradients of a weight that is applied at several positions: sums of outer products, measured and added without forming them.

The rules of linear, recurrent and attention layers yield `OuterProducts`; `together` joins the calls of a shared parameter. Forming the
gradient of every record of a large layer would not fit in memory. B records, T positions, d inputs, p outputs.
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import reduce
from typing import Self

import torch
from torch import Tensor

from lethe.train.clip.float64_sums import lengths_of, products_added, squares_of
from lethe.train.clip.parts.part import Grouping, MaterialisedGradients, ParameterGradients, TokenRows, at_least, no_longer, norms_of
from lethe.train.clip.parts.row_sums import added
from lethe.train.core.tensors import has_fast_doubles

FORMED, FORMED_ON_GPU = 2**20, 2**24
"""Numbers that are formed at once where they are not kept: 4 MiB; on a GPU 64."""

PAIRED, PAIRED_ON_GPU = 2**20, 2**25
"""Numbers of products of positions that are held at once, float64: 8 MiB; on a GPU 256."""

# From so many positions on, forming records in their own type and adding them in float64 is faster than products in float64.
_FEW = 24

# Multiplications of products of positions over those of forming: from the first on gradients are formed if they can be kept, from the
# second on in any case. Products are taken in float64, which a GPU may have fast.
_CPU, _FAST_GPU, _SLOW_GPU = (0.1, 0.5), (2.0, 2.0), (1 / 32, 1 / 32)


class Memory:
    """What is left of a limit of bytes; 0: nothing is kept."""

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit

    def take(self, size: int) -> bool:
        """Whether so many bytes more may be kept; they then are."""
        if size > self.left:
            return False
        self.left -= size
        return True

    def take_for(self, formed: int, factors: int) -> bool:
        """The same of gradients formed of factors that are then let go: the backward pass has let go of as much again by then."""
        return self.limit > 0 and self.take(formed - 2 * factors)


def forming(positions: int, width: int, outputs: int, like: Tensor) -> tuple[bool, bool]:
    """Whether forming a record's gradient is faster than products of positions: if it can be kept, and in any case.

    T positions, width d, p outputs; `like`, of any shape, is on the device.
    """
    share = positions * (width + outputs) / max(1, width * outputs)
    if_kept, always = _CPU if like.is_cpu else _FAST_GPU if has_fast_doubles(like.device) else _SLOW_GPU
    return share >= if_kept, share >= always


class OuterProducts(ParameterGradients):
    r"""$G_i = \sum_t g_{it}x_{it}^\top$, shape (p, d), of a weight W used as $Wx_{it}$.

    $\|G_i\|^2 = \sum_{t,s}(x_{it}\cdot x_{is})(g_{it}\cdot g_{is})$ costs $T^2(p+d)$ multiplications, forming $G_i$ costs $Tpd$: the faster
    is done (Bu et al. 2022, arXiv:2205.10683).

    Args:
        inputs: x, shape (B, T, d).
        gradients: g, shape (B, T, p).
        memory: for gradients that are kept.
        measured: the squared norms, where they were taken before.
        dtype: in which they are formed, where x and g are given in float64 as they are only to be multiplied so; None: that of g.
    """

    held = ("inputs", "gradients", "_measured")

    def __init__(
        self, inputs: Tensor, gradients: Tensor, memory: Memory, measured: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> None:
        self.inputs, self.gradients, self.memory, self._measured = inputs, gradients, memory, measured
        self.dtype = gradients.dtype if dtype is None else dtype
        positions, width, outputs = inputs.shape[1], inputs.shape[2], gradients.shape[2]
        self.forming = forming(positions, width, outputs, inputs) if positions > 1 else (False, False)
        few_positions = self.dtype == torch.float64 or positions < _FEW or (not inputs.is_cpu and has_fast_doubles(inputs.device))
        self.formed_for_sum = positions > 1 and (self.forming[1] or not few_positions)

    def squares(self) -> Tensor:
        """The squared norm of each record's gradient, shape (B,), float64."""
        if self._measured is not None:
            return self._measured
        x, g = self.inputs, self.gradients
        if x.shape[1] == 1:
            self._measured = (lengths_of(x[:, 0]) * lengths_of(g[:, 0])).square()
        elif self.forming[1]:
            self._measured = torch.cat([squares_of(torch.bmm(a.mT, b)) for a, b in self._pieces(x.shape[2] * g.shape[2])])
        else:
            self._measured = self.counting(self.products(), self.lengths())
        return self._measured

    def counting(self, products: Tensor, lengths: Tensor) -> Tensor:
        """What `products` and `lengths` count as."""
        if self.formed_for_sum:  # where what is formed may exceed the largest number, the record counts as such
            return products.masked_fill(~(lengths < torch.finfo(self.dtype).max / 4), math.inf)
        return at_least(products, lengths, self.terms)

    def settled(self) -> ParameterGradients:
        """These gradients in the form in which they are summed: formed rows where those are cheaper."""
        x, g = self.inputs, self.gradients
        numbers = x.shape[2] * g.shape[2]
        if not self.forming[0] or not self.memory.take_for(len(x) * numbers * x.element_size(), x.nbytes + g.nbytes):
            return self
        formed = torch.bmm(g.mT, x)
        return MaterialisedGradients(formed, squares_of(formed))

    def products(self) -> Tensor:
        """Squared norms without forming anything, to `terms` roundings of the squares of `lengths`."""
        positions = self.inputs.shape[1]
        return torch.cat([products_of(b, b, a, a) for a, b in self._pieces(positions * positions, pairs=True)]).clamp(min=0)

    @property
    def terms(self) -> int:
        """The number of terms of the longest sum, for the bound of its rounding."""
        return self.inputs.shape[2] + self.gradients.shape[2] + 2 * self.inputs.shape[1]

    def lengths(self) -> Tensor:
        r"""$\sum_t\|x_{it}\|\|g_{it}\|$, shape (B,)."""
        return (norms_of(self.inputs) * norms_of(self.gradients)).sum(1)

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum of the records' gradients times `weights`, of the parameter's shape."""
        if not self.formed_for_sum:
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
        """The gradient of each record, shape (B, *parameter)."""
        return torch.bmm(self.gradients.mT, self.inputs)

    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """The gradients of units, each the sum or mean of its rows."""
        return OuterProducts(grouping(self.inputs).flatten(1, 2), grouping(self.gradients).flatten(1, 2), self.memory)

    def _pieces(self, numbers: int, *, pairs: bool = False) -> Sequence[tuple[Tensor, Tensor]]:
        """Some records' gradients and inputs at a time."""
        cpu, gpu = (PAIRED, PAIRED_ON_GPU) if pairs else (FORMED, FORMED_ON_GPU)
        size = max(1, (cpu if self.inputs.is_cpu else gpu) // max(1, numbers))
        return list(zip(self.gradients.split(size), self.inputs.split(size), strict=True))


def products_of(inputs: Tensor, other_inputs: Tensor, gradients: Tensor, other_gradients: Tensor) -> Tensor:
    r"""$\sum_{t,s}(x_t\cdot y_s)(g_t\cdot h_s)$ of each record, float64, shape (B,).

    Inputs x, y and gradients g, h have shapes (B, T, d), (B, S, d), (B, T, p) and (B, S, p).
    """
    x = torch.bmm(inputs.double(), (inputs if other_inputs is inputs else other_inputs).double().mT)
    return x.mul_(torch.bmm(gradients.double(), other_gradients.double().mT)).sum(2).sum(1)


Factored = OuterProducts | TokenRows


class Several(ParameterGradients):
    """A parameter of several layers or calls, too large to form: norms by products between the calls, which may cancel each other."""

    def __init__(self, parts: Sequence[Factored]) -> None:
        self.parts, self.dtype = parts, parts[0].dtype

    def squares(self) -> Tensor:
        """The squared norm of each record's gradient, shape (B,), float64."""
        total = torch.stack([part.products() for part in self.parts]).sum(0)
        for index, one in enumerate(self.parts):
            for earlier in self.parts[:index]:
                total += 2 * torch.cat([between(a, b) for a, b in _records_of(one, earlier)])
        lengths = torch.stack([part.lengths() for part in self.parts]).sum(0)
        return at_least(total.clamp(min=0), lengths, 2 * max(part.terms for part in self.parts) + len(self.parts) ** 2)

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum of the records' gradients times `weights`, of the parameter's shape."""
        sums = [
            products_added(weights, part.gradients, part.inputs) if isinstance(part, OuterProducts) else part.weighted(weights)
            for part in self.parts
        ]
        return reduce(added, sums)

    def rows(self) -> Tensor:
        """The gradient of each record, shape (B, *parameter)."""
        formed, *later_parts = sorted(self.parts, key=lambda part: isinstance(part, TokenRows))
        total = formed.rows()
        for part in later_parts:
            total = part.added_to(total) if isinstance(part, TokenRows) else total.add_(part.rows())
        return total

    def replace(self, replaced: Callable[[Tensor], Tensor]) -> None:
        """Replace the tensors of these gradients in place."""
        self.parts = [copy(part) for part in self.parts]
        for part in self.parts:
            part.replace(replaced)

    def scaled(self, factors: Tensor) -> Self:
        """These gradients, each record's times its factor."""
        part = copy(self)
        part.parts = [part_of_call.scaled(factors) for part_of_call in self.parts]
        return part

    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """The gradients of units, each the sum or mean of its rows."""
        return Several([part.grouped(grouping) for part in self.parts])  # pyright: ignore[reportArgumentType]


def together(parts: list[ParameterGradients], numbers: int, memory: Memory) -> ParameterGradients:
    """One part for all calls in which a parameter took part."""
    products = [part for part in parts if isinstance(part, OuterProducts)]
    if len(products) > 1 and len(products) == len(parts):
        inputs, gradients = (torch.cat(tensors, 1) for tensors in zip(*((part.inputs, part.gradients) for part in products), strict=True))
        return OuterProducts(inputs, gradients, memory).settled()
    looked_up = [part for part in parts if isinstance(part, TokenRows)]
    if len(looked_up) > 1 and (rows := looked_up[0].joined(looked_up[1:])) is not None:
        parts = [*(part for part in parts if not isinstance(part, TokenRows)), rows]
        if len(parts) == 1:
            return rows
    factored = [part for part in parts if isinstance(part, OuterProducts | TokenRows)]
    if len(factored) == len(parts) and numbers * len(factored[0].gradients) > FORMED:
        several, size = Several(factored), len(factored[0].gradients) * numbers * factored[0].gradients.element_size()
        factors = [part.inputs for part in products] + [part.gradients for part in factored]
        faster = any(part.forming[0] for part in products)
        return (
            MaterialisedGradients(several.rows()) if faster and memory.take_for(size, sum(factor.nbytes for factor in factors)) else several
        )
    if (joined := parts[0].joined(parts[1:])) is not None:
        return joined
    return MaterialisedGradients(torch.stack([part.rows().flatten(1) for part in parts]).sum(0))


def between(first: Factored, second: Factored) -> Tensor:
    """The inner product of each record's gradients in two calls of one parameter, shape (B,), float64."""
    if isinstance(first, OuterProducts) and isinstance(second, OuterProducts):
        return products_of(first.inputs, second.inputs, first.gradients, second.gradients)
    product, looked_up = (first, second) if isinstance(first, OuterProducts) else (second, first)
    assert isinstance(product, OuterProducts)
    assert isinstance(looked_up, TokenRows)
    token_indices = looked_up.tokens[:, None].expand(-1, product.gradients.shape[1], -1)
    hit = product.gradients.gather(2, token_indices).double()
    return hit.mul_(torch.bmm(product.inputs.double(), looked_up.gradients.double().mT)).sum(2).sum(1)


def _records_of(one: Factored, second: Factored) -> Sequence[tuple[Factored, Factored]]:
    """Some records of both at a time."""
    pairs = one.gradients.shape[1] * second.gradients.shape[1]
    size = max(1, (PAIRED if one.gradients.is_cpu else PAIRED_ON_GPU) // max(1, pairs))
    chunks = [slice(first, first + size) for first in range(0, len(one.gradients), size)]
    return [(one.some(records), second.some(records)) for records in chunks]
