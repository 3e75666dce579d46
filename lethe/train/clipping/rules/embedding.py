"""Gradients of embedding tables: sums over the rows a record looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.rules.parts import Part, PartedGradients
from lethe.train.clipping.rules.rule import Use, argument, wide
from lethe.train.clipping.rules.token_rows import TokenRows
from lethe.train.clipping.unfollowed import UnfollowedError


class _Lookup(NamedTuple):
    """Rows looked up: record and token of each, shape (N,), and the gradient in the row, shape (N, d)."""

    records: Tensor
    tokens: Tensor
    gradients: Tensor


class EmbeddingGradients(PartedGradients):
    """nn.Embedding, for indices of shape (B, ...).

    With `sparse=True` the sums are dense all the same: noise must reach the rows that no record looked up.

    Raises:
        InputError: `max_norm` or `scale_grad_by_freq` is set, or the indices have no dimension of records.
    """

    def make_parts(self) -> Mapping[str, Part]:
        """See PartedGradients."""
        module = cast("nn.Embedding", self.module)
        _refuse_mixing(module)
        return {"weight": _table([self._lookup(use, module) for use in self.uses], module, _records(self.uses[0]))}

    def _lookup(self, use: Use, module: nn.Embedding) -> _Lookup:
        indices = cast("Tensor", argument(use, 0, "input"))
        if indices.dim() == 0:
            raise UnfollowedError(
                "Embedding got indices without dimensions; it needs shape (B, ...), records first.", source="the layer's input"
            )
        tokens = indices.reshape(-1)
        found = _Lookup(_repeated(_records(use), indices[0].numel() if len(indices) else 0, tokens), tokens, _rows(use.grad_output, module))
        return _without_padding(found, module.padding_idx)


class EmbeddingBagGradients(PartedGradients):
    """nn.EmbeddingBag, one bag a record: indices of shape (B, N), or flat with offsets; modes sum, mean and max.

    Raises:
        InputError: `max_norm` or `scale_grad_by_freq` is set.
    """

    def make_parts(self) -> Mapping[str, Part]:
        """See PartedGradients."""
        module = cast("nn.EmbeddingBag", self.module)
        _refuse_mixing(module)
        return {"weight": _table([_bags(use, module) for use in self.uses], module, len(self.uses[0].grad_output))}


def _bags(use: Use, module: nn.EmbeddingBag) -> _Lookup:
    indices = cast("Tensor", argument(use, 0, "input"))
    offsets, factors = argument(use, 1, "offsets"), argument(use, 2, "per_sample_weights")
    gradients = wide(use.grad_output)
    batch, tokens = len(gradients), indices.reshape(-1)
    if indices.dim() == 2:
        records = _repeated(batch, indices.shape[1], tokens)
    else:
        places = torch.arange(tokens.numel(), device=tokens.device)
        records = torch.searchsorted(cast("Tensor", offsets).contiguous(), places, right=True) - 1
    # With include_last_offset the last offset may leave a tail that no bag holds.
    inside = records < batch
    if module.padding_idx is not None:
        inside &= tokens != module.padding_idx
    records, tokens = records[inside], tokens[inside]
    if module.mode == "max":
        return _largest(records, tokens, gradients, module)
    rows = gradients[records]
    if module.mode == "mean":
        rows = rows / torch.bincount(records, minlength=batch)[records, None]
    elif factors is not None:
        rows = rows * factors.reshape(-1)[inside, None].to(rows.dtype)
    return _Lookup(records, tokens, rows)


def _largest(records: Tensor, tokens: Tensor, gradients: Tensor, module: nn.EmbeddingBag) -> _Lookup:
    """Each entry of a bag's gradient goes to the row that was largest there: the first of the bag, as in the forward pass."""
    batch, features = gradients.shape
    places = records[:, None].expand(-1, features)
    values = module.weight.detach()[tokens]
    largest = values.new_full((batch, features), -torch.inf).scatter_reduce_(0, places, values, "amax")
    slots = torch.arange(len(tokens), device=tokens.device)[:, None].expand(-1, features)
    late = torch.where(values == largest[records], slots, len(tokens))
    first = slots.new_full((batch, features), len(tokens)).scatter_reduce_(0, places, late, "amin")
    return _Lookup(records, tokens, gradients[records] * (slots == first[records]))


def _table(lookups: list[_Lookup], module: nn.Embedding | nn.EmbeddingBag, batch: int) -> TokenRows:
    records, tokens, gradients = (torch.cat(columns) for columns in zip(*lookups, strict=True))
    return TokenRows(records, tokens.long(), gradients, batch=batch, table=module.num_embeddings)


def _without_padding(found: _Lookup, padding: int | None) -> _Lookup:
    if padding is None:
        return found
    kept = found.tokens != padding
    return _Lookup(*(column[kept] for column in found))


def _rows(gradient: Tensor, module: nn.Embedding) -> Tensor:
    return wide(gradient).reshape(-1, module.embedding_dim)


def _records(use: Use) -> int:
    return len(use.grad_output)


def _repeated(batch: int, times: int, like: Tensor) -> Tensor:
    return torch.arange(batch, device=like.device).repeat_interleave(times)


def _refuse_mixing(module: nn.Embedding | nn.EmbeddingBag) -> None:
    name = type(module).__name__
    if module.scale_grad_by_freq:
        raise InputError(
            f"{name} has scale_grad_by_freq = True: a record's gradient would depend on how often other records hold its tokens.",
            source="the layer's scale_grad_by_freq",
            remedy="build the layer with scale_grad_by_freq=False.",
        )
    if module.max_norm is not None:
        raise InputError(
            f"{name} has max_norm = {module.max_norm:g}: the forward pass rescales the rows that the records hold, without any noise.",
            source="the layer's max_norm",
            remedy="build the layer with max_norm=None, and bound the table after the noise if need be.",
        )
