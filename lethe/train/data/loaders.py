"""Turns the data that users pass to `fit` or `PrivacyEngine` (arrays, files, data sets, DataLoaders) into a `Source`. All training loops
call `as_source`, so that the rest of the library sees one interface; what cannot be read by record number is refused.
"""

import os
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data
from torch.utils.data import DataLoader

from lethe.errors import InputError, LetheWarning
from lethe.train.data.foreign_order import DESIGN, refuse_foreign_order
from lethe.train.data.map_style import READING, MapStyleSource, as_field
from lethe.train.data.sources import Source, TensorSource


def as_source(data: Any, *, leave_out: Collection[str] = ()) -> Source:
    """A data source of `data`.

    Tensors and NumPy arrays (one, or a tuple of them) stay in memory; .npy files, folders of them and memory maps are read row by row;
    a map-style data set, a list of mappings, or a `datasets.Dataset`, as of Parquet files, is read record by record. A mapping of tensors
    or arrays, and records that are mappings, go to the model by the names in them, but for those to leave out. Of a DataLoader the data
    set, the collate function, the workers and the pinning are used. A `Source` is returned as it is, such as a `MapStyleSource`.
    """
    if isinstance(data, Source):
        return data
    refuse_foreign_order(data)
    if isinstance(data, DataLoader):
        source = records_of(data, leave_out=leave_out)
        ignored = "batch_size, shuffle, sampler, drop_last, generator and worker_init_fn of the DataLoader are ignored"
        warnings.warn(LetheWarning(f"data: {ignored}: run.batches says how records are drawn, and how many."), stacklevel=3)
        return source
    if isinstance(data, Mapping):
        columns = {name: data[name] for name in sorted(data, key=str) if name not in leave_out}
        for name, column in columns.items():
            if not isinstance(name, str) or not isinstance(column, torch.Tensor | np.ndarray | list | tuple):
                raise InputError(
                    f"data: field {name} is {type(column).__name__}; it needs to be a tensor or an array, with a row for each record, and "
                    "its name that of an argument of the model.",
                    remedy="of a DatasetDict, or another mapping of data sets, give one: data['train'].",
                )
        rows = [as_field(name, column) if isinstance(column, list | tuple) else column for name, column in columns.items()]
        return TensorSource(*rows, fields=list(columns))
    parts = data.tensors if type(data) is torch_data.TensorDataset else tuple(data) if isinstance(data, tuple | list) else (data,)
    if parts and all(isinstance(part, torch.Tensor | np.ndarray | str | os.PathLike) for part in parts):
        return TensorSource(*parts)
    is_no_dataset = isinstance(data, tuple | list | bytes) or hasattr(data, "iloc") or not hasattr(type(data), "__getitem__")
    if not is_no_dataset or (isinstance(data, list) and data and isinstance(data[0], Mapping)):
        return MapStyleSource(data, leave_out=leave_out)
    raise InputError(
        f"data: got {type(data).__name__}; it needs arrays, .npy files or a map-style data set.",
        source=DESIGN,
        remedy="give (features, targets) as arrays (.to_numpy()) or .npy files; of a list lethe.train.data.map_style.MapStyleSource(data).",
    )


def records_of(loader: DataLoader[Any], *, leave_out: Collection[str] = (), declared_apart: bool = False) -> Source:
    """The records of a DataLoader, collated and read as it says."""
    collate = None if loader.collate_fn is torch_data.default_collate else loader.collate_fn
    if type(loader.dataset) is torch_data.TensorDataset and not collate:
        return TensorSource(*loader.dataset.tensors)
    reading = {name: getattr(loader, name) for name in READING}
    return MapStyleSource(loader.dataset, collate=collate, leave_out=leave_out, declared_apart=declared_apart, **reading)
