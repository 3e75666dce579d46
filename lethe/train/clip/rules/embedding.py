"""Tables of which each record looks some rows up: nn.Embedding and nn.EmbeddingBag."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.train.clip.parts.token_rows import TokenRows
from lethe.train.clip.rules.rule import Call, Parts, wide


def embedding(call: Call) -> Parts:
    """The gradient of each row is the sum of those of its uses; that of the padding row is 0, as torch has it."""
    module, tokens = call.module, call.args[0] if call.args else call.kwargs["input"]
    tokens = tokens.flatten(1) if tokens.dim() > 1 else tokens[:, None]
    gradient = call.gradient.reshape(*tokens.shape, module.embedding_dim)
    if module.padding_idx is not None:
        gradient = gradient.masked_fill((tokens == module.padding_idx)[..., None], 0)
    yield "weight", TokenRows(tokens.long(), gradient, module.num_embeddings)


def embedding_bag(call: Call) -> Parts:
    """One bag a row: indices of shape (B, N), or in a line with offsets; sums, means and maxima."""
    module, names = call.module, ("input", "offsets", "per_sample_weights")
    given = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
    tokens, factors, gradient = given["input"], given.get("per_sample_weights"), call.gradient
    counted = torch.ones_like(tokens, dtype=torch.bool)
    if tokens.dim() == 1:
        places, counted = _places(given["offsets"], len(tokens), len(gradient))
        tokens, factors = tokens[places], None if factors is None else factors[places]
    if module.padding_idx is not None:
        counted = counted & (tokens != module.padding_idx)
    shares = counted.to(gradient.dtype)
    if module.mode == "mean":
        shares = shares / shares.sum(1, keepdim=True).clamp(min=1)
    elif factors is not None:
        shares = shares * wide(factors)
    each = gradient[:, None] * shares[..., None]
    if module.mode == "max" and tokens.shape[1]:  # the first of the largest
        values = wide(module.weight.detach())[tokens].masked_fill(~counted[..., None], -torch.inf)
        first = torch.arange(tokens.shape[1], device=tokens.device)[:, None] == values.argmax(1, keepdim=True)
        each = each * first
    yield "weight", TokenRows(tokens.long(), each, module.num_embeddings)


def _places(offsets: Tensor, tokens: int, bags: int) -> tuple[Tensor, Tensor]:
    """Where each bag's indices are, (B, most), and which of these places are used."""
    starts = offsets[:bags]
    ends = torch.cat([offsets[1 : bags + 1], offsets.new_full((1,), tokens)])[:bags]
    lengths = ends - starts
    ahead = torch.arange(int(lengths.max()) if bags else 0, device=offsets.device)
    used = ahead < lengths[:, None]
    return (starts[:, None] + ahead).masked_fill(~used, 0), used
