"""Whether tensors are the same, bit by bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.train.core.tensors import local, on_cpu

WHOLE_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of a number -> the whole numbers that its bits can be read as."""

_SMALL = 2**16  # numbers; on a GPU, tensors of no more are compared as one


@torch.no_grad()
def same_bits(now: Sequence[Tensor], before: Sequence[Tensor]) -> list[bool]:
    """Whether two lists of tensors agree in shape, type, device and every bit.

    Args:
        now: any tensors.
        before: as many, strided.
    """
    answers = [False] * len(now)
    elsewhere: dict[int, tuple[Tensor, Tensor]] = {}
    for place, (one, other) in enumerate(zip(now, before, strict=True)):
        alike = (one.shape, one.dtype, one.device, one.layout) == (other.shape, other.dtype, other.device, other.layout)
        if not alike or one.is_meta:
            continue
        bits, expected = _bits(local(one)), _bits(local(other))
        if on_cpu(bits):  # NumPy compares several times as fast as torch.equal does
            answers[place] = bool((bits.numpy() == expected.numpy()).all())
        else:
            elsewhere[place] = bits.reshape(-1), expected.reshape(-1)
    for place, same in zip(elsewhere, _same(list(elsewhere.values())), strict=True):
        answers[place] = same
    return answers


def _same(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[bool]:
    """Whether each of some pairs of one dimension agrees: a GPU is waited for once, and again only where small ones do not."""
    small: dict[object, list[int]] = defaultdict(list)
    for place, (one, _) in enumerate(pairs):
        small[(one.device, one.dtype) if one.numel() <= _SMALL else place].append(place)
    groups = list(small.values())
    told = _equal([(_joined([pairs[place][0] for place in group]), _joined([pairs[place][1] for place in group])) for group in groups])
    apart = [place for group, same in zip(groups, told, strict=True) if not same for place in group]
    again = dict(zip(apart, _equal([pairs[place] for place in apart]), strict=True))
    return [again.get(place, True) for place in range(len(pairs))]


def _joined(flat: list[Tensor]) -> Tensor:
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _equal(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[bool]:
    differ = [(one != other).any() for one, other in pairs]
    return [not one for one in torch.stack([one.to(differ[0].device) for one in differ]).tolist()] if differ else []


def _bits(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    return real.view(WHOLE_NUMBERS[real.element_size()])
