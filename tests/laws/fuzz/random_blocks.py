"""Layers for random models: each keeps the shape that it is given, and the records apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

Pointwise = Callable[[Tensor], Tensor]
Make = Callable[[int, np.random.Generator], nn.Module]

ACTIVATIONS: Mapping[str, Pointwise] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "sine": torch.sin,
    "square": torch.square,
    "softplus": functional.softplus,
    "root": lambda given: given.abs().sqrt(),
    "cut exponential": lambda given: given.clamp(max=20).exp(),
    "hard step": lambda given: torch.where(given > 0, given, 0.1 * given),
    "direction": lambda given: functional.normalize(given, dim=-1),
    "softmax": lambda given: given.softmax(-1),
}


PADDING: tuple[Literal["zeros", "circular", "replicate"], ...] = ("zeros", "circular", "replicate")


class Applied(nn.Module):
    """A layer, then a function; or the layer's output added to its input."""

    def __init__(self, layer: nn.Module, function: str, *, residual: bool = False) -> None:
        super().__init__()
        self.layer, self.function, self.residual = layer, function, residual

    def forward(self, given: Tensor) -> Tensor:
        made = ACTIVATIONS[self.function](self.layer(given))
        return given + made if self.residual else made


class Twice(nn.Module):
    """One layer applied two times, or its weight used by a second one, as it is or transposed."""

    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.first, self.how = nn.Linear(width, width), how
        self.second = nn.Linear(width, width)
        if how == "tied":
            self.second.weight = self.first.weight
        elif how != "own":
            del self.second

    def forward(self, given: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(given))
        if self.how == "again":
            return self.first(hidden)
        if self.how == "transposed":
            return functional.linear(hidden, self.first.weight.T)
        return self.second(hidden)


class Bare(nn.Module):
    """Parameters that no layer holds."""

    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.how = how
        self.matrix = nn.Parameter(torch.randn(width, width) / math.sqrt(width))
        self.scale = nn.Parameter(torch.randn(width) if how != "number" else torch.randn(()))

    def forward(self, given: Tensor) -> Tensor:
        if self.how == "scale":
            return given * self.scale + (given @ self.matrix).tanh()
        if self.how == "einsum":
            return torch.einsum("b...i,ij->b...j", given, self.matrix * self.scale)
        if self.how == "number":
            return self.scale.exp().clamp(max=10) * (given @ self.matrix)
        return given @ (self.matrix @ self.matrix.T) + self.scale.square()


class Experts(nn.Module):
    """Two layers; each record chooses, softly or by its largest score."""

    def __init__(self, width: int, hard: bool) -> None:
        super().__init__()
        self.gate, self.first, self.second, self.hard = nn.Linear(width, 2), nn.Linear(width, width), nn.Linear(width, width), hard

    def forward(self, given: Tensor) -> Tensor:
        share = self.gate(given).softmax(-1)
        if self.hard:
            share = functional.one_hot(share.argmax(-1), 2).to(share) + share - share.detach()
        return share[..., :1] * self.first(given) + share[..., 1:] * self.second(given)


class Attention(nn.Module):
    """Attention over a record's positions: torch's layer, torch's function, or written out."""

    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.how = how
        if how == "layer":
            self.attention = nn.MultiheadAttention(width, 2 if width % 2 == 0 else 1, batch_first=True)
        else:
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, given: Tensor) -> Tensor:
        if self.how == "layer":
            return given + self.attention(given, given, given, need_weights=False)[0]
        query, key, value = self.query(given), self.key(given), self.value(given)
        if self.how == "function":
            return given + functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        if self.how == "linear":  # without softmax
            return given + query @ (key.mT @ value) / given.shape[1]
        scores = torch.bmm(query, key.mT) / math.sqrt(given.shape[-1])
        return given + torch.bmm(scores.softmax(-1), value)


class Cells(nn.Module):
    """A recurrent layer, records or positions first, in one direction or both."""

    def __init__(self, width: int, kind: type[nn.RNN] | type[nn.GRU] | type[nn.LSTM], records_first: bool, both: bool) -> None:
        super().__init__()
        self.cells, self.first = kind(width, width, batch_first=records_first, bidirectional=both), records_first
        self.back = nn.Linear(2 * width, width) if both else nn.Identity()

    def forward(self, given: Tensor) -> Tensor:
        laid = given if self.first else given.transpose(0, 1)
        made = self.cells(laid)[0]
        return self.back(made if self.first else made.transpose(0, 1))


