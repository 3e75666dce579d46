"""From users' data to a data source, and why some objects cannot be one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from lethe.errors import InputError
from lethe.train.data.sources.arrays import TensorSource
from lethe.train.data.sources.base import Source
from lethe.train.data.sources.fields import as_rows, require_one_width
from lethe.train.data.sources.loaders import reading_of, reads_plainly, refuse_own_batches, warn_of_ignored
from lethe.train.data.sources.map_style import MapStyleSource
from lethe.train.data.sources.mapped import MappedSource


def as_source(data: Any, *, leave_out: Collection[str] = ()) -> Source:
    """A data source of `data`.

    Tensors and NumPy arrays (one, or a tuple of them) stay in memory; .npy files, folders of them and memory maps are read row by row;
    a map-style data set, a list of mappings, or a `datasets.Dataset` is read record by record. A mapping of tensors or arrays, and records
    that are mappings, go to the model by the names in them. Of a DataLoader the data set, the collate function and the workers are used,
    and a warning says what is not. Parquet files need to be told their columns, and a data set with a collate function
    needs to be told that: see `ParquetSource` and `MapStyleSource`. A `Source` is returned as it is.

    Args:
        data: see above.
        leave_out: fields of mappings that are not read, such as the column of users' ids.
    Raises:
        InputError: an IterableDataset, a sampler, a DataLoader that makes batches of its own, a generator, no records, or anything that is
            none of the above.
    """
    _refuse(data)
    if isinstance(data, Source):
        return data
    if isinstance(data, DataLoader):
        refuse_own_batches(data)
        source = records_of(data, leave_out=leave_out)
        warn_of_ignored(data)
        return source
    if isinstance(data, Mapping):
        return _fields({key: value for key, value in data.items() if key not in leave_out})
    if isinstance(data, list) and data and all(isinstance(record, Mapping) for record in data):
        return MapStyleSource(data, leave_out=leave_out)
    parts = tuple(data) if isinstance(data, tuple | list) else (data,)
    if any(map(_is_path, parts)):
        return _files(parts)
    if parts and all(isinstance(part, torch.Tensor | np.ndarray) for part in parts):
        # A map that may not be written to would be copied whole to become a tensor.
        return MappedSource(*map(_as_array, parts)) if _is_mapped(parts) else TensorSource(*parts)
    if type(data) is TensorDataset:
        return TensorSource(*data.tensors)
    if hasattr(data, "iloc"):  # a table of pandas, of which data[i] is a column
        raise InputError(
            f"data: got a {type(data).__name__}; it needs arrays, or a mapping of names to arrays.",
            remedy="give (table[[...]].to_numpy('float32'), table['label'].to_numpy()), or dict(features=..., label=...) of such arrays.",
        )
    if not isinstance(data, tuple | list) and hasattr(type(data), "__getitem__"):
        return MapStyleSource(data, leave_out=leave_out)
    held = ", ".join(dict.fromkeys(type(part).__name__ for part in parts)) if isinstance(data, tuple | list) else ""
    raise InputError(
        f"data: got {type(data).__name__}{f' of {held}' if held else ''}; it needs arrays, .npy files or a map-style data set.",
        remedy="give (features, targets) as tensors, NumPy arrays or .npy files, or an object with len(data) and data[i]; a list of "
        "records as lethe.train.data.MapStyleSource(data).",
    )


def _refuse(data: object) -> None:
    if isinstance(data, Sampler):
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
    if isinstance(data, bytes):
        raise InputError(f"data: got {type(data).__name__}; it needs arrays in a definite order.", remedy="give a tuple of its arrays.")


def records_of(loader: DataLoader[Any], *, leave_out: Collection[str] = (), declared_apart: bool = False) -> Source:
    """The records of a DataLoader: its data set as it is, if the loader does nothing to it, or collated and read by workers.

    Args:
        loader: whose data set is map-style.
        leave_out, declared_apart: see `MapStyleSource`.
    Raises:
        InputError: as `as_source`.
    """
    plain = reads_plainly(loader) and not declared_apart and not isinstance(loader.dataset, Mapping | tuple | list)
    options = {"leave_out": leave_out, "declared_apart": declared_apart}
    return as_source(loader.dataset, leave_out=leave_out) if plain else reading_of(loader, **options)


def _fields(data: Mapping[Any, Any]) -> Source:
    """Rows of tensors or arrays that have names."""
    if wrong := [key for key in data if not isinstance(key, str)]:
        raise InputError(f"data: a field is called {wrong[0]!r}; it needs the name of an argument of the model.")
    names = sorted(data)
    parts = [as_rows(name, data[name]) for name in names]
    require_one_width(dict(zip(names, parts, strict=True)), "data")
    return MappedSource(*map(_as_array, parts), fields=names) if _is_mapped(parts) else TensorSource(*parts, fields=names)


def _is_mapped(parts: Collection[Any]) -> bool:
    return any(isinstance(part, np.ndarray) and (isinstance(part, np.memmap) or not part.flags.writeable) for part in parts)


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
