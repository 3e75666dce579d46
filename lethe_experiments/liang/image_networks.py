"""Networks that tell pictures apart: a small convolutional one, and a residual one with group normalisation."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

Network = Literal["small", "resnet18"]

_GROUPS = 32
_STAGES = (64, 128, 256, 512)


def image_network(name: Network, shape: tuple[int, int, int], classes: int, *, seed: int) -> nn.Module:
    """A network with PyTorch's default start, drawn from `seed` and from nothing else.

    Args:
        name: "small": two convolutions and two dense layers, with tanh; "resnet18": He et al. 2016, arXiv:1512.03385, with group
            normalisation for batch normalisation, which would mix records, and its first layers as for pictures of 32 x 32.
        shape: channels, height and width of a picture.
        classes: outputs.
        seed: of the start.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _small(shape, classes) if name == "small" else _residual(shape[0], classes)


class Residual(nn.Module):
    """Two 3 x 3 convolutions, normalised, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.GroupNorm(_GROUPS, outputs))
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Shape (B, inputs, h, w) to (B, outputs, h / stride, w / stride)."""
        return (self.path(pictures) + self.shortcut(pictures)).relu()


def _small(shape: tuple[int, int, int], classes: int) -> nn.Module:
    channels, height, width = shape
    kernel, stride = (5, 2) if min(height, width) >= 16 else (3, 1)
    left = [math.ceil(side / stride**2) for side in (height, width)]  # of the sides, after two convolutions with padding
    return nn.Sequential(
        nn.Conv2d(channels, 8, kernel, stride=stride, padding=kernel // 2),
        nn.Tanh(),
        nn.Conv2d(8, 16, kernel, stride=stride, padding=kernel // 2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16 * left[0] * left[1], 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    )


def _residual(channels: int, classes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(channels, _STAGES[0], 3, padding=1, bias=False), nn.GroupNorm(_GROUPS, _STAGES[0]), nn.ReLU()]
    inputs = _STAGES[0]
    for place, outputs in enumerate(_STAGES):
        layers += [Residual(inputs, outputs, 1 if place == 0 else 2), Residual(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
