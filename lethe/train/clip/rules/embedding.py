"""Tables of which each record looks some rows up: nn.Embedding."""

from __future__ import annotations

from lethe.train.clip.parts import TokenRows
from lethe.train.clip.rules.rule import Call, Parts


def embedding(call: Call) -> Parts:
    """The gradient of each row is the sum of those of its uses; that of the padding row is 0, as torch has it."""
    module, tokens = call.module, call.args[0] if call.args else call.kwargs["input"]
    tokens = tokens.flatten(1) if tokens.dim() > 1 else tokens[:, None]
    gradient = call.gradient.reshape(*tokens.shape, module.embedding_dim)
    if module.padding_idx is not None:
        gradient = gradient.masked_fill((tokens == module.padding_idx)[..., None], 0)
    yield "weight", TokenRows(tokens.long(), gradient, module.num_embeddings)
