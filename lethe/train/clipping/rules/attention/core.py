"""The middle of nn.MultiheadAttention: from projected queries, keys and values to the context of each query."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.train.clipping.rules.rule import Use, argument, wide
from lethe.train.core.tensors import on_cpu

# Rounding of a score, in units of eps times the lengths of query and key: sums of some hundred products, with room.
_ROUNDINGS = 16

# A record of whose scores, or of whose gradients in them, rounding may be more than this is not measured.
_STEADY = 1e-2

# Between these the length of a vector of float32 numbers is not far off.
_SMALL, _LARGE = 1e-12, 1e17


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionOptions:
    """How one call attends.

    Args:
        heads: the number of heads, H.
        dropout: the probability in force, 0 outside training.
        zero: whether an all-zero key and value are appended.
        weights: whether the call returns its weights, and so computes them.
        averaged: whether these are averaged over heads.
        causal: whether the hint replaces the mask.
        mask: what is added to the scores, broadcastable to (B, H, L, S); None: nothing.
    """

    heads: int
    dropout: float
    zero: bool
    weights: bool
    averaged: bool
    causal: bool
    mask: Tensor | None


def options_of(use: Use, module: nn.MultiheadAttention, batch: int, dtype: torch.dtype) -> AttentionOptions:
    """The options of a call of an attention layer.

    Args:
        use: the call.
        module: the layer.
        batch: B.
        dtype: of the scores.
    """
    padding, mask = argument(use, 3, "key_padding_mask"), argument(use, 5, "attn_mask")
    weights, causal = bool(argument(use, 4, "need_weights", True)), bool(argument(use, 7, "is_causal", False))
    # The hint counts only where nothing else masks; then torch never looks at the mask itself.
    causal = causal and padding is None and not weights
    masks: list[Tensor] = []
    if mask is not None and not causal:
        shape = (1, 1, *mask.shape) if mask.dim() == 2 else (batch, module.num_heads, *mask.shape[1:])
        masks.append(_added(mask, dtype).reshape(shape))
    if padding is not None:
        masks.append(_added(padding, dtype)[:, None, None, :])
    appended = (module.bias_k is not None) + int(module.add_zero_attn)
    return AttentionOptions(
        heads=module.num_heads,
        dropout=module.dropout if module.training else 0.0,
        zero=module.add_zero_attn,
        weights=weights,
        averaged=bool(argument(use, 6, "average_attn_weights", True)),
        causal=causal,
        mask=functional.pad(sum(masks[1:], masks[0]), (0, appended)) if masks else None,
    )


def attend(query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> tuple[Tensor, Tensor | None]:
    r"""$\mathrm{softmax}(q k^\top / \sqrt{E/H} + \text{mask})\, v$ in each head, and its weights if the call returns them.

    The same operations in the same order as torch's, so that dropout draws the same masks.

    Args:
        query: projected, shape (B, L, E).
        key: projected, shape (B, S, E).
        value: projected, shape (B, S, E).
        options: how to attend.
    Returns:
        The context, shape (B, L, E); the weights, shape (B, L, S') or (B, H, L, S'), or None.
    """
    q, k, v = (_split(tensor, options.heads) for tensor in (query, key, value))
    if options.zero:
        k, v = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1))
    if not options.weights:
        context = functional.scaled_dot_product_attention(q, k, v, options.mask, options.dropout, options.causal)
        return _joined(context), None
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.mT
    weights = torch.softmax(scores if options.mask is None else scores + options.mask, dim=-1)
    if options.dropout > 0:
        weights = functional.dropout(weights, options.dropout)
    return _joined(weights @ v), weights.mean(1) if options.averaged else weights


def unsteady(query: Tensor, key: Tensor, value: Tensor, heads: int, scale: float | None = None) -> Tensor:
    r"""Which records' gradients are made of rounding, shape (B,), bool; True where their numbers are not finite.

    A score $q_t \cdot k_s/\sqrt{E/H}$ is right to some eps times $\|q_t\|\|k_s\|/\sqrt{E/H}$, and softmax takes the error as it is: where
    that is not small, the largest score of a query is chosen by rounding. In the gradients $v_s$ stands where $q_t$ or $k_s$ did: they
    are differences of $v_s \cdot \partial o_t$, which cancel where softmax is saturated. How it rounds depends on the batch's size: such
    a record's gradient, though clipped, would change by up to 2 C when another record comes or goes.

    Args:
        query, key, value: projected, shape (B, L, E) and (B, S, E).
        heads: H.
        scale: what scores are multiplied by, at most; None: $1/\sqrt{E/H}$.
    """
    q, k, v = (longest(_split(tensor.detach(), heads)) for tensor in (query, key, value))
    return left_to_rounding(q, k, v, math.sqrt(heads / query.shape[-1]) if scale is None else scale, query.dtype).any(1)


def longest(tensor: Tensor) -> Tensor:
    """The length of the longest of some vectors, float64, shape (...), of vectors of shape (..., L, d); right to some eps at any size.

    On a GPU lengths are taken in float32 and not looked at: where squares overflow the length is infinite, and where they vanish it is 0.
    Neither hides a record from `left_to_rounding`: infinity is left to rounding, and so is infinity times 0, which is no number; and 0
    times a finite length stands for a product too small for rounding to matter.
    """
    tensor = wide(tensor)
    if tensor.dtype == torch.float64 or not on_cpu(tensor):
        return torch.linalg.vector_norm(tensor, dim=-1).amax(-1).double()
    # Where numbers of one vector do not lie together, torch's own norm takes ten times as long as this.
    beside = tensor.stride(-1) == 1 or tensor.shape[-1] == 1
    lengths = torch.linalg.vector_norm(tensor, dim=-1) if beside else tensor.square().sum(-1).sqrt()
    found = lengths.amax(-1).double()
    extreme = ~((found > _SMALL) & (found < _LARGE))  # near these, squares vanish or overflow
    if bool(extreme.any()):
        found[extreme] = torch.linalg.vector_norm(tensor[extreme], dim=-1, dtype=torch.float64).amax(-1)
    return found


def left_to_rounding(query: Tensor, key: Tensor, value: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Where rounding decides, see `unsteady`, of the greatest lengths of queries, keys and values; True where one is not finite.

    Args:
        query, key, value: float64, of one shape.
        scale: what scores are multiplied by, at most.
        dtype: of the tensors.
    """
    size = torch.maximum(torch.maximum(query * key, value * key), value * query) * scale
    return ~(_rounding(dtype) * size <= _STEADY)


def one_is_left_to_rounding(query: float, key: float, value: float, scale: float, dtype: torch.dtype) -> bool:
    """`left_to_rounding` of one record.

    Args:
        query, key, value: the greatest lengths.
        scale, dtype: as there.
    """
    return not _rounding(dtype) * (max(query * key, value * key, value * query) * scale) <= _STEADY


def _rounding(dtype: torch.dtype) -> float:
    """Half precision rounds ordinary records as coarsely as this asks of huge ones: they are held to what float32 is."""
    return _ROUNDINGS * min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as torch adds it to the scores: True forbids."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)
    return mask.to(dtype)


def _split(tensor: Tensor, heads: int) -> Tensor:
    batch, length, width = tensor.shape
    return tensor.view(batch, length, heads, width // heads).transpose(1, 2)


def _joined(tensor: Tensor) -> Tensor:
    batch, heads, length, width = tensor.shape
    return tensor.transpose(1, 2).reshape(batch, length, heads * width)
