"""Operations on parameters that are computed again in the backward pass, for gradients of one record each."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.utils._pytree import TreeSpec, tree_unflatten

from lethe.train.clipping.anchors import Untouched
from lethe.train.clipping.rules.rule import wide
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import FAILURES, first_line


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """Where record-free tensors entered an operation as one copy a record; `copies` has shape (B, ...)."""

    source: Tensor
    copies: Tensor
    untouched: Untouched


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation on records, of `rows` rows each, and record-free tensors; it is computed again, record by record, for its gradient."""

    function: Any
    arguments: Sequence[Any]
    spec: TreeSpec
    free: Sequence[int]
    sources: Sequence[Tensor]
    records: Sequence[int]
    rows: int
    edge: GradientEdge
    untouched: Untouched


def computed_again(operation: Operation, gradient: Tensor) -> Sequence[Tensor]:
    """Gradients at the operation's record-free arguments, one a record, from that at its result, which has all rows of all records."""
    arguments = [wide(entry) if isinstance(entry, Tensor) and entry.is_floating_point() else entry for entry in operation.arguments]

    def one(cotangent: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        def computed(*sources: Tensor) -> Tensor:
            entries = list(arguments)
            for place, row in zip(operation.records, rows, strict=True):
                entries[place] = row
            for place, source in zip(operation.free, sources, strict=True):
                entries[place] = source
            args, kwargs = tree_unflatten(entries, operation.spec)
            return operation.function(*args, **kwargs)

        pull = torch.func.vjp(computed, *(arguments[place] for place in operation.free))[1]
        return pull(cotangent)

    name = name_of(operation.function)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells which operations it loops over
            apart = [
                tensor.unflatten(0, (-1, operation.rows)) for tensor in (wide(gradient), *(arguments[place] for place in operation.records))
            ]
            return torch.func.vmap(one)(*apart)
    except FAILURES as error:
        raise UnfollowedError(
            f"{name} on a parameter cannot be computed record by record: {first_line(error)}",
            source="a module whose own parameters no rule covers",
            remedy="register a rule for the module: lethe.train.clipping.register_rule.",
        ) from error


def pulled_back(source: Tensor, aliases: Sequence[Tensor], gradient: Tensor) -> Sequence[Tensor | None]:
    """Gradients at a tensor, one a record, to gradients at the parameters it was computed from.

    Args:
        source: the tensor, of any shape.
        aliases: what stands for the parameters.
        gradient: shape (B, *shape of `source`).
    """
    gradient = gradient.to(source.dtype)
    options: dict[str, Any] = {"allow_unused": True, "retain_graph": True}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells which operations it loops over
            pulled = torch.autograd.grad(source, aliases, gradient, is_grads_batched=True, **options)
    except RuntimeError:
        rows = [torch.autograd.grad(source, aliases, row, **options) for row in gradient]
        pulled = [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]
    return [None if part is None else wide(part) for part in pulled]


def name_of(function: Any) -> str:
    """The name of a function of torch."""
    return getattr(function, "__name__", str(function))
