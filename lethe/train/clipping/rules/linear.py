"""Gradients of nn.Linear, at any number of positions of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from lethe.train.clipping.rules.outer_products import Applied, OuterProducts, shift_part, weight_part
from lethe.train.clipping.rules.parts import Part, PartedGradients, Rows
from lethe.train.clipping.rules.rule import Use, argument, as_computed, wide


class LinearGradients(PartedGradients):
    r"""$s_{it} = W x_{it} + b$ for inputs of shape (B, ..., d): $G_i^W = \sum_t g_{it} x_{it}^\top$ and $G_i^b = \sum_t g_{it}$.

    Several uses are as many further positions.
    """

    def make_parts(self) -> Mapping[str, Part]:
        """See PartedGradients."""
        uses = [_applied(use, cast("nn.Linear", self.module)) for use in self.uses]
        if len(uses) > 1:
            return {"weight": weight_part(uses), "bias": shift_part(uses)}
        # The usual case, without the copies of joining.
        inputs, gradients = uses[0]
        parts: dict[str, Part] = {"weight": OuterProducts(inputs, gradients)}
        if "bias" in self.names:
            parts["bias"] = Rows(gradients[:, 0] if gradients.shape[1] == 1 else gradients.sum(1))
        return parts


class ConvolutionOfOneGradients(PartedGradients):
    r"""The Conv1D of transformers' GPT-2: $s_{it} = W^\top x_{it} + b$, so that $G_i^W = \sum_t x_{it} g_{it}^\top$."""

    def make_parts(self) -> Mapping[str, Part]:
        """See PartedGradients."""
        given, width = cast("Tensor", self.module.weight).shape
        found = [_joined(argument(use, 0, "x"), use.grad_output, given, width) for use in self.uses]
        turned = [Applied(use.gradients, use.inputs) for use in found]
        return {"weight": weight_part(turned), "bias": shift_part(found)}


def _applied(use: Use, module: nn.Linear) -> Applied:
    return _joined(argument(use, 0, "input"), use.grad_output, module.in_features, module.out_features)


def _joined(given: Tensor, told: Tensor, before: int, after: int) -> Applied:
    if given.dim() == told.dim() == 3 and given.dtype == told.dtype == torch.float32:  # the usual case
        return Applied(given, told)
    inputs, gradients = _positions(as_computed(given, told), before), _positions(told, after)
    dtype = torch.promote_types(inputs.dtype, gradients.dtype)
    return Applied(inputs.to(dtype), gradients.to(dtype))


def _positions(tensor: Tensor, width: int) -> Tensor:
    # The width is given, not inferred: an empty batch leaves nothing to infer it from.
    return wide(tensor).reshape(len(tensor), tensor.shape[1:-1].numel(), width)
