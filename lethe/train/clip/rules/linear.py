"""Affine maps: nn.Linear, and Conv1D of transformers, whose weight is stored the other way round."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from lethe.train.clip.parts.outer_products import Memory, OuterProducts
from lethe.train.clip.parts.part import MaterialisedGradients, ParameterGradients
from lethe.train.clip.rules.rule import Call, Parts, Watch, as_computed, positions, wide


def linear(call: Call, *, transposed: bool = False) -> Parts:
    """$G = \\sum_t g_tx_t^\\top$ and $\\sum_t g_t$; or of a weight of shape (inputs, outputs)."""
    gradient = positions(call.gradient)
    parts = list[tuple[str, ParameterGradients]]()  # no generator: every step passes here for every layer
    if "weight" in call.names:
        given = positions(call.given)
        factors = (gradient, given) if transposed else (given, gradient)
        parts.append(("weight", OuterProducts(*factors, call.memory)))
    if "bias" in call.names:
        parts.append(("bias", _summed(gradient)))
    return parts


def watched_linear(
    watch: Watch,
    given: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    names: Sequence[str],
    around: Sequence[int] = (0, 0),
    apart: bool = False,
) -> Tensor:
    """A step $Wx + b$ of a forward pass of our own.

    Args:
        watch: records it.
        given: x, rows first, shape (rows, ..., d).
        weight: W, shape (p, d).
        bias: b, shape (p,); None: 0.
        names: of the parameters, W and b.
        around: how many outputs of the parameters lie before and behind those of this step.
        apart: of the bias only, and the weight is a parameter by itself.
    """

    def rule(gradient: Tensor, inputs: tuple[Tensor, ...], memory: Memory) -> Parts:
        gradient, inner = positions(wide(gradient)), positions(as_computed(inputs[0], gradient))
        whole = functional.pad(gradient, around) if any(around) else gradient
        yield names[0], OuterProducts(inner, gradient if apart else whole, memory)
        if bias is not None:
            yield names[1], _summed(whole)

    return watch(functional.linear(given, weight, bias), (given,), rule)


def _summed(gradient: Tensor) -> MaterialisedGradients:
    return MaterialisedGradients(gradient.squeeze(1) if gradient.shape[1] == 1 else gradient.sum(1))
