"""Arrays on disk, mapped into memory: .npy files are read row by row and never loaded whole."""

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
from lethe.train.data.sources.base import Tensors, native, require_batch, require_numbers, require_one_length
from lethe.train.data.sources.fields import named

Rows = np.ndarray[Any, Any]


class MappedSource:
    """Records that are the rows of .npy files or memory maps of equal length; only the rows asked for are read.

    Args:
        parts: each a .npy file, a folder of them (its files in alphabetical order, each one part), or an array, such as a memory map.
            Each part becomes one tensor of a batch.
        fields: names of the tensors, by which the model is given them; None: they have none, and the last is the target.
    Raises:
        InputError: a file that cannot be read or mapped, no records, different lengths, or something else than numbers.
    """

    __slots__ = ("_arrays", "_names", "fields")

    def __init__(self, *parts: str | os.PathLike[str] | Rows, fields: Sequence[str] | None = None) -> None:
        opened = [pair for place, part in enumerate(parts) for pair in _opened(f"part {place}", part)]
        self.fields = named(fields, len(opened))
        self._names = [name for name, _ in opened] if self.fields is None else list(self.fields)
        self._arrays = [array for _, array in opened]
        for name, array in zip(self._names, self._arrays, strict=True):
            require_numbers(name, array)
        require_one_length([len(array) for array in self._arrays], self._names)

    def __len__(self) -> int:
        return len(self._arrays[0])

    def fetch(self, batch: Batch) -> Tensors:
        """The rows of a batch, copied from the disk."""
        rows = require_batch(batch, len(self))
        key = rows if isinstance(rows, slice) else rows.numpy()
        return tuple(torch.from_numpy(native(name, array[key])) for name, array in zip(self._names, self._arrays, strict=True))


def _opened(name: str, part: object) -> list[tuple[str, Rows]]:
    if isinstance(part, np.ndarray):
        return [(name, part)]
    if not isinstance(part, str | os.PathLike):
        raise InputError(f"{name}: got {type(part).__name__}; it needs a .npy file, a folder of them, or a NumPy array.")
    path = as_path(part)
    if not path.is_dir():
        return [(path.name, _mapped(path))]
    files = sorted(path.glob("*.npy"))
    if not files:
        raise InputError(f"{path} holds no .npy files.", remedy="save each array there with numpy.save.")
    return [(file.name, _mapped(file)) for file in files]


def _mapped(path: Path) -> Rows:
    if path.suffix.lower() != ".npy":
        raise InputError(f"{path.name} ends in {path.suffix!r}; only .npy files can be mapped.", remedy="save the array with numpy.save.")
    with reading_arrays(path, what="be mapped", remedy="give a whole .npy file of numbers, with at least one record."):
        return np.load(path, mmap_mode="r", allow_pickle=False)
