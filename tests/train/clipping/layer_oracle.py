"""The slow truth for gradient rules of layers: every record alone, through torch's own layer and plain autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.clipping.rules.rule import Rule, Use

Alone = Callable[[nn.Module, int], Sequence[Tensor | None]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One use of a layer, with the same use for one record alone.

    Args:
        arguments: for all records.
        alone: (layer, i) -> the output tensors of record i alone, each in the layout of `cotangents(i)`.
        cotangents: i -> the gradients in these outputs, None where none came.
        gradients: the same for all records.
        keywords: keyword arguments for all records.
    """

    arguments: tuple[Any, ...]
    alone: Alone
    cotangents: Callable[[int], Sequence[Tensor | None]]
    gradients: tuple[Tensor | None, ...]
    keywords: dict[str, Any] | None = None

    def use(self) -> Use:
        first = next((gradient for gradient in self.gradients if gradient is not None), torch.zeros(()))
        outputs = self.gradients if len(self.gradients) > 1 else None
        return Use(self.arguments, first, self.keywords or {}, outputs)


def names_of(module: nn.Module) -> frozenset[str]:
    return frozenset(name for name, _ in module.named_parameters())


def true_gradients(module: nn.Module, calls: Sequence[Call], batch: int) -> dict[str, Tensor]:
    """Of each parameter, shape (B, *shape), float64."""
    rows: dict[str, list[Tensor]] = {name: [] for name in names_of(module)}
    for record in range(batch):
        module.zero_grad()
        # A sum of nothing still has a gradient, of 0.
        terms = [torch.zeros(1, requires_grad=True).sum()] + [
            (output * gradient).sum()
            for call in calls
            for output, gradient in zip(call.alone(module, record), call.cotangents(record), strict=True)
            if gradient is not None
        ]
        torch.stack([term.double() for term in terms]).sum().backward()
        for name, parameter in module.named_parameters():
            found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            rows[name].append(found.double().clone())
    module.zero_grad()
    return {
        name: torch.stack(found) if found else torch.zeros(0, *dict(module.named_parameters())[name].shape) for name, found in rows.items()
    }


def check(
    rule: Rule, module: nn.Module, calls: Sequence[Call], batch: int, names: frozenset[str] | None = None, rel: float = 1e-10
) -> None:
    """The rule agrees with the truth: squared norms, weighted sums and single gradients, within `rel` of the largest gradient."""
    names = names_of(module) if names is None else names
    told = rule(module, [call.use() for call in calls], names)
    truth = true_gradients(module, calls, batch)
    squares = torch.stack([truth[name].flatten(1).square().sum(1) for name in names]).sum(0)
    # Inputs and cotangents are of size 1; where all gradients vanish but for rounding, that is what rounding is relative to.
    scale = max(1e-2, float(squares.max().sqrt())) if batch else 1.0
    weights = torch.linspace(-1.0, 2.0, batch, dtype=torch.float64)
    weights[: batch // 2] += 0.125
    close(told.squared_norms(), squares, rel * scale**2)
    sums = told.weighted_sums(weights)
    assert sums.keys() == names
    for name in names:
        expected = torch.tensordot(weights, truth[name].double(), dims=1)
        close(sums[name], expected, rel * scale * max(1, batch))
        close(told.per_record(name), truth[name], rel * scale)


def close(got: Tensor, expected: Tensor, tolerance: float) -> None:
    assert got.dtype in (torch.float32, torch.float64)
    assert got.shape == expected.shape
    assert torch.isfinite(got).all()
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=tolerance)
