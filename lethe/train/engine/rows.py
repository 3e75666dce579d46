"""Rows of a micro-batch of a user's loop: which are records, and which are clipped together."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.unfollowed import PER_LAYER
from lethe.train.clipping.units import Units
from lethe.train.data import LoadedBatch
from lethe.train.data.sources.base import length


def with_a_row(batch: LoadedBatch) -> tuple[tuple[Tensor, ...], Tensor]:
    """The tensors, one row of zeros where there is none (many models take no empty batch), and which rows are records."""
    rows = len(batch.tensors[0])
    if batch.counted is not None:
        return batch.tensors, batch.counted
    if rows:
        return batch.tensors, torch.ones(rows, dtype=torch.bool)
    return tuple(tensor.new_zeros((1, *tensor.shape[1:])) for tensor in batch.tensors), torch.zeros(1, dtype=torch.bool)


def add_clipped(clipper: Clipper, losses: Tensor, batch: LoadedBatch, counted: Tensor) -> None:
    """Add the clipped gradients of a micro-batch: of its records, or of its users, each by the mean of its rows' losses.

    Args:
        clipper: that recorded the forward pass.
        losses: one a row, shape (rows,).
        batch: says whose the rows are.
        counted: which rows are records, shape (rows,), bool.
    Raises:
        InputError, HypothesisError: as `Clipper.backward`.
    """
    places = batch.places
    if places is None or not len(places):
        clipper.backward(losses, counted)
    elif clipper.way == PER_LAYER:
        clipper.backward(losses, units=Units(places.to(counted.device), length(batch.indices)))
    else:  # whatever the rows of one user have in common is its own
        assert length(batch.indices) == 1
        clipper.backward(_mean(losses, len(places)))


def _mean(losses: Tensor, rows: int) -> Tensor:
    if not isinstance(losses, Tensor) or losses.shape != (rows,):
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        raise InputError(f"losses: got {got}; it needs one loss for each of the {rows} rows.", remedy="compute with reduction='none'.")
    return losses.mean(0, keepdim=True)
