"""The interface of a layer's rule: the call that it receives, the parts (gradients of all records in a parameter) that it yields.
`Recording` (fast.py) makes a `Call` of each call of a layer and passes it to the layer's `Rule`; every file of rules builds on it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lethe.train.clip.parts.outer_products import Memory
from lethe.train.clip.parts.part import ParameterGradients


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a layer.

    Args:
        module: the layer.
        args: its positional arguments, detached, rows first.
        kwargs: the others.
        gradients: of the summed losses in each tensor that it gave, rows first; None where none came.
        names: the layer's own names of its trained parameters.
        memory: for gradients that are kept.
    """

    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    gradients: tuple[Tensor | None, ...]
    names: Collection[str]
    memory: Memory

    @property
    def given(self) -> Tensor:
        """The first argument, in the type that it was computed with."""
        tensor = self.args[0] if self.args else next(iter(self.kwargs.values()))
        gradient = self.gradients[0]
        if tensor.dtype == torch.float32 and (gradient is None or gradient.dtype == torch.float32):
            return tensor
        return wide(tensor) if gradient is None else as_computed(tensor, gradient)

    @property
    def gradient(self) -> Tensor:
        """The gradient in the layer's output, which is one tensor."""
        (gradient,) = self.gradients
        assert gradient is not None
        return gradient if gradient.dtype == torch.float32 else wide(gradient)


Parts = Iterable[tuple[str, ParameterGradients]]
"""Names of a layer's parameters, and the rows' gradients in them; those of frozen parameters may be left out."""

Watch = Callable[[Tensor, tuple[Tensor, ...], Callable[[Tensor, tuple[Tensor, ...], Memory], Parts]], Tensor]
"""(output, inputs, rule) -> output: the rule is later given the gradient in the output, the inputs and the memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """How the gradients of a layer are computed: from its calls, or by a forward pass of our own.

    Args:
        parts: of a call; None: `forward` says them.
        forward: (layer, watch, *args, **kwargs) -> what the layer gives, computed in steps that are watched; None: the layer's own.
        whole: whether it answers for the modules within as well.
    """

    parts: Callable[[Call], Parts] | None = None
    forward: Callable[..., Any] | None = None
    whole: bool = False


def wide(tensor: Tensor) -> Tensor:
    """In float32 or better: norms and sums are never computed in half precision."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def as_computed(layer_input: Tensor, gradient: Tensor) -> Tensor:
    """A layer's input in float32 or better, rounded as autocast rounded it."""
    if layer_input.is_floating_point() and gradient.dtype in (torch.bfloat16, torch.float16):
        layer_input = layer_input.to(gradient.dtype)
    return wide(layer_input)


def positions(tensor: Tensor) -> Tensor:
    """Shape (rows, positions, features)."""
    return tensor[:, None] if tensor.dim() == 2 else tensor.flatten(1, -2) if tensor.dim() > 3 else tensor
