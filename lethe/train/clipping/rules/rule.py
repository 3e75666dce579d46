"""The interface of a layer rule: per-record gradient norms and the weighted sum of gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One call of a layer in a forward pass, and the gradients of its outputs from the backward pass.

    Args:
        inputs: the positional arguments, detached; records along their first dimension.
        grad_output: the gradient of the summed losses in the layer's output, records along its first dimension.
        keywords: the keyword arguments.
        grad_outputs: of a layer with several output tensors, the gradient in each, None where none came: in the order of the outputs,
            nested tuples flattened, a PackedSequence standing for its `data`. `grad_output` is then not read. None: one output only.
    """

    inputs: tuple[Any, ...]
    grad_output: Tensor
    keywords: Mapping[str, Any] = field(default_factory=dict)
    grad_outputs: tuple[Tensor | None, ...] | None = None


class LayerGradients(ABC):
    r"""The gradients of the records' losses in some parameters of one layer, $G_i$, summed over all of the layer's uses.

    They need not exist as tensors: norms and weighted sums often cost far less. All results are float32, or float64 where the layer is;
    weighted sums are float64, or are asked for again, record by record.

    Args:
        module: the layer.
        uses: its calls, at least one, in order, all with the same records.
        names: those of its own parameters that are trained.
    """

    def __init__(self, module: nn.Module, uses: Sequence[Use], names: frozenset[str]) -> None:
        self.module = module
        self.uses = tuple(uses)
        self.names = names

    @abstractmethod
    def squared_norms(self) -> Tensor:
        r"""$\sum_{p} \|G_i^p\|^2$ over the parameters in `names`, shape (B,)."""

    @abstractmethod
    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        r"""$\sum_i w_i G_i^p$ for each parameter in `names`, of the parameter's shape, float64; `weights` has shape (B,), float64."""

    @abstractmethod
    def per_record(self, name: str) -> Tensor:
        """$G_i^p$ of one parameter, shape (B, *shape): for parameters that other layers share."""


Rule: TypeAlias = Callable[[nn.Module, Sequence[Use], frozenset[str]], LayerGradients]
"""What the registry holds for a layer type: usually a subclass of LayerGradients."""


def wide(tensor: Tensor) -> Tensor:
    """The tensor in float32 or better: norms and sums are never computed in half precision."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def as_computed(given: Tensor, told: Tensor) -> Tensor:
    """A product's input as it was computed with: under autocast it is rounded to the type of the output, and so of its gradient.

    Args:
        given: to the layer, before autocast.
        told: the gradient in the layer's output.
    """
    return given.to(told.dtype) if told.dtype in (torch.bfloat16, torch.float16) else given


def argument(use: Use, position: int, name: str, default: Any = None) -> Any:
    """An argument of the layer's forward, given by position or by keyword.

    Args:
        use: the call.
        position: from 0.
        name: the keyword.
        default: the value if it was not given.
    """
    return use.inputs[position] if position < len(use.inputs) else use.keywords.get(name, default)


def output_gradients(use: Use, outputs: int) -> tuple[Tensor | None, ...]:
    """The gradients in the first `outputs` output tensors, None where none came."""
    given = (use.grad_output,) if use.grad_outputs is None else use.grad_outputs
    return (*given[:outputs], *[None] * (outputs - len(given)))
