"""nn.MultiheadAttention: a forward pass of our own, whose projections are watched."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.train.clip.parts.outer_products import Memory
from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.linear import watched_linear
from lethe.train.clip.rules.rule import Parts, Watch, wide

_APART = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


def attention(
    module: nn.MultiheadAttention,
    watch: Watch,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    r"""What the layer's own forward pass computes, with the same draws: $\mathrm{softmax}(qk^\top/\sqrt{d} + m)v$ in each head.

    Args:
        module: the layer.
        watch: records a step.
        query, key, value: shapes (B, L, E), (B, S, kdim) and (B, S, vdim); records second where the layer is not batch_first.
        key_padding_mask, attn_mask: shapes (B, S), and (L, S) or (B heads, L, S); None: there is none.
        need_weights, average_attn_weights, is_causal: as of the layer.
    Raises:
        NotImplementedError: a nested tensor, or no dimension of records.
    """
    if query.is_nested or query.dim() != 3:
        raise NotImplementedError("an input without a dimension of records, or a nested one")
    given = [query, key, value]
    if not module.batch_first:
        turned = {id(tensor): tensor.transpose(0, 1) for tensor in given}
        given = [turned[id(tensor)] for tensor in given]
    q, k, v = (
        projected.unflatten(2, (module.num_heads, module.head_dim)).transpose(1, 2) for projected in _projected(module, watch, given)
    )
    if module.add_zero_attn:
        k, v = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1))
    dropout = module.dropout if module.training else 0.0
    causal = is_causal and key_padding_mask is None and not need_weights  # or else it is a hint at what the mask says
    mask = _mask(module, None if causal else attn_mask, key_padding_mask, q)
    weights = None
    if need_weights:
        scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.mT
        weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
        weights = functional.dropout(weights, dropout) if dropout else weights
        context = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        context = functional.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
    last, names = module.out_proj, ("out_proj.weight", "out_proj.bias")
    output = watched_linear(watch, context.transpose(1, 2).flatten(2), last.weight, last.bias, names)
    return output if module.batch_first else output.transpose(0, 1), weights


def _projected(module: nn.MultiheadAttention, watch: Watch, given: Sequence[Tensor]) -> list[Tensor]:
    """Queries, keys and values, (B, T, E); the learned key and value behind the others."""
    packed, shifts, size = module.in_proj_weight, module.in_proj_bias, module.embed_dim
    projected: list[Tensor] = []
    while len(projected) < 3:
        first = last = len(projected)
        while packed is not None and last < 2 and given[last + 1] is given[first]:
            last += 1  # what is one tensor is projected once
        rows = slice(first * size, (last + 1) * size)
        weight, name = (getattr(module, _APART[first]), _APART[first]) if packed is None else (packed[rows], "in_proj_weight")
        shift, around = None if shifts is None else shifts[rows], (rows.start, 3 * size - rows.stop)
        step = watched_linear(watch, given[first], weight, shift, (name, "in_proj_bias"), around, packed is None)
        projected += step.chunk(last + 1 - first, dim=-1)
    for place, name in ((1, "bias_k"), (2, "bias_v")):
        learned = getattr(module, name)
        if learned is not None:
            projected[place] = torch.cat([projected[place], _learned(watch, learned, name, len(given[0]))], dim=1)
    return projected


def _learned(watch: Watch, parameter: Tensor, name: str, records: int) -> Tensor:
    def rule(gradient: Tensor, _inputs: tuple[Tensor, ...], _memory: Memory) -> Parts:
        yield name, MaterialisedGradients(wide(gradient))

    return watch(parameter.repeat(records, 1, 1), (), rule)


def _mask(module: nn.MultiheadAttention, mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
    """What is added to the scores, broadcast to (B, H, L, S)."""
    added: list[Tensor] = []
    if mask is not None:
        mask = _as_added(mask, q.dtype)
        added.append(mask if mask.dim() == 2 or len(mask) == 1 else mask.unflatten(0, (-1, module.num_heads)))
    if padding is not None:
        added.append(_as_added(padding, q.dtype)[:, None, None, :])
    appended = (module.bias_k is not None) + int(module.add_zero_attn)
    return functional.pad(sum(added[1:], added[0]), (0, appended)) if added else None


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf) if mask.dtype == torch.bool else mask.to(dtype)
