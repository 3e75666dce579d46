"""Small tensors taken together: one operation on their copies in one vector, in the place of one on each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.train.core.tensors import on_cpu

# Numbers of a tensor that is copied for it, and of all that are in one vector. A GPU wants few, large operations.
_SMALL_ON_CPU, _SMALL = 2**14, 2**16
_TOGETHER = 2**22


def groups_of(tensors: Sequence[Tensor]) -> list[list[int]]:
    """The places of small tensors of one type and device, as many together as are not too much to copy; and of large ones, each alone."""
    groups: list[list[int]] = []
    begun: dict[object, list[int]] = {}
    sizes: dict[object, int] = defaultdict(int)
    for place, tensor in enumerate(tensors):
        kind, size = (tensor.dtype, tensor.device), tensor.numel()
        if size > (_SMALL_ON_CPU if on_cpu(tensor) else _SMALL):
            groups.append([place])
            continue
        if kind not in begun or sizes[kind] + size > _TOGETHER:
            begun[kind], sizes[kind] = [], 0
            groups.append(begun[kind])
        begun[kind].append(place)
        sizes[kind] += size
    return groups


@torch.no_grad()
def flat(tensors: Sequence[Tensor], group: Sequence[int]) -> list[Tensor]:
    """The tensors of a group, in one dimension each."""
    return [tensors[place].reshape(-1) for place in group]


@torch.no_grad()
def joined(tensors: Sequence[Tensor], group: Sequence[int]) -> Tensor:
    """The tensors of a group in one vector; one by itself as it is."""
    return tensors[group[0]].detach() if len(group) == 1 else torch.cat(flat(tensors, group))


@torch.no_grad()
def largest_size(tensors: Sequence[Tensor]) -> float:
    """The largest size of a number in tensors of one type, none of them empty; NaN where one is. A GPU is waited for once."""
    if not any(on_cpu(tensor) for tensor in tensors):
        sizes = torch._foreach_norm([tensor.detach() for tensor in tensors], torch.inf)  # pyright: ignore[reportPrivateImportUsage]
        return float(torch.stack([size.to(sizes[0].device) for size in sizes]).max())
    ends = [end for group in groups_of(tensors) for end in joined(tensors, group).aminmax()]
    return float(torch.stack([end.to(ends[0].device) for end in ends]).abs().max())
