"""Data in memory: tensors and NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lethe.errors import InputError
from lethe.train.core.samplers import Batch
from lethe.train.data.sources.base import Tensors, native, require_batch, require_numbers, require_one_length
from lethe.train.data.sources.fields import named


class TensorSource:
    """Records that are the rows of tensors or arrays of equal length, such as features and targets.

    Writable NumPy arrays are not copied; batches are copies, so a model that works in place does not change the data.

    Args:
        arrays: each of shape (n, ...).
        fields: their names, by which the model is given them; None: they have none, and the last is the target.
    Raises:
        InputError: none, no records, different lengths, something else than numbers, or sparse tensors.
    """

    __slots__ = ("_tensors", "fields")

    def __init__(self, *arrays: torch.Tensor | np.ndarray[Any, Any], fields: Sequence[str] | None = None) -> None:
        self.fields = named(fields, len(arrays))
        names = [f"array {place}" for place in range(len(arrays))] if self.fields is None else list(self.fields)
        self._tensors = tuple(_tensor(name, array) for name, array in zip(names, arrays, strict=True))
        require_one_length([len(tensor) for tensor in self._tensors], names)

    def __len__(self) -> int:
        return len(self._tensors[0])

    def fetch(self, batch: Batch) -> Tensors:
        """The rows of a batch, copied."""
        rows = require_batch(batch, len(self))
        if isinstance(rows, slice):
            return tuple(tensor[rows].clone() for tensor in self._tensors)
        return tuple(tensor.index_select(0, rows.to(tensor.device)) for tensor in self._tensors)


def _tensor(name: str, array: object) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        if array.layout != torch.strided or array.is_nested:
            raise InputError(f"{name}: is a sparse or nested tensor; it needs an ordinary one.", remedy="call to_dense() on it.")
        if array.ndim == 0:
            raise InputError(f"{name}: is a single number; it needs one row for each record.")
        return array.detach()
    if not isinstance(array, np.ndarray):
        raise InputError(f"{name}: got {type(array).__name__}; it needs a tensor or a NumPy array.")
    require_numbers(name, array)
    fits = array.flags.writeable and array.dtype.isnative and min(array.strides, default=0) >= 0
    return torch.from_numpy(array if fits else native(name, array))
