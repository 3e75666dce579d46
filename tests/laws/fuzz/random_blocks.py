"""Layers for random models: each keeps the shape that it is given, and the records apart."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

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


class Block(nn.Module):
    """Layers and parameters, by name, and how they make an output of an input."""

    def __init__(self, rule: Callable[[Any, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.rule = rule
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, given: Tensor) -> Tensor:
        return self.rule(self, given)


def applied(layer: nn.Module, function: str, *, residual: bool = False) -> nn.Module:
    """A layer, then a function; or the layer's output added to its input."""

    def rule(block: Any, given: Tensor) -> Tensor:
        made = ACTIVATIONS[function](block.layer(given))
        return given + made if residual else made

    return Block(rule, layer=layer)


def twice(width: int, how: str) -> nn.Module:
    """One layer applied two times, or its weight used by a second one, as it is or transposed."""
    first, second = nn.Linear(width, width), nn.Linear(width, width)
    if how == "tied":
        second.weight = first.weight

    def rule(block: Any, given: Tensor) -> Tensor:
        hidden = torch.tanh(block.first(given))
        if how == "transposed":
            return functional.linear(hidden, block.first.weight.T)
        return block.first(hidden) if how == "again" else block.second(hidden)

    return Block(rule, first=first, **({} if how in ("again", "transposed") else {"second": second}))


def bare(width: int, how: str) -> nn.Module:
    """Parameters that no layer holds."""

    def rule(block: Any, given: Tensor) -> Tensor:
        if how == "scale":
            return given * block.scale + (given @ block.matrix).tanh()
        if how == "einsum":
            return torch.einsum("b...i,ij->b...j", given, block.matrix * block.scale)
        if how == "number":
            return block.scale.exp().clamp(max=10) * (given @ block.matrix)
        return given @ (block.matrix @ block.matrix.T) + block.scale.square()

    scale = torch.randn(width) if how != "number" else torch.randn(())
    return Block(rule, matrix=nn.Parameter(torch.randn(width, width) / math.sqrt(width)), scale=nn.Parameter(scale))


def experts(width: int, hard: bool) -> nn.Module:
    """Two layers; each record chooses, softly or by its largest score."""

    def rule(block: Any, given: Tensor) -> Tensor:
        share = block.gate(given).softmax(-1)
        if hard:
            share = functional.one_hot(share.argmax(-1), 2).to(share) + share - share.detach()
        return share[..., :1] * block.first(given) + share[..., 1:] * block.second(given)

    return Block(rule, gate=nn.Linear(width, 2), first=nn.Linear(width, width), second=nn.Linear(width, width))


def attention(width: int, how: str) -> nn.Module:
    """Attention over a record's positions: torch's layer, torch's function, or written out."""
    if how == "layer":
        layer = nn.MultiheadAttention(width, 2 if width % 2 == 0 else 1, batch_first=True)
        return Block(lambda block, given: given + block.layer(given, given, given, need_weights=False)[0], layer=layer)

    def rule(block: Any, given: Tensor) -> Tensor:
        query, key, value = block.query(given), block.key(given), block.value(given)
        if how == "function":
            return given + functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        if how == "linear":  # without softmax
            return given + query @ (key.mT @ value) / given.shape[1]
        scores = torch.bmm(query, key.mT) / math.sqrt(given.shape[-1])
        return given + torch.bmm(scores.softmax(-1), value)

    return Block(rule, query=nn.Linear(width, width), key=nn.Linear(width, width), value=nn.Linear(width, width))


def cells(width: int, kind: type[nn.RNN] | type[nn.GRU] | type[nn.LSTM], records_first: bool, both: bool) -> nn.Module:
    """A recurrent layer, records or positions first, in one direction or both."""

    def rule(block: Any, given: Tensor) -> Tensor:
        made = block.cells(given if records_first else given.transpose(0, 1))[0]
        return block.back(made if records_first else made.transpose(0, 1))

    layer = kind(width, width, batch_first=records_first, bidirectional=both)
    return Block(rule, cells=layer, back=nn.Linear(2 * width, width) if both else nn.Identity())


def across(layer: nn.Module) -> nn.Module:
    """A layer for (B, channels, positions) among those for (B, positions, channels)."""
    return Block(lambda block, given: block.layer(given.mT).mT, layer=layer)


def placed(width: int) -> nn.Module:
    """A learned vector for each position is added."""
    return Block(lambda block, given: given + block.places(torch.arange(given.shape[1])), places=nn.Embedding(64, width))


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
    "linear": lambda width, generator: applied(nn.Linear(width, width, bias=_chance(generator)), _activation(generator)),
    "residual": lambda width, generator: applied(nn.Linear(width, width), _activation(generator), residual=True),
    "layer norm": lambda width, generator: nn.LayerNorm(width, elementwise_affine=_chance(generator, 0.8)),
    "rms norm": lambda width, generator: nn.RMSNorm(width),
    "twice": lambda width, generator: twice(width, _pick(generator, "again", "tied", "transposed", "own")),
    "bare": lambda width, generator: bare(width, _pick(generator, "scale", "einsum", "number", "square")),
    "experts": lambda width, generator: experts(width, _chance(generator)),
    "weight norm": lambda width, generator: parametrizations.weight_norm(nn.Linear(width, width)),
    "orthogonal": lambda width, generator: parametrizations.orthogonal(nn.Linear(width, width)),
    "prelu": lambda width, generator: applied(nn.PReLU(), _activation(generator)),
    "frozen": lambda width, generator: applied(nn.Linear(width, width).requires_grad_(False), _activation(generator)),
    "dropout": lambda width, generator: nn.Dropout(0.4).eval(),
}

# For (B, positions, width).
SEQUENCE: Mapping[str, Make] = {
    **LAST,
    "attention": lambda width, generator: attention(width, _pick(generator, "layer", "function", "written out", "linear")),
    "encoder": _encoder,
    "cells": lambda width, generator: cells(
        width, [nn.RNN, nn.GRU, nn.LSTM][int(generator.integers(3))], _chance(generator), _chance(generator)
    ),
    "convolution": lambda width, generator: across(nn.Conv1d(width, width, 3, padding=1)),
    "group norm": lambda width, generator: across(nn.GroupNorm(1, width)),
    "instance norm": lambda width, generator: across(nn.InstanceNorm1d(width, affine=True)),
    "places": lambda width, generator: placed(width),
}

# For (B, width, height, breadth).
IMAGE: Mapping[str, Make] = {
    "convolution": _convolution,
    "convolution and function": lambda width, generator: applied(
        _convolution(width, generator), _pick(generator, "relu", "tanh", "silu", "root"), residual=_chance(generator)
    ),
    "transposed": lambda width, generator: nn.ConvTranspose2d(width, width, 3, padding=1),
    "group norm": lambda width, generator: nn.GroupNorm(width if _chance(generator) else 1, width),
    "instance norm": lambda width, generator: nn.InstanceNorm2d(width, affine=True),
    "batch norm in eval": lambda width, generator: nn.BatchNorm2d(width).eval(),
    "pool": lambda width, generator: nn.AvgPool2d(3, stride=1, padding=1) if _chance(generator) else nn.MaxPool2d(3, 1, 1),
    "prelu": lambda width, generator: nn.PReLU(width),
}
