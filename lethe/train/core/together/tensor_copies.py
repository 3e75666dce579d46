"""Copies of many tensors that are compared with them again and again: small ones lie in one vector, so that few operations do it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lethe.train.core.tensors import same_bits
from lethe.train.core.together.small_tensors import flat, groups_of, joined


class TensorCopies:
    """Copies of tensors, compared with others bit for bit.

    Args:
        tensors: strided ones; only their numbers are held.
    """

    __slots__ = ("_groups", "_held", "_kinds")

    @torch.no_grad()
    def __init__(self, tensors: Iterable[Tensor]) -> None:
        given = list(tensors)
        self._kinds = [_kind(tensor) for tensor in given]
        self._groups = groups_of(given)
        self._held = [joined(given, group) if len(group) > 1 else torch.empty_like(given[group[0]]) for group in self._groups]
        self._copy_single(given, range(len(self._groups)))

    @torch.no_grad()
    def keep(self, tensors: Sequence[Tensor]) -> None:
        """Copy them anew, where they are still of the shape, type and device that they were; what is not differs from then on."""
        alike = self._alike(tensors)
        for group, held in ((self._groups[number], self._held[number]) for number in alike):
            if len(group) > 1:
                torch.cat(flat(tensors, group), out=held)
        self._copy_single(tensors, alike)

    @torch.no_grad()
    def differing(self, tensors: Sequence[Tensor]) -> list[int]:
        """The places of those that differ from the copies in shape, type, device or a bit."""
        alike = self._alike(tensors)
        now = [joined(tensors, self._groups[number]) for number in alike]
        told = same_bits(now, [self._held[number] for number in alike])
        same = {number for number, agrees in zip(alike, told, strict=True) if agrees}
        apart = [place for number, group in enumerate(self._groups) if number not in same for place in group]
        copies = self.each() if apart else []
        again = same_bits([tensors[place] for place in apart], [copies[place] for place in apart])
        return sorted(place for place, agrees in zip(apart, again, strict=True) if not agrees)

    def each(self) -> list[Tensor]:
        """The copies: parts of what is held, so that a change of them changes it."""
        found: dict[int, Tensor] = {}
        for group, held in zip(self._groups, self._held, strict=True):
            shapes = [self._kinds[place][0] for place in group]
            parts = held.split([shape.numel() for shape in shapes]) if len(group) > 1 else (held,)
            found |= {place: part.view(shape) for place, part, shape in zip(group, parts, shapes, strict=True)}
        return [found[place] for place in range(len(self._kinds))]

    def _alike(self, tensors: Sequence[Tensor]) -> list[int]:
        """The numbers of the groups whose tensors are of the shape, type and device that they were."""
        same = [_kind(tensor) == kind for tensor, kind in zip(tensors, self._kinds, strict=True)]
        return [number for number, group in enumerate(self._groups) if all(same[place] for place in group)]

    def _copy_single(self, tensors: Sequence[Tensor], numbers: Sequence[int]) -> None:
        """Copy what is no part of a longer vector, all in one operation."""
        single = [(self._held[number], self._groups[number][0]) for number in numbers if len(self._groups[number]) == 1]
        if single:
            torch._foreach_copy_([held for held, _ in single], [tensors[place].detach() for _, place in single])  # pyright: ignore[reportPrivateImportUsage]


_Kind = tuple[torch.Size, torch.dtype, torch.device, torch.layout]


def _kind(tensor: Tensor) -> _Kind:
    return tensor.shape, tensor.dtype, tensor.device, tensor.layout
