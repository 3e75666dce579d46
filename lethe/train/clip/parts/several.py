"""One parameter in several layers or calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import torch
from torch import Tensor

from lethe.train.clip.in_float64 import products_added
from lethe.train.clip.parts.outer_products import FORMED, PAIRED, PAIRED_ON_GPU, Memory, OuterProducts, products_of
from lethe.train.clip.parts.part import Grouping, MaterialisedGradients, ParameterGradients, at_least
from lethe.train.clip.parts.token_rows import TokenRows

Factored = OuterProducts | TokenRows


class Several(ParameterGradients):
    """A parameter of several layers or calls, too large to form: norms by products between the calls, which may cancel each other."""

    def __init__(self, parts: Sequence[Factored]) -> None:
        self.parts, self.dtype = parts, parts[0].dtype

    def squares(self) -> Tensor:
        """See ParameterGradients."""
        total = torch.stack([part.products() for part in self.parts]).sum(0)
        for place, one in enumerate(self.parts):
            for other in self.parts[:place]:
                total += 2 * torch.cat([between(a, b) for a, b in _records_of(one, other)])
        lengths = torch.stack([part.lengths() for part in self.parts]).sum(0)
        return at_least(total.clamp(min=0), lengths, 2 * max(part.terms for part in self.parts) + len(self.parts) ** 2)

    def weighted(self, weights: Tensor) -> Tensor:
        """See ParameterGradients."""
        sums = [
            products_added(weights, part.gradients, part.inputs) if isinstance(part, OuterProducts) else part.weighted(weights)
            for part in self.parts
        ]
        return torch.stack(sums).sum(0)

    def rows(self) -> Tensor:
        """See ParameterGradients."""
        formed, *others = sorted(self.parts, key=lambda part: isinstance(part, TokenRows))
        total = formed.rows()
        for part in others:
            total = part.added_to(total) if isinstance(part, TokenRows) else total.add_(part.rows())
        return total

    def replace(self, replaced: Callable[[Tensor], Tensor]) -> None:
        """See ParameterGradients."""
        self.parts = [copy(part) for part in self.parts]
        for part in self.parts:
            part.replace(replaced)

    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """See ParameterGradients."""
        return Several([part.grouped(grouping) for part in self.parts])  # pyright: ignore[reportArgumentType]


def together(parts: list[ParameterGradients], numbers: int, memory: Memory) -> ParameterGradients:
    """One part for all calls in which a parameter took part.

    Args:
        parts: two or more, of the same records.
        numbers: of the parameter.
        memory: for gradients that are kept.
    """
    products = [part for part in parts if isinstance(part, OuterProducts)]
    if len(products) > 1 and len(products) == len(parts):
        inputs, gradients = (torch.cat(tensors, 1) for tensors in zip(*((part.inputs, part.gradients) for part in products), strict=True))
        return OuterProducts(inputs, gradients, memory).settled()
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


def between(one: Factored, other: Factored) -> Tensor:
    """The inner product of each record's gradients in two calls of one parameter, shape (B,), float64."""
    if isinstance(one, OuterProducts) and isinstance(other, OuterProducts):
        return products_of(one.inputs, other.inputs, one.gradients, other.gradients)
    if isinstance(one, TokenRows) and isinstance(other, TokenRows):
        products = torch.bmm(one.gradients.double(), other.gradients.double().mT)
        return products.mul_(one.tokens[:, :, None] == other.tokens[:, None]).sum(2).sum(1)
    product, looked_up = (one, other) if isinstance(one, OuterProducts) else (other, one)
    assert isinstance(product, OuterProducts)
    assert isinstance(looked_up, TokenRows)
    places = looked_up.tokens[:, None].expand(-1, product.gradients.shape[1], -1)
    hit = product.gradients.gather(2, places).double()
    return hit.mul_(torch.bmm(product.inputs.double(), looked_up.gradients.double().mT)).sum(2).sum(1)


def _records_of(one: Factored, other: Factored) -> Sequence[tuple[Factored, Factored]]:
    """Some records of both at a time."""
    pairs = one.gradients.shape[1] * other.gradients.shape[1]
    size = max(1, (PAIRED if one.gradients.is_cpu else PAIRED_ON_GPU) // max(1, pairs))
    places = [slice(first, first + size) for first in range(0, len(one.gradients), size)]
    return [(one.some(records), other.some(records)) for records in places]
