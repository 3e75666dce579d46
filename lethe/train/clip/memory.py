"""How much of a batch's gradients may be kept between measuring and adding."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Bytes by default: what a step without privacy holds besides is usually far more.
_CPU, _GPU = 2**23, 2**26


@dataclass(slots=True)
class Memory:
    """What is left of a limit.

    Args:
        left: bytes.
    """

    left: int

    def take(self, size: int) -> bool:
        """Whether so many bytes more may be kept; they then are."""
        if size > self.left:
            return False
        self.left -= size
        return True


def limit_of(asked: int | None, device: torch.device) -> int:
    """Bytes, by default 8 MiB, on a GPU 64."""
    return asked if asked is not None else _CPU if device.type == "cpu" else _GPU
