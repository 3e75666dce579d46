"""Arguments and outputs of a layer's call, positional or by keyword."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lethe.train.clipping.rules.rule import Use


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
