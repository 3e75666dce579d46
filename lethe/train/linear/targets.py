"""Targets as the trainer needs them: class numbers from a public range, or finite real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lethe.errors import InputError
from lethe.train.linear.features import numbers, refuse_not_finite


def prepare_targets(values: Any, *, classes: int | None, records: int, device: torch.device) -> torch.Tensor:
    """The targets as a column of shape (n, 1): class numbers as int64, or real numbers as float64.

    Args:
        values: shape (n,).
        classes: how many classes, numbered 0..classes-1; None: real numbers.
        records: n, the rows of the features.
        device: of the result.
    Raises:
        InputError: another shape, NaN or infinity, or a class number outside the public range (named).
    """
    array = numbers("targets", values)
    if array.shape not in ((records,), (records, 1)):
        raise InputError(f"targets: got shape {array.shape}; it needs ({records},), one for each row of features.")
    column = array.reshape(-1, 1)
    refuse_not_finite("targets", column)
    if classes is None:
        return torch.tensor(column, dtype=torch.float64, device=device)
    wrong = (column != np.floor(column)) | (column < 0) | (column >= classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"targets[{row}]: got {column[row, 0]:g}; it needs a class number 0..{classes - 1}.",
            remedy="number the classes 0, 1, 2, ... by a public list.",
        )
    return torch.tensor(column, dtype=torch.int64, device=device)
