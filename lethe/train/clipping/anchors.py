"""Anchors: outputs made part of the graph so that their gradients are computed, and detection of inputs changed in place."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.unfollowed import UnfollowedError


class Anchor(torch.autograd.Function):
    """The identity, after which an output has a place in the graph although nothing before it requires grad."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor) -> Tensor:
        """Nothing is copied, and in-place operations may follow."""
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[None, None]:
        """The graph ends here."""
        return None, None

    @classmethod
    def hold(cls, output: Tensor, anchor: Tensor, given: Iterable[Any] = (), *, fresh: bool = False) -> Tensor:
        """The output itself if it requires grad, else anchored; a view, and what is one of the arguments itself, is copied first.

        What follows a view in place would move the view to another place in the graph, and its gradient would never come by here. And
        an argument, such as x in x.to(weight), may be the caller's batch, which is not to be marked.

        Args:
            output: of a layer, of any shape.
            anchor: a scalar tensor that requires grad.
            given: the layer's arguments.
            fresh: whether nobody else sees the memory of a view; then it need not be copied.
        """
        if isinstance(output, nn.Parameter) or any(output is entry for entry in given):
            output = output.clone()
        elif output._is_view():
            output = cast("Tensor", _Alone.apply(output)) if fresh else output.clone()
        held = output if output.requires_grad else cast("Tensor", cls.apply(output, anchor))
        held.register_hook(_refuse_second_gradients)  # a plain function: what it held would be held by the graph, in a circle
        return held


class _Alone(torch.autograd.Function):
    """The identity, whose result is no view for autograd: what follows in place follows in the graph as well."""

    @staticmethod
    def forward(ctx: Any, output: Tensor) -> Tensor:
        """Nothing is copied."""
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        """As it comes."""
        return grad_outputs[0]


def _refuse_second_gradients(gradient: Tensor) -> None:
    if torch.is_grad_enabled():
        raise UnfollowedError(
            "a gradient was computed with create_graph=True through a layer that is recorded; how the layer's parameters enter that "
            "gradient's own gradient cannot be seen.",
            source="torch.autograd.grad(..., create_graph=True), as in a gradient penalty",
            remedy="leave the penalty out, or replace the derivative by a difference of two forward passes.",
        )


@contextmanager
def unaccumulated(leaves: Mapping[Tensor, str]) -> Generator[None]:
    """Within: a backward pass must not write to any `.grad`; afterwards each is what it was.

    A block that computes its forward pass again in the backward pass, of one's own making, writes its parameters' gradients there,
    neither clipped nor noised.

    Args:
        leaves: parameters, and what stands in for them, with their names.
    Raises:
        InputError: something was written.
    """
    before = [(leaf, leaf.grad) for leaf in leaves]
    for leaf, _ in before:
        leaf.grad = None
    written: list[str] = []
    try:
        yield
    finally:
        for leaf, gradient in before:
            if leaf.grad is not None:
                written.append(leaves[leaf])
            leaf.grad = gradient
    if written:
        raise UnfollowedError(
            f"parameter {', '.join(sorted(set(written)))} is used in the backward pass, which wrote its gradient to .grad, unclipped.",
            source="a torch.autograd.Function that computes a block again, as checkpoints and reversible blocks do",
            remedy="switch the recomputation off, and take smaller micro-batches if memory is short.",
        )


class Untouched:
    """Remembers at which version tensors were used.

    Args:
        tensors: whose values the gradients need.
        parameters: whose values the gradients need as well.
    """

    def __init__(self, tensors: Sequence[Tensor], parameters: Iterable[Tensor] = ()) -> None:
        self._versions = [(tensor, tensor._version) for tensor in tensors]
        self._parameters = [(parameter, parameter._version) for parameter in parameters]

    def require(self, where: str) -> None:
        """Raise InputError if one was changed in place since."""
        if any(tensor._version != version for tensor, version in self._versions):
            raise UnfollowedError(
                "an input was changed in place after it was used, before the backward pass.",
                source=where,
                remedy="replace the in-place operation that follows it (x += y by x = x + y, inplace=True by inplace=False).",
            )
        if any(parameter._version != version for parameter, version in self._parameters):
            raise InputError(
                "a parameter was changed after the forward pass that used it, before the backward pass.",
                source=where,
                remedy="call backward before the optimiser's step.",
            )
