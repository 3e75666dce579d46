"""Models of every kind of layer, for records of huge numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attends(nn.Module):
    """torch's own attention."""

    def __init__(self, choice: random.Random, width: int) -> None:
        super().__init__()
        first, cross = choice.random() < 0.7, choice.random() < 0.4
        extra: dict[str, Any] = {"add_bias_kv": choice.random() < 0.3, "add_zero_attn": choice.random() < 0.3}
        kinds: dict[str, Any] = {"kdim": width, "vdim": width} if cross else {}
        self.layer, self.first = nn.MultiheadAttention(width, choice.choice([1, 2]), batch_first=first, **extra, **kinds), first
        self.keys = choice.choice([1, 100]) if cross else 100
        self.weights, self.mask = choice.random() < 0.5, choice.random() < 0.3

    def forward(self, given: Tensor) -> Tensor:
        query = given if self.first else given.transpose(0, 1)
        key = given[:, : self.keys] if self.first else given[:, : self.keys].transpose(0, 1)
        key = query if key.shape == query.shape else key
        mask = torch.zeros(given.shape[1], key.shape[1 if self.first else 0], dtype=torch.bool) if self.mask else None
        output = self.layer(query, key, key, need_weights=self.weights, attn_mask=mask)[0]
        return output if self.first else output.transpose(0, 1)


class OwnAttention(nn.Module):
    """Attention of a model's own making."""

    def __init__(self, choice: random.Random, width: int) -> None:
        super().__init__()
        self.all, self.heads = nn.Linear(width, 3 * width), choice.choice([1, 2])
        self.kind = choice.choice(["torch's", "causal", "softmax"])

    def forward(self, given: Tensor) -> Tensor:
        shape = (*given.shape[:2], self.heads, -1)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in self.all(given).chunk(3, dim=-1))
        if self.kind == "softmax":
            context = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ v
        else:
            context = functional.scaled_dot_product_attention(q, k, v, is_causal=self.kind == "causal")
        return context.transpose(1, 2).reshape(given.shape)


class Recurs(nn.Module):
    """A recurrent layer."""

    def __init__(self, choice: random.Random, width: int) -> None:
        super().__init__()
        self.layer = choice.choice([nn.LSTM, nn.GRU, nn.RNN])(width, width, batch_first=True)

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given)[0]


class AlongSpace(nn.Module):
    """A layer with channels first."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given.mT).mT


class Looks(nn.Module):
    """Scales by the rows of a table, and scores against them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(width, width)
        self.scores = nn.Linear(width, width, bias=False)
        self.scores.weight = self.table.weight

    def forward(self, given: Tensor) -> Tensor:
        return self.scores(given * self.table(torch.arange(given.shape[1]).expand(len(given), -1) % given.shape[2]))


class Bare(nn.Module):
    """Parameters that no layer holds."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.matrix, self.scale = nn.Parameter(torch.randn(width, width)), nn.Parameter(torch.ones(width))

    def forward(self, given: Tensor) -> Tensor:
        return torch.einsum("btd,de->bte", given, self.matrix) * self.scale


KINDS: dict[str, Callable[[random.Random, int], nn.Module]] = {
    "linear": lambda choice, width: nn.Linear(width, width),
    "convolution": lambda choice, width: AlongSpace(nn.Conv1d(width, width, choice.choice([1, 3]), padding="same")),
    "transposed": lambda choice, width: AlongSpace(nn.ConvTranspose1d(width, width, 3, padding=1)),
    "attention": Attends,
    "own attention": OwnAttention,
    "recurrent": Recurs,
    "embedding": lambda choice, width: Looks(width),
    "layer norm": lambda choice, width: choice.choice([nn.LayerNorm, nn.RMSNorm])(width),
    "group norm": lambda choice, width: AlongSpace(choice.choice([nn.GroupNorm(2, width), nn.InstanceNorm1d(width, affine=True)])),
    "bare": lambda choice, width: Bare(width),
    "encoder": lambda choice, width: nn.TransformerEncoderLayer(
        width, 2, width, dropout=0.0, batch_first=True, norm_first=choice.random() < 0.5
    ),
}

LOSSES: list[Callable[[Tensor], Tensor]] = [
    lambda outputs: functional.cross_entropy(outputs, torch.ones(len(outputs), dtype=torch.long), reduction="none"),
    lambda outputs: outputs.square().sum(1),
    lambda outputs: outputs.sum(1),
]


class Whole(nn.Module):
    """Two layers and a head."""

    def __init__(self, kind: str, choice: random.Random, width: int) -> None:
        super().__init__()
        made = [kind, choice.choice(["linear", kind])]
        self.layers = nn.ModuleList([KINDS[name](choice, width) for name in made])
        self.head = nn.Linear(width, 3)

    def forward(self, given: Tensor) -> Tensor:
        for layer in self.layers:
            given = layer(given)
        return self.head(given).mean(1)
