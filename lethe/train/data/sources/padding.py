"""Rows that were padded to the longest of their batch."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

# Where shapes differ, sums within a record may be taken in another order.
_ROUNDINGS = 16


class Padding:
    """Compares a row with the same row padded otherwise, and remembers what each part is padded with."""

    def __init__(self) -> None:
        self._filled: dict[int, Tensor] = {}

    def agree(self, first: Tensor, second: Tensor, part: int) -> bool:
        """Whether two rows are equal, up to padding at one end of each dimension.

        Args:
            first, second: rows of two batches, of any shapes.
            part: of a batch, by its number.
        """
        if first.dtype != second.dtype or first.dim() != second.dim():
            return False
        if first.shape == second.shape:
            return same(first, second)
        common = tuple(min(sizes) for sizes in zip(first.shape, second.shape, strict=True))
        uneven = [axis for axis in range(first.dim()) if first.shape[axis] != second.shape[axis]]
        for ends in product((False, True), repeat=len(uneven)):
            at_end = {axis for axis, end in zip(uneven, ends, strict=True) if end}
            pairs = [_split(tensor, common, at_end) for tensor in (first, second)]
            rest = torch.cat([outside for _, outside in pairs])
            if _close(pairs[0][0], pairs[1][0]) and self._is_padding(rest, part):
                return True
        return False

    def _is_padding(self, rest: Tensor, part: int) -> bool:
        """Whether it is one number, the one that was seen before if any was."""
        if not len(rest):
            return True
        filler = self._filled.get(part, rest[0])
        if not same(rest, filler.expand_as(rest)):
            return False
        self._filled.setdefault(part, rest[0].clone())
        return True


def _split(row: Tensor, common: tuple[int, ...], at_end: set[int]) -> tuple[Tensor, Tensor]:
    """The common block, and the rest as a vector."""
    places = tuple(
        slice(size - length, size) if axis in at_end else slice(0, length)
        for axis, (size, length) in enumerate(zip(row.shape, common, strict=True))
    )
    outside = torch.ones(row.shape, dtype=torch.bool, device=row.device)
    outside[places] = False
    return row[places], row[outside]


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape hold the same numbers, NaN included."""
    equal = one == other
    return bool((equal | (one.isnan() & other.isnan()) if one.is_floating_point() or one.is_complex() else equal).all())


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point() or not one.numel():
        return same(one, other)
    allowed = _ROUNDINGS * torch.finfo(one.dtype).eps * torch.where(torch.isfinite(other), other, 0).abs().max()
    near = (one - other).abs() <= allowed
    return bool((near | (one == other) | (one.isnan() & other.isnan())).all())
