"""Affine maps: nn.Linear, and Conv1D of transformers, whose weight is stored the other way round."""

from __future__ import annotations

from lethe.train.clip.parts import OuterProducts, Rows
from lethe.train.clip.rules.rule import Call, Parts, positions


def linear(call: Call) -> Parts:
    """$G = \\sum_t g_tx_t^\\top$ and $\\sum_t g_t$."""
    gradient = positions(call.gradient)
    if "weight" in call.names:
        yield "weight", OuterProducts(positions(call.given), gradient, call.memory)
    if "bias" in call.names:
        yield "bias", Rows(gradient.squeeze(1) if gradient.shape[1] == 1 else gradient.sum(1))


def transposed_linear(call: Call) -> Parts:
    """The same with a weight of shape (inputs, outputs)."""
    gradient = positions(call.gradient)
    if "weight" in call.names:
        yield "weight", OuterProducts(gradient, positions(call.given), call.memory)
    if "bias" in call.names:
        yield "bias", Rows(gradient.sum(1))
