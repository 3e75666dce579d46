"""A layer and its rule: one factor for each feature."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.rule import Call


class Scale(nn.Module):
    """$s = w \\odot u$ for rows u."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, rows: Tensor) -> Tensor:
        return rows * self.weight


def scale_gradients(call: Call) -> Iterator[tuple[str, MaterialisedGradients]]:
    """$G_i = u_i \\odot g_i$."""
    yield "weight", MaterialisedGradients(call.given * call.gradient)