class Across(nn.Module):
    """A layer for (B, channels, positions) among those for (B, positions, channels)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given.mT).mT


class Placed(nn.Module):
    """A learned vector for each position is added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.places = nn.Embedding(64, width)

    def forward(self, given: Tensor) -> Tensor:
        return given + self.places(torch.arange(given.shape[1]))


def _activation(generator: np.random.Generator) -> str:
    return str(generator.choice(list(ACTIVATIONS)))


def _chance(generator: np.random.Generator, odds: float = 0.5) -> bool:
    return bool(generator.random() < odds)


def _pick(generator: np.random.Generator, *choices: str) -> str:
    return str(generator.choice(choices))


def _encoder(width: int, generator: np.random.Generator) -> nn.Module:
    heads = 2 if width % 2 == 0 else 1
    return nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=_chance(generator))


def _convolution(width: int, generator: np.random.Generator) -> nn.Module:
    size, dilation = int(generator.choice([1, 3])), int(generator.choice([1, 2]))
    mode = PADDING[int(generator.integers(len(PADDING)))]
    groups = width if _chance(generator, 0.3) else 1
    padding = dilation * (size - 1) // 2
    return nn.Conv2d(width, width, size, padding=padding, dilation=dilation, groups=groups, padding_mode=mode, bias=_chance(generator))


# Layers of the last dimension, for records of any shape (B, ..., width).
LAST: Mapping[str, Make] = {
    "linear": lambda width, generator: Applied(nn.Linear(width, width, bias=_chance(generator)), _activation(generator)),
    "residual": lambda width, generator: Applied(nn.Linear(width, width), _activation(generator), residual=True),
    "layer norm": lambda width, generator: nn.LayerNorm(width, elementwise_affine=_chance(generator, 0.8)),
    "rms norm": lambda width, generator: nn.RMSNorm(width),
    "twice": lambda width, generator: Twice(width, _pick(generator, "again", "tied", "transposed", "own")),
    "bare": lambda width, generator: Bare(width, _pick(generator, "scale", "einsum", "number", "square")),
    "experts": lambda width, generator: Experts(width, _chance(generator)),
    "weight norm": lambda width, generator: parametrizations.weight_norm(nn.Linear(width, width)),
    "orthogonal": lambda width, generator: parametrizations.orthogonal(nn.Linear(width, width)),
    "prelu": lambda width, generator: Applied(nn.PReLU(), _activation(generator)),
    "frozen": lambda width, generator: Applied(nn.Linear(width, width).requires_grad_(False), _activation(generator)),
    "dropout": lambda width, generator: nn.Dropout(0.4).eval(),
}

# For (B, positions, width).
SEQUENCE: Mapping[str, Make] = {
    **LAST,
    "attention": lambda width, generator: Attention(width, _pick(generator, "layer", "function", "written out", "linear")),
    "encoder": _encoder,
    "cells": lambda width, generator: Cells(
        width, [nn.RNN, nn.GRU, nn.LSTM][int(generator.integers(3))], _chance(generator), _chance(generator)
    ),
    "convolution": lambda width, generator: Across(nn.Conv1d(width, width, 3, padding=1)),
    "group norm": lambda width, generator: Across(nn.GroupNorm(1, width)),
    "instance norm": lambda width, generator: Across(nn.InstanceNorm1d(width, affine=True)),
    "places": lambda width, generator: Placed(width),
}

# For (B, width, height, breadth).
IMAGE: Mapping[str, Make] = {
    "convolution": _convolution,
    "convolution and function": lambda width, generator: Applied(
        _convolution(width, generator), _pick(generator, "relu", "tanh", "silu", "root"), residual=_chance(generator)
    ),
    "transposed": lambda width, generator: nn.ConvTranspose2d(width, width, 3, padding=1),
    "group norm": lambda width, generator: nn.GroupNorm(width if _chance(generator) else 1, width),
    "instance norm": lambda width, generator: nn.InstanceNorm2d(width, affine=True),
    "batch norm in eval": lambda width, generator: nn.BatchNorm2d(width).eval(),
    "pool": lambda width, generator: nn.AvgPool2d(3, stride=1, padding=1) if _chance(generator) else nn.MaxPool2d(3, 1, 1),
    "prelu": lambda width, generator: nn.PReLU(width),
}
