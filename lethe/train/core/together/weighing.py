"""Records times their weights, and their sums: two records are never added in less than float64."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lethe.train.core.tensors import on_cpu

FORMED_FOR_SUM = 24
"""From so many positions on, records are formed one by one to be added in float64; of fewer, products are taken in float64."""

# Numbers that are copied to float64 at a time to be added: 2^17 are 1 MiB, which stays in a core's cache.
_WIDENED, _WIDENED_ON_GPU = 2**17, 2**24


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """Weights that nobody writes to, what is known of them, and what they are in other types."""

    weights: Tensor
    none_is_zero: bool
    rounded: dict[torch.dtype, Tensor] = field(default_factory=dict)


_ASKED: ContextVar[_Asked | None] = ContextVar("lethe_weights_asked_once", default=None)


def scaled(tensor: Tensor, weights: Tensor) -> Tensor:
    """Record i times $w_i$, shape of `tensor`; exactly 0 where $w_i = 0$, even if record i is not finite."""
    factors = _along_records(rounded(weights, tensor.dtype), tensor)
    if none_is_zero(weights):
        return tensor * factors
    dropped, products = factors == 0, tensor * factors
    return products.masked_fill_(dropped, 0) if _may_hold(dropped) else products


def silenced(tensor: Tensor, weights: Tensor) -> Tensor:
    """The tensor with 0 in the records of weight 0, for the other factor of a product with scaled records."""
    if none_is_zero(weights):
        return tensor
    dropped = weights == 0
    return tensor.masked_fill(_along_records(dropped, tensor), 0) if _may_hold(dropped) else tensor


def _may_hold(dropped: Tensor) -> bool:
    """Whether one may be true: of a GPU that is not asked."""
    return not on_cpu(dropped) or bool(dropped.any())


@contextmanager
def asked_once(weights: Tensor) -> Generator[None]:
    """Within: of this very tensor, which nobody may write to, is known whether some weights are 0, and it is rounded once to each type."""
    token = _ASKED.set(_Asked(weights, bool(weights.all())))
    try:
        yield
    finally:
        _ASKED.reset(token)


def none_is_zero(weights: Tensor) -> bool:
    """Whether it is known that no record has weight 0."""
    asked = _ASKED.get()
    return asked is not None and asked.weights is weights and asked.none_is_zero


def rounded(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """The weights in another type; nobody may write to them."""
    asked = _ASKED.get()
    if asked is None or asked.weights is not weights:
        return weights.to(dtype)
    if dtype not in asked.rounded:
        asked.rounded[dtype] = weights.to(dtype)
    return asked.rounded[dtype]


def _along_records(values: Tensor, tensor: Tensor) -> Tensor:
    return values.view(-1, *[1] * (tensor.dim() - 1))


def weighed(weights: Tensor, formed: Tensor) -> Tensor:
    r"""$\sum_i w_i G_i$ of the records' formed tensors, in float64, to which products of float32 numbers are exact."""
    return added_up([(weights, formed)])


def added_up(terms: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The same over one lot of records or more, each with its weights."""
    total: Tensor | None = None
    for weights, formed in terms:
        factors, flat = rounded(weights, torch.float64), silenced(formed, weights).unsqueeze(-1).flatten(1)
        total = flat.new_zeros(formed.shape[1:], dtype=torch.float64) if total is None else total
        size = max(1, (_WIDENED if on_cpu(flat) else _WIDENED_ON_GPU) // max(1, len(flat)))
        for columns, part in zip(flat.split(size, dim=1), total.view(-1).split(size), strict=True):
            part.addmv_(columns.double().mT, factors)
    assert total is not None
    return total


def products_added(terms: Iterable[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    r"""$\sum_i w_i g_i^\top x_i$, products and sum in float64: twice the time of float32, which is less than to form few positions.

    Args:
        terms: of one lot of records or more, their weights, g and x, shapes (b,), (b, T, p) and (b, T, d).
    """
    total: Tensor | None = None
    for weights, gradients, inputs in terms:
        columns = scaled(gradients.double(), weights).flatten(0, 1).mT
        rows = silenced(inputs, weights).double().flatten(0, 1)
        total = columns @ rows if total is None else total.addmm_(columns, rows)
    assert total is not None
    return total
