"""Whether gradients were only made shorter, as torch.nn.utils.clip_grad_norm_ does it: what is done to noisy gradients costs no privacy."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.train.core.tensors import local

_ROUNDINGS = 4  # of the factor as it is found, and of the products with it, in eps


@torch.no_grad()
def only_shorter(now: Tensor, before: Tensor) -> bool:
    r"""Whether `now` is $c\,$`before` for one $0 < c \le 1$, up to the rounding of these products.

    The factor stands for a learning rate of this parameter's own, which nobody checks where every iterate is released. Anything else, such
    as a second gradient that was added, is no multiple. In a shard, of what this process holds.

    Args:
        now: a gradient, float32 or float64.
        before: as it was handed over.
    """
    one, other = local(now), local(before)
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    if not one.numel() or bool((one == other).all()):
        return True
    kind = torch.finfo(one.dtype)
    largest = other.abs().argmax()
    found, expected = one.reshape(-1).double(), other.reshape(-1).double()
    factor = float(found[largest] / expected[largest])
    if not 0 < factor <= 1 + _ROUNDINGS * kind.eps:
        return False
    scaled = expected * factor
    return bool(((found - scaled).abs() <= _ROUNDINGS * kind.eps * scaled.abs() + 2 * kind.tiny * kind.eps).all())
