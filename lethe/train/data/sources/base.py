"""The interface of data sources: a public number of records, and the rows of any of them, on request."""

from __future__ import annotations

import operator
from typing import Any, Protocol, SupportsIndex, cast, runtime_checkable

import numpy as np
import torch

from lethe.errors import InputError
from lethe.train.core.samplers import Batch

Tensors = tuple[torch.Tensor, ...]


@runtime_checkable
class Source(Protocol):
    """Records in a fixed order. Anything with these two methods is one; `as_source` makes one of most things.

    The order and the number of records must not change while a run lasts.
    """

    def __len__(self) -> int:
        """n, the number of records; public."""
        ...

    def fetch(self, batch: Batch) -> Tensors:
        """The records of a batch, collated: tensors that have one row for each record, in the order asked for.

        Args:
            batch: a slice without a step, or int64 indices on the CPU, shape (k,), k >= 1, all below n.
        """
        ...


def fetched(source: Source, batch: Batch) -> Tensors:
    """`source.fetch(batch)`, with the number of rows checked.

    Raises:
        InputError: something else than tensors with a row for each record came back.
    """
    return require_rows(source.fetch(batch), length(batch), type(source).__name__)


def require_rows(tensors: Any, rows: int, origin: str) -> Tensors:
    """`tensors`, if they are a tuple of tensors with one row for each of the records.

    Args:
        tensors: what `origin` gave.
        rows: how many records it was asked for.
        origin: for the error.
    Raises:
        InputError: they are not.
    """
    parts = tensors if isinstance(tensors, tuple) and tensors else ((),)
    for place, tensor in enumerate(parts):
        if not isinstance(tensor, torch.Tensor) or tensor.ndim == 0 or len(tensor) != rows:
            got = f"has shape {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else f"is {type(tensor).__name__}"
            raise InputError(
                f"{origin}: part {place} of a batch {got}; it needs a tensor with {rows} rows, one for each record.",
                source="the data set, or the collate function, which returns a tuple of tensors",
                remedy="give every record asked for, once and in order: a dropped or repeated record changes the batch design. Graphs, or "
                "sets, of different sizes are padded to one size, with a mask as another tensor; or given one at a time: physical_size=1.",
            )
    return cast(Tensors, tensors)


def length(batch: Batch) -> int:
    """How many records a batch holds."""
    return batch.stop - batch.start if isinstance(batch, slice) else len(batch)


def require_whole(name: str, value: object, least: int) -> int:
    """`value` as an int.

    Args:
        name: of the value, for the error.
        value: anything.
        least: the smallest number that is accepted.
    Raises:
        InputError: it is no integer, or below `least`.
    """
    try:
        number = least - 1 if isinstance(value, bool | np.bool_ | torch.Tensor) else operator.index(cast(SupportsIndex, value))
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name}: got {value!r}; it needs an integer >= {least}.")
    return number
