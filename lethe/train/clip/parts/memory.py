"""Which of a batch's gradients are formed, and how much of them may be kept between measuring and adding."""

from __future__ import annotations

from torch import Tensor

from lethe.train.core.tensors import has_fast_doubles

# Multiplications of products of positions over those of forming: from the first on gradients are formed if they can be kept, from the
# second on in any case. Products are taken in float64, which a GPU may have fast.
_CPU, _FAST_GPU, _SLOW_GPU = (0.1, 0.5), (2.0, 2.0), (1 / 32, 1 / 32)


class Memory:
    """What is left of a limit of bytes; 0: nothing is kept."""

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit

    def take(self, size: int) -> bool:
        """Whether so many bytes more may be kept; they then are."""
        if size > self.left:
            return False
        self.left -= size
        return True

    def take_for(self, formed: int, factors: int) -> bool:
        """The same of gradients formed of factors that are then let go: the backward pass has let go of as much again by then."""
        return self.limit > 0 and self.take(formed - 2 * factors)


def forming(positions: int, width: int, outputs: int, like: Tensor) -> tuple[bool, bool]:
    """Whether forming a record's gradient is faster than products of positions: if it can be kept, and in any case.

    Args:
        positions, width, outputs: T, d and p.
        like: a tensor on the device, of any shape.
    """
    share = positions * (width + outputs) / max(1, width * outputs)
    if_kept, always = _CPU if like.is_cpu else _FAST_GPU if has_fast_doubles(like.device) else _SLOW_GPU
    return share >= if_kept, share >= always
