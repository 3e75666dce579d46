"""The windows that a convolution's kernel sees, as rows of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """How a kernel moves: one number for each dimension of space.

    Args:
        kernel: its lengths.
        stride: steps between outputs.
        padding: zeros on either side of the input.
        dilation: steps between the kernel's own taps.
        groups: blocks of channels that do not meet.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def windows(inputs: Tensor, geometry: Geometry, places: tuple[int, ...]) -> Tensor:
    r"""$x_i[c, \mathrm{stride}\cdot t + \mathrm{dilation}\cdot k - \mathrm{padding}]$ in row t and column (k, c).

    Channels come last, so that what is copied lies together: a kernel's row of taps times all channels, where dilation is 1.

    Args:
        inputs: x, shape (B, C, *space).
        geometry: of the kernel; its groups are not told apart.
        places: how many outputs there are in each dimension, no more than fit.
    Returns:
        Shape (B, T, taps * C), T the product of `places`; it may share the memory of `inputs`.
    """
    if not any(geometry.padding) and prod(geometry.kernel) == 1:
        chosen = tuple(slice(0, (count - 1) * step + 1, step) for count, step in zip(places, geometry.stride, strict=True))
        return inputs[..., *chosen].flatten(2).mT
    ahead = _channels_last(inputs, geometry.padding)
    first, *across, last = ahead.stride()
    moves = (step * width for step, width in zip(geometry.stride, across, strict=True))
    taps = (step * width for step, width in zip(geometry.dilation, across, strict=True))
    shape = (len(ahead), *places, *geometry.kernel, ahead.shape[-1])
    return ahead.as_strided(shape, (first, *moves, *taps, last)).reshape(len(ahead), prod(places), prod(shape[1 + len(places) :]))


def _channels_last(inputs: Tensor, padding: tuple[int, ...]) -> Tensor:
    moved = inputs.movedim(1, -1)
    if not any(padding):
        return moved.contiguous()
    wide = (size + 2 * zeros for size, zeros in zip(inputs.shape[2:], padding, strict=True))
    padded = inputs.new_zeros(len(inputs), *wide, inputs.shape[1])
    middle = tuple(slice(zeros, zeros + size) for size, zeros in zip(inputs.shape[2:], padding, strict=True))
    padded[:, *middle].copy_(moved)
    return padded
