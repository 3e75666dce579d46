"""Norms of records' tensors: right to 22 eps of the tensors' type at any size, summed in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.train.core.tensors import on_cpu

# A block's squares are summed in their own type: by eight partial sums or more, of 32 squares each.
_BLOCK = 256

# Between these no square of a float32 number that matters to the norm has vanished, and none has overflown.
_SMALL, _LARGE = 1e-12, 1e17

# Numbers that are copied at a time where float64 is used: 1 MiB of float32; on a GPU 64 MiB.
_AT_ONCE, _AT_ONCE_ON_GPU = 2**18, 2**24


def squares_of(formed: Tensor) -> Tensor:
    """Squared norms of the records' tensors, shape (B,), float64."""
    return lengths_of(formed).square()


def lengths_of(formed: Tensor) -> Tensor:
    """The norms whose squares are `squares_of`."""
    flat = formed.flatten(1)
    if not flat.shape[1]:
        return flat.new_zeros(len(flat), dtype=torch.float64)
    if flat.dtype == torch.float64:
        return torch.linalg.vector_norm(flat, dim=1)
    if not on_cpu(flat):
        columns = flat.split(max(1, _AT_ONCE_ON_GPU // max(1, len(flat))), dim=1)
        norms = [torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in columns]
        return norms[0] if len(norms) == 1 else torch.stack(norms).norm(dim=0)
    if flat.shape[1] <= _BLOCK // 4:
        return torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64)
    # Across rows, a record's squares would be added one by one.
    flat = flat.contiguous()
    whole = flat.shape[1] - flat.shape[1] % _BLOCK
    blocks = torch.linalg.vector_norm(flat[:, :whole].view(len(flat), -1, _BLOCK), dim=2)
    if whole < flat.shape[1]:
        blocks = torch.cat([blocks, torch.linalg.vector_norm(flat[:, whole:], dim=1, keepdim=True)], dim=1)
    lengths = torch.linalg.vector_norm(blocks, dim=1, dtype=torch.float64)
    told = lengths.numpy()
    if told.size and not (told.min() > _SMALL and told.max() < _LARGE):  # or one is no number
        extreme = ~((lengths > _SMALL) & (lengths < _LARGE))
        for rows in extreme.nonzero()[:, 0].split(max(1, _AT_ONCE // flat.shape[1])):
            lengths[rows] = torch.linalg.vector_norm(flat[rows], dim=1, dtype=torch.float64)
    return lengths
