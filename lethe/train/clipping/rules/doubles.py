"""How fast a device computes in float64."""

from __future__ import annotations

from functools import cache

import torch

# Compute capabilities of NVIDIA's chips that multiply numbers of float64 about as fast as those of float32: P100, V100, A100, H100, B200.
# Others, made for pictures, take 32 or 64 times as long.
_FAST = frozenset(((6, 0), (7, 0), (8, 0), (9, 0), (10, 0)))


@cache
def has_fast_doubles(device: torch.device) -> bool:
    """Whether products of float64 numbers take about as long as those of float32 numbers there, or up to twice as long.

    Args:
        device: a CPU, or a GPU.
    """
    return device.type != "cuda" or torch.version.hip is not None or torch.cuda.get_device_capability(device) in _FAST
