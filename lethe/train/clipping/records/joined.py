"""Small parameters whose records' gradients are held as they are: measured and added as if they were one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from lethe.train.clipping.rules.parts import Part, Rows
from lethe.train.core.tensors import on_cpu

# Numbers of all records that are copied to lie beside others: a copy of more takes longer than what it saves. And that lie beside each
# other at most, on any device.
_SMALL, _SMALL_ON_GPU, _MOST = 2**14, 2**20, 2**23

Owned = tuple[list[nn.Parameter], Part]
"""The gradients of one parameter, or of several beside each other, flattened, in their order."""


def joined(parts: dict[nn.Parameter, Part], chosen: Sequence[nn.Parameter]) -> list[Owned]:
    """The parts of some parameters, the small `Rows` among them joined.

    Args:
        parts: of all parameters; those that are chosen are taken out.
        chosen: the parameters.
    """
    found: list[Owned] = []
    waiting: dict[Hashable, list[tuple[nn.Parameter, Tensor]]] = {}
    held: dict[Hashable, int] = {}
    for parameter in chosen:
        part = parts.pop(parameter)
        if type(part) is not Rows or part.gradients.numel() > (_SMALL if on_cpu(part.gradients) else _SMALL_ON_GPU):
            found.append(([parameter], part))
            continue
        rows = part.gradients.flatten(1)
        kind = rows.shape[0], rows.dtype, rows.device
        if held.get(kind, 0) + rows.numel() > _MOST:
            found.append(_beside(waiting.pop(kind)))
            held[kind] = 0
        waiting.setdefault(kind, []).append((parameter, rows))
        held[kind] = held.get(kind, 0) + rows.numel()
    return found + [_beside(rows) for rows in waiting.values()]


def _beside(owned: Sequence[tuple[nn.Parameter, Tensor]]) -> Owned:
    return [parameter for parameter, _ in owned], Rows(owned[0][1] if len(owned) == 1 else torch.cat([rows for _, rows in owned], dim=1))


def apart(parameters: Sequence[nn.Parameter], total: Tensor) -> list[Tensor]:
    """The sums of each of the parameters, from that of their part."""
    if len(parameters) == 1:
        return [total.reshape(parameters[0].shape)]
    # In memory of their own: who writes to one, or keeps it, has nothing of the others.
    own = cast("Sequence[Tensor]", torch.split_with_sizes_copy(total, [parameter.numel() for parameter in parameters]))
    return [tensor.view(parameter.shape) for parameter, tensor in zip(parameters, own, strict=True)]
