"""Projection on a Euclidean ball, rounded inward: what must have norm at most R has it, rounding errors included.

Norms are added up pairwise, so that they are known to some thirty roundings, however many numbers they are of.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.calculus.rounding import pairwise_sum
from lethe.errors import InputError

_MOST_LOST = 0.5  # of the radius


def inward(radius: float, dimension: int, dtype: torch.dtype) -> float:
    r"""A radius so far below `radius` that a vector scaled to it, in `dtype`, has true norm at most `radius`.

    $$r\,\big(1 - (d + 16)\,\mathrm{eps}\big)$$

    Computing the norm of $d$ numbers costs at most $(d+2)/2$ roundings, scaling a few more.

    Args:
        radius: r > 0.
        dimension: d, the numbers in the vector.
        dtype: the floating-point type the result is stored in.
    Raises:
        InputError: the type is too coarse for so many numbers.
    """
    if (dimension + 16) * torch.finfo(dtype).eps > _MOST_LOST:
        raise InputError(f"a vector of {dimension} numbers: its norm in {dtype} is too uncertain to bound.", remedy="use float64.")
    return radius * (1.0 - (dimension + 16) * torch.finfo(dtype).eps)


@torch.no_grad()
def joint_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of the concatenation in float64, on the first tensor's device, which is not waited for; one of many numbers at once.

    Args:
        tensors: together at least one number.
    """
    devices = dict.fromkeys(tensor.device for tensor in tensors)
    sums = [_sum_of_squares([tensor for tensor in tensors if tensor.device == device]).to(tensors[0].device) for device in devices]
    return pairwise_sum(torch.stack(sums)).sqrt()


def _sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    squares = torch.cat([tensor.reshape(-1).double() for tensor in tensors]).square_()
    pairwise_sum(squares.numpy() if squares.is_cpu else squares)  # NumPy takes a fifth of the time for few numbers
    return squares[0]


def onto_ball(rows: Tensor, radius: float, *, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    r"""Each row $u$ scaled to $u\min(1, r/\|u\|)$, rounded inward, so that no row's true norm exceeds `radius`.

    Args:
        rows: shape (n, d), d >= 1, finite.
        radius: r > 0.
        dtype: the type the result will be stored in, if coarser than that of `rows`.
    Returns:
        The projected rows, and a mask of shape (n,): which rows lay outside the ball by more than rounding.
    """
    # Through the largest entry, so that squares of 1e200 do not overflow and squares of 1e-200 do not vanish.
    largest = rows.abs().amax(dim=1, keepdim=True)
    unit = rows / torch.where(largest > 0, largest, 1.0)
    length = pairwise_sum(unit.square()).sqrt().unsqueeze(1)
    norm = largest * length
    limit = inward(radius, rows.shape[1], dtype or rows.dtype)
    outside = norm.squeeze(1) > radius * (2.0 - limit / radius)
    return torch.where(norm <= limit, rows, unit * (limit / length)), outside
