"""A loaded batch through the clipper, and what the report says of how that went."""

from __future__ import annotations

import torch
from torch import Tensor

from lethe.errors import LetheError
from lethe.train.clip import Clipper
from lethe.train.core.comparison import FAILURES
from lethe.train.data import LoadedBatch
from lethe.train.network.batch_losses import BatchLosses


def add_batch(clipper: Clipper, batch: LoadedBatch, device: torch.device) -> Tensor:
    """Add the clipped gradients of a loaded batch of at least one row.

    Args:
        clipper: whose losses are a `BatchLosses`.
        batch: its rows.
        device: of the model.
    Returns:
        The losses, detached, shape (rows,).
    Raises:
        InputError, HypothesisError: as `Clipper.add`; or the batch does not go into the model or the loss.
    """
    losses = clipper.losses
    assert isinstance(losses, BatchLosses)
    given = losses.batch(batch.tensors, device, batch.counted)
    try:
        return clipper.add(
            given,
            counted=None if batch.counted is None else batch.counted.to(device),
            units=None if batch.places is None else units_of(batch.places),
            collated={row: losses.batch(own, device, None) for row, own in batch.alone.items()},
        )
    except torch.OutOfMemoryError:
        raise
    except FAILURES as error:
        cause = error.__cause__ if isinstance(error, LetheError) else error
        explained = losses.explained(cause, given) if isinstance(cause, Exception) else None
        if explained is None:
            raise
        raise explained from cause


def units_of(places: Tensor) -> list[list[int]]:
    """The rows of each unit that has any.

    Args:
        places: the unit of each row, shape (rows,), int64.
    """
    rows: dict[int, list[int]] = {}
    for row, place in enumerate(places.tolist()):
        rows.setdefault(place, []).append(row)
    return [rows[place] for place in sorted(rows)]


def said_of(clipper: Clipper) -> str:
    """How it is known that records do not meet."""
    if clipper.isolation == "enforced" or clipper.ways <= {"vmap", "alone"} != set():
        return "each record passed through model and loss alone, as a batch of one"
    if clipper.isolation == "declared":
        return "nothing: isolation is declared"
    return "checked" if clipper.checked else "no batch had a record with a gradient"
