"""Records that are the rows of tensors, NumPy arrays, or .npy files, which are mapped into memory and never loaded whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lethe.documents.array_files import reading_arrays
from lethe.documents.strict import as_path
from lethe.errors import InputError
from lethe.train.core.samplers import Batch
from lethe.train.data.sources.base import Tensors

Rows = torch.Tensor | np.ndarray[Any, Any]


class TensorSource:
    """Records that are the rows of arrays of equal length, such as features and targets. No array is copied whole; batches are copies.

    Args:
        arrays: each a tensor or an array of shape (n, ...), such as a memory map; a .npy file; or a folder of these, in alphabetical order.
        fields: names of the tensors, by which the model is given them; None: they have none, and the last is the target.
    Raises:
        InputError: a file that cannot be mapped, no records, different lengths, something else than numbers, or sparse tensors.
    """

    __slots__ = ("_parts", "fields")

    def __init__(self, *arrays: Rows | str | os.PathLike[str], fields: Sequence[str] | None = None) -> None:
        opened = [pair for place, array in enumerate(arrays) for pair in _opened(f"array {place}", array)]
        if fields is not None and (isinstance(fields, str) or len(set(fields)) != len(opened) != 0 or len(fields) != len(opened)):
            raise InputError(f"fields: got {fields!r}; it needs {len(opened)} names, one for each part and none twice.")
        self.fields = None if fields is None else tuple(fields)
        names = [name for name, _ in opened] if fields is None else list(fields)
        self._parts = [_rows(name, array) for name, (_, array) in zip(names, opened, strict=True)]
        if not opened:
            raise InputError("data: got nothing; it needs at least one array.")
        if len({len(part) for part in self._parts}) > 1:
            listed = ", ".join(f"{name}: {len(part)}" for name, part in zip(names, self._parts, strict=True))
            raise InputError(f"data: the parts differ in their number of records ({listed}).", remedy="give one row for each record.")
        if not len(self):
            raise InputError("data: got no records; it needs at least one.")

    def __len__(self) -> int:
        return len(self._parts[0])

    def fetch(self, batch: Batch) -> Tensors:
        """The rows of a batch, copied."""
        return tuple(_taken(part, batch) for part in self._parts)


def _opened(name: str, part: object) -> list[tuple[str, object]]:
    if not isinstance(part, str | os.PathLike):
        return [(name, part)]
    path = as_path(part)
    files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} holds no .npy files.", remedy="save each array there with numpy.save.")
    return [(file.name, _mapped(file)) for file in files]


def _mapped(path: Path) -> np.ndarray[Any, Any]:
    if path.suffix.lower() != ".npy":
        raise InputError(f"{path.name} ends in {path.suffix!r}; only .npy files can be mapped.", remedy="save the array with numpy.save.")
    with reading_arrays(path, what="be mapped", remedy="give a whole .npy file of numbers, with at least one record."):
        return np.load(path, mmap_mode="r", allow_pickle=False)


def _rows(name: str, array: object) -> Rows:
    """The array as it is read from: a tensor on the same memory where PyTorch takes it as it is."""
    if not isinstance(array, torch.Tensor | np.ndarray):
        raise InputError(f"{name}: got {type(array).__name__}; it needs a tensor or a NumPy array.")
    if isinstance(array, torch.Tensor) and (array.layout != torch.strided or array.is_nested):
        raise InputError(f"{name}: is a sparse or nested tensor; it needs an ordinary one.", remedy="call to_dense() on it.")
    if isinstance(array, np.ndarray) and (array.dtype.kind not in "biufc" or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8)):
        raise InputError(f"{name}: holds {array.dtype}; it needs numbers of at most 64 bits.", remedy="encode text and dates first.")
    if array.ndim == 0:
        raise InputError(f"{name}: is a single number; it needs one row for each record.")
    if isinstance(array, torch.Tensor):
        return array.detach()
    fits = array.flags.writeable and array.dtype.isnative and min(array.strides) >= 0
    return torch.from_numpy(array) if fits else array


def _taken(part: Rows, rows: Batch) -> torch.Tensor:
    if isinstance(part, torch.Tensor):
        return part[rows].clone() if isinstance(rows, slice) else part.index_select(0, rows.to(part.device))
    found = part[rows if isinstance(rows, slice) else rows.numpy()]
    return torch.from_numpy(np.array(found, dtype=found.dtype.newbyteorder("="), order="C"))
