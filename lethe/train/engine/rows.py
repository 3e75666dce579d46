"""Rows of a micro-batch: those that are records, and one of zeros where there is none."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.train.data import LoadedBatch


def with_a_row(batch: LoadedBatch) -> tuple[tuple[Tensor, ...], Tensor]:
    """The tensors, one row of zeros where there is none (many models take no empty batch), and which rows are records."""
    rows = len(batch.tensors[0])
    if batch.counted is not None:
        return batch.tensors, batch.counted
    if rows:
        return batch.tensors, torch.ones(rows, dtype=torch.bool)
    return tuple(tensor.new_zeros((1, *tensor.shape[1:])) for tensor in batch.tensors), torch.zeros(1, dtype=torch.bool)
