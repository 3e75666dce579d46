"""Batches for hostile models, and what the clipper makes of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from hostile_models import RECORDS, rows
from torch import Tensor, nn

from lethe.errors import RecordByRecordWarning
from lethe.train.clip.clipper import Clipper


def squares(outputs: Tensor) -> Tensor:
    """A loss whose gradient differs between the entries of an output."""
    flat = outputs.flatten(1)
    return (flat * torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype) + flat.sin()).sum(1)


def trained(model: nn.Module, batches: list[Any], loss: Callable[[Tensor], Tensor] = squares, **options: Any) -> Clipper:
    """A clipper that was given these batches; models that are trained record by record warn, and are no fault."""
    clipper = Clipper(model, lambda batch: loss(model(batch)), 0.1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordByRecordWarning)
        for batch in batches:
            clipper.add(batch)
            clipper.take()
    return clipper


def batches(seed: int, count: int = 4, records: int = RECORDS) -> list[Tensor]:
    return [rows(100 * seed + number, records) for number in range(count)]
