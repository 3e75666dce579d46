"""From users' data to a data source, and why some objects cannot be one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from lethe.errors import InputError
from lethe.train.data.sources.arrays import TensorSource
from lethe.train.data.sources.base import Source
from lethe.train.data.sources.map_style import MapStyleSource
from lethe.train.data.sources.mapped import MappedSource


def as_source(data: Any) -> Source:
    """A data source of `data`.

    Tensors and NumPy arrays (one, or a tuple of them) stay in memory; .npy files, folders of them and memory maps are read row by row;
    a map-style data set is read record by record. Parquet files need to be told their columns, and a data set with a collate function
    needs to be told that: see `ParquetSource` and `MapStyleSource`. A `Source` is returned as it is.

    Raises:
        InputError: an IterableDataset, a sampler, a DataLoader, a generator, a mapping, no records, or anything that is none of the above.
    """
    _refuse(data)
    if isinstance(data, Source):
        return data
    parts = tuple(data) if isinstance(data, tuple | list) else (data,)
    if any(map(_is_path, parts)):
        return _files(parts)
    if parts and all(isinstance(part, torch.Tensor | np.ndarray) for part in parts):
        # A map that may not be written to would be copied whole to become a tensor.
        mapped = any(isinstance(part, np.ndarray) and (isinstance(part, np.memmap) or not part.flags.writeable) for part in parts)
        return MappedSource(*map(_as_array, parts)) if mapped else TensorSource(*parts)
    if type(data) is TensorDataset:
        return TensorSource(*data.tensors)
    if not isinstance(data, tuple | list) and hasattr(type(data), "__getitem__"):
        return MapStyleSource(data)
    held = ", ".join(dict.fromkeys(type(part).__name__ for part in parts)) if isinstance(data, tuple | list) else ""
    raise InputError(
        f"data: got {type(data).__name__}{f' of {held}' if held else ''}; it needs arrays, .npy files or a map-style data set.",
        remedy="give (features, targets) as tensors, NumPy arrays or .npy files, or an object with len(data) and data[i].",
    )


def _refuse(data: object) -> None:
    if isinstance(data, DataLoader | Sampler):
        raise InputError(
            f"data: got a {type(data).__name__}; it needs the data set itself.",
            source="which records meet which step is the batch design of the run, and part of the privacy guarantee",
            remedy="give the data set, and choose the design with run.batches.",
        )
    if isinstance(data, IterableDataset):
        raise InputError(
            f"data: got {type(data).__name__}, an IterableDataset: its number of records is unknown, and it cannot be asked for record i.",
            source="the number of records is a public part of the guarantee",
            remedy="give a map-style data set, or store the records as .npy or Parquet files.",
        )
    if isinstance(data, Mapping | bytes):
        raise InputError(f"data: got {type(data).__name__}; it needs arrays in a definite order.", remedy="give a tuple of its arrays.")


def _is_path(part: object) -> bool:
    return isinstance(part, str | os.PathLike)


def _files(parts: tuple[Any, ...]) -> Source:
    parquet = [part for part in parts if _is_path(part) and str(os.fspath(part)).lower().endswith(".parquet")]
    if parquet:
        raise InputError(
            f"data: got {os.fspath(parquet[0])}, and not which of its columns to read.",
            remedy="give ParquetSource(path, columns=[[the features' names], the target's name]).",
        )
    return MappedSource(*(part if _is_path(part) else _as_array(part) for part in parts))


def _as_array(part: Any) -> Any:
    if isinstance(part, torch.Tensor):
        try:
            return part.detach().numpy()
        except (TypeError, RuntimeError) as error:
            raise InputError("data: a tensor on a device, sparse or of a type unknown to NumPy stands beside files or maps.") from error
    return part
