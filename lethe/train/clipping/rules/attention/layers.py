"""Gradients of nn.MultiheadAttention: four projections, each a weight applied to many positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.train.clipping.rules.attention.core import attend, options_of, unsteady
from lethe.train.clipping.rules.outer_products import Applied, shift_part, weight_part
from lethe.train.clipping.rules.parts import Part, PartedGradients, Rows, Stacked
from lethe.train.clipping.rules.replay import replaying
from lethe.train.clipping.rules.rule import Use, argument, output_gradients, wide
from lethe.train.clipping.unfollowed import UnfollowedError


class _Call(NamedTuple):
    """One use: its four projections, and the gradients in the learned key and value, shape (B, 1, 1, E), None if there are none."""

    query: Applied
    key: Applied
    value: Applied
    out: Applied
    bias_k: Tensor | None
    bias_v: Tensor | None


class AttentionGradients(PartedGradients):
    """nn.MultiheadAttention, all its parameters, `out_proj.weight` and `out_proj.bias` by these names.

    The layer reads the weights of `out_proj` without calling it, so this rule speaks for the submodule too. The middle of the layer is
    computed again, in float32 or better. The second output, the attention weights, may have a gradient of its own.

    A record of which rounding alone decides where it attends has no gradient that could be measured: it counts as not finite (`unsteady`).

    Raises:
        InputError: an input without a dimension of records, a nested tensor, or dropout whose masks cannot be drawn again.
    """

    def make_parts(self) -> Mapping[str, Part]:
        """See PartedGradients."""
        module = cast("nn.MultiheadAttention", self.module)
        calls = [_call(use, module) for use in self.uses]
        sides = [[call.query, call.key, call.value] for call in calls]
        columns = list(zip(*sides, strict=True))
        parts: dict[str, Part] = {"in_proj_bias": Stacked([shift_part(column) for column in columns])}
        if module.in_proj_weight is not None:
            parts["in_proj_weight"] = _stacked(sides)
        else:
            names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            parts |= {name: weight_part(column) for name, column in zip(names, columns, strict=True)}
        parts["out_proj.weight"] = weight_part([call.out for call in calls])
        parts["out_proj.bias"] = shift_part([call.out for call in calls])
        if module.bias_k is not None:
            parts["bias_k"] = Rows(torch.stack([cast("Tensor", call.bias_k) for call in calls]).sum(0))
            parts["bias_v"] = Rows(torch.stack([cast("Tensor", call.bias_v) for call in calls]).sum(0))
        return parts


def _call(use: Use, module: nn.MultiheadAttention) -> _Call:
    given = [_records_first(argument(use, place, name), module) for place, name in enumerate(("query", "key", "value"))]
    inputs = [wide(given[0])]
    for before, tensor in pairwise(given):
        inputs.append(inputs[-1] if _same(before, tensor) else wide(tensor))
    out_gradient, weights_gradient = output_gradients(use, 2)
    weight = wide(module.out_proj.weight.detach())
    with replaying(use, module, module.dropout, weight.device):
        projected = _projected(inputs, module)
        options = options_of(use, module, len(inputs[0]), weight.dtype)
        context, weights = attend(projected[0], projected[1], projected[2], options)
        if out_gradient is None:
            out = context.new_zeros(context.shape)
        else:
            out = wide(out_gradient if module.batch_first else out_gradient.transpose(0, 1))
        sources, cotangents = [context], [out @ weight]
        if weights is not None and weights_gradient is not None:
            sources, cotangents = [*sources, weights], [*cotangents, wide(weights_gradient)]
        query, key, value = torch.autograd.grad(sources, projected, cotangents)
    lost = unsteady(projected[0], projected[1], projected[2], options.heads)
    if bool(lost.any()):  # NaN is what no norm is measured of, and so adds nothing
        query, key, value, out = (tensor.masked_fill(lost.view(-1, 1, 1), torch.nan) for tensor in (query, key, value, out))
    source = inputs[1].shape[1]
    learned = module.bias_k is not None
    return _Call(
        query=Applied(inputs[0], query),
        key=Applied(inputs[1], key[:, :source]),
        value=Applied(inputs[2], value[:, :source]),
        out=Applied(context.detach(), out),
        bias_k=key[:, None, source:] if learned else None,
        bias_v=value[:, None, source:] if learned else None,
    )


def _records_first(given: Tensor, module: nn.MultiheadAttention) -> Tensor:
    if given.is_nested or given.dim() != 3:
        what = "a nested tensor" if given.is_nested else f"an input of {given.dim()} dimensions"
        raise UnfollowedError(
            f"MultiheadAttention got {what}; it needs 3 dimensions: records, positions, features.",
            source="the layer's input",
            remedy="pad to one length and give key_padding_mask; for a single record, unsqueeze the dimension of records.",
        )
    return given.detach() if module.batch_first else given.detach().transpose(0, 1)


def _projected(inputs: Sequence[Tensor], module: nn.MultiheadAttention) -> list[Tensor]:
    """Queries, keys and values, shape (B, T, E), as the leaves of a graph, the learned key and value behind the others."""
    packed = module.in_proj_weight
    weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight) if packed is None else packed.chunk(3)
    shifts = (None, None, None) if module.in_proj_bias is None else wide(module.in_proj_bias.detach()).chunk(3)
    learned = (None, module.bias_k, module.bias_v)
    projected: list[Tensor] = []
    for given, weight, shift, extra in zip(inputs, weights, shifts, learned, strict=True):
        tensor = functional.linear(given, wide(cast("Tensor", weight).detach()), shift)
        if extra is not None:
            tensor = torch.cat([tensor, wide(extra.detach()).expand(len(tensor), 1, -1)], dim=1)
        projected.append(tensor.detach().requires_grad_())
    return projected


def _stacked(sides: Sequence[Sequence[Applied]]) -> Part:
    """One weight over queries, keys and values; neighbours that are one tensor in every use make one projection."""
    blocks: list[list[int]] = [[0]]
    for place in (1, 2):
        if all(_same(use[place - 1].inputs, use[place].inputs) for use in sides):
            blocks[-1].append(place)
        else:
            blocks.append([place])
    parts = [weight_part([_merged([use[place] for place in block]) for use in sides]) for block in blocks]
    return parts[0] if len(parts) == 1 else Stacked(parts)


def _merged(sides: Sequence[Applied]) -> Applied:
    return Applied(sides[0].inputs, torch.cat([side.gradients for side in sides], dim=2))


def _same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
