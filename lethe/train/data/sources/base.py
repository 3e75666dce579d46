"""The interface of data sources: a public number of records, and the rows of any of them, on request."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex, cast, runtime_checkable

import numpy as np
import torch

from lethe.errors import InputError
from lethe.train.core.samplers import Batch

Tensors = tuple[torch.Tensor, ...]

_KINDS = "biufc"


@runtime_checkable
class Source(Protocol):
    """Records in a fixed order. Anything with these two methods is one; `as_source` makes one of most things.

    The order and the number of records must not change while a run lasts. One source is read from one thread at a time.
    """

    def __len__(self) -> int:
        """n, the number of records; public."""
        ...

    def fetch(self, batch: Batch) -> Tensors:
        """The records of a batch, collated: tensors that have one row for each record, in the order asked for.

        Args:
            batch: a slice without a step, or int64 indices of shape (k,), k >= 1.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The shapes and types of one record: public, and the same for every record if shapes are to stay the same.

    Args:
        shapes: of each tensor's row.
        dtypes: of each tensor.
        devices: where each tensor lives.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    devices: tuple[torch.device, ...]

    @classmethod
    def of(cls, source: Source) -> Layout:
        """The layout of the first record."""
        tensors = fetched(source, slice(0, 1))
        return cls(
            shapes=tuple(tuple(tensor.shape[1:]) for tensor in tensors),
            dtypes=tuple(tensor.dtype for tensor in tensors),
            devices=tuple(tensor.device for tensor in tensors),
        )

    def zeros(self, rows: int) -> Tensors:
        """`rows` records made of zeros."""
        kinds = zip(self.shapes, self.dtypes, self.devices, strict=True)
        return tuple(torch.zeros((rows, *shape), dtype=dtype, device=device) for shape, dtype, device in kinds)


def fetched(source: Source, batch: Batch) -> Tensors:
    """`source.fetch(batch)`, with the number of rows checked.

    Raises:
        InputError: something else than tensors with a row for each record came back.
    """
    return require_rows(source.fetch(batch), length(batch), type(source).__name__)


_GRAPHS = (
    "Graphs, or sets, of different sizes are padded to one size, with a mask as another tensor, (B, nodes, ...) and (B, nodes); or given "
    "one at a time: physical_size=1, and tensors of shape (1, nodes, ...)."
)


def require_rows(tensors: object, rows: int, origin: str) -> Tensors:
    """Return `tensors` if they are a tuple of tensors with one row for each record.

    Args:
        tensors: what a source gave.
        rows: how many records it was asked for.
        origin: the source, for the error.
    Raises:
        InputError: they are not.
    """
    if not isinstance(tensors, tuple) or not tensors:
        got = "nothing" if tensors == () else type(tensors).__name__
        raise InputError(f"{origin}: a batch is {got}; it needs a tuple of tensors.")
    for place, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise InputError(
                f"{origin}: part {place} of a batch is {type(tensor).__name__}; it needs a tensor.",
                remedy=f"give a collate function that returns a tuple of tensors. {_GRAPHS}",
            )
        if tensor.ndim == 0 or len(tensor) != rows:
            raise InputError(
                f"{origin}: part {place} of a batch has shape {tuple(tensor.shape)}; it needs {rows} rows, one for each record.",
                remedy=f"every record asked for must come back, once and in order: a dropped or repeated record changes the batch design. "
                f"{_GRAPHS}",
            )
    return cast(Tensors, tensors)


def require_batch(batch: object, records: int) -> Batch:
    """`batch` as a slice with both ends, or as int64 indices on the CPU, all within the records.

    Raises:
        InputError: it is neither, or points outside.
    """
    if isinstance(batch, slice):
        try:
            first, stop, step = batch.indices(records)
        except TypeError as error:
            raise InputError(f"batch: got {batch!r}; the ends of a slice are integers.") from error
        if step != 1:
            raise InputError(f"batch: got a slice with step {step}; it needs consecutive records.")
        return slice(first, max(first, stop))
    if not isinstance(batch, torch.Tensor) or batch.dtype != torch.int64 or batch.ndim != 1:
        got = f"{batch.dtype} of shape {tuple(batch.shape)}" if isinstance(batch, torch.Tensor) else type(batch).__name__
        raise InputError(f"batch: got {got}; it needs a slice, or a one-dimensional int64 tensor of indices.")
    indices = batch.cpu()
    low, high = (int(indices.min()), int(indices.max())) if len(indices) else (0, 0)
    if low < 0 or high >= records:
        raise InputError(f"batch: indices run from {low} to {high}; there are {records} records.")
    return indices


def length(batch: Batch) -> int:
    """How many records a batch holds."""
    return batch.stop - batch.start if isinstance(batch, slice) else len(batch)


def require_one_length(lengths: list[int], names: list[str]) -> int:
    """The common number of records of the parts.

    Raises:
        InputError: there are no parts or no records, or the parts differ.
    """
    if not lengths:
        raise InputError("data: got nothing; it needs at least one array.")
    if min(lengths) != max(lengths):
        listed = ", ".join(f"{name}: {count}" for name, count in zip(names, lengths, strict=True))
        raise InputError(f"data: the parts differ in their number of records ({listed}).", remedy="give one row for each record.")
    if lengths[0] == 0:
        raise InputError("data: got no records; it needs at least one.")
    return lengths[0]


def native(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of `array` that PyTorch can take over: contiguous, writable, in the machine's byte order.

    Raises:
        InputError: it holds something else than numbers.
    """
    require_numbers(name, array)
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def require_numbers(name: str, array: np.ndarray[Any, Any]) -> None:
    """Refuse arrays that are no rows of numbers.

    Raises:
        InputError: another type of entry, or no axis of records.
    """
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
        raise InputError(f"{name}: holds {array.dtype}; it needs numbers of at most 64 bits.", remedy="encode text and dates first.")
    if array.ndim == 0:
        raise InputError(f"{name}: is a single number; it needs one row for each record.")


def require_whole(name: str, value: object, least: int) -> int:
    """`value` as an int.

    Args:
        name: what the error calls the value.
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
