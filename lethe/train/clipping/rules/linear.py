"""Gradients of nn.Linear, at any number of positions of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from lethe.train.clipping.rules.arguments import argument
from lethe.train.clipping.rules.outer_products import Applied, OuterProducts, shift_part, weight_part
from lethe.train.clipping.rules.parts import Part, PartedGradients, Rows
from lethe.train.clipping.rules.rule import Use, wide


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
        return {"weight": OuterProducts(inputs, gradients), "bias": Rows(gradients[:, 0] if gradients.shape[1] == 1 else gradients.sum(1))}


def _applied(use: Use, module: nn.Linear) -> Applied:
    inputs = _positions(cast("Tensor", argument(use, 0, "input")), module.in_features)
    gradients = _positions(use.grad_output, module.out_features)
    dtype = torch.promote_types(inputs.dtype, gradients.dtype)
    return Applied(inputs.to(dtype), gradients.to(dtype))


def _positions(tensor: Tensor, width: int) -> Tensor:
    # The width is given, not inferred: an empty batch leaves nothing to infer it from.
    return wide(tensor).reshape(len(tensor), tensor.shape[1:-1].numel(), width)
