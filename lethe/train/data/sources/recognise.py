"""From users' data to a data source, and why some objects cannot be one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data
from torch.utils.data import DataLoader, IterableDataset

from lethe.errors import InputError, LetheWarning
from lethe.train.data.sources.arrays import TensorSource
from lethe.train.data.sources.base import Source
from lethe.train.data.sources.fields import column, require_one_width
from lethe.train.data.sources.map_style import MapStyleSource, length_of

_DESIGN = "which records meet which step is the batch design of the run, and part of the privacy guarantee"


def as_source(data: Any, *, leave_out: Collection[str] = ()) -> Source:
    """A data source of `data`.

    Tensors and NumPy arrays (one, or a tuple of them) stay in memory; .npy files, folders of them and memory maps are read row by row;
    a map-style data set, a list of mappings, or a `datasets.Dataset` is read record by record. A mapping of tensors or arrays, and records
    that are mappings, go to the model by the names in them, but for those to leave out. Of a DataLoader the data set, the collate function,
    the workers and the pinning are used, and a warning says what is not. Parquet files need to be told their columns, and a data set with a
    collate function needs to be told that: see `ParquetSource` and `MapStyleSource`. A `Source` is returned as it is.

    Raises:
        InputError: an IterableDataset, a sampler, a DataLoader that makes batches of its own, no records, or anything else.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, IterableDataset):
        raise InputError(
            f"data: got {type(data).__name__}, an IterableDataset: its number of records is unknown, and it cannot be asked for record i.",
            source="the number of records is a public part of the guarantee",
            remedy="give a map-style data set, or store the records as .npy or Parquet files.",
        )
    if isinstance(data, DataLoader):
        refuse_own_batches(data)
        source = records_of(data, leave_out=leave_out)
        _warn_of_ignored(data)
        return source
    if isinstance(data, Mapping):
        return _of_fields({key: value for key, value in data.items() if key not in leave_out})
    if isinstance(data, list) and data and all(isinstance(record, Mapping) for record in data):
        return MapStyleSource(data, leave_out=leave_out)
    if type(data) is torch_data.TensorDataset:
        return TensorSource(*data.tensors)
    parts = tuple(data) if isinstance(data, tuple | list) else (data,)
    paths = [os.fspath(part) for part in parts if isinstance(part, str | os.PathLike)]
    if any(path.lower().endswith(".parquet") for path in paths):
        raise InputError(
            f"data: got {paths[0]}, and not which of its columns to read.",
            remedy="give ParquetSource(path, columns=[[the features' names], the target's name]).",
        )
    if parts and (paths or all(isinstance(part, torch.Tensor | np.ndarray) for part in parts)):
        return TensorSource(*parts)
    plain = not isinstance(data, tuple | list | bytes | torch_data.Sampler) and not hasattr(data, "iloc")
    if plain and hasattr(type(data), "__getitem__"):
        return MapStyleSource(data, leave_out=leave_out)
    held = ", ".join(dict.fromkeys(type(part).__name__ for part in parts)) if isinstance(data, tuple | list) else ""
    raise InputError(
        f"data: got {type(data).__name__}{f' of {held}' if held else ''}; it needs arrays, .npy files or a map-style data set.",
        source=_DESIGN,
        remedy="give (features, targets) as tensors, NumPy arrays or .npy files (of a DataFrame table[[...]].to_numpy('float32')), or an "
        "object with len(data) and data[i]; a list of records as lethe.train.data.MapStyleSource(data); not a sampler, but its data set.",
    )


def records_of(loader: DataLoader[Any], *, leave_out: Collection[str] = (), declared_apart: bool = False) -> Source:
    """The records of a DataLoader: its data set as it is, if the loader does nothing to it, or collated and read as the loader says.

    Args: as `MapStyleSource`.
    """
    collate = None if loader.collate_fn is torch_data.default_collate else loader.collate_fn
    plain = not (collate or loader.num_workers or loader.pin_memory or declared_apart)
    if (plain and not isinstance(loader.dataset, Mapping | tuple | list)) or (
        type(loader.dataset) is torch_data.TensorDataset and not collate
    ):
        return as_source(loader.dataset, leave_out=leave_out)
    context: Any = loader.multiprocessing_context
    return MapStyleSource(
        loader.dataset,
        collate=collate,
        workers=loader.num_workers,
        context=context if isinstance(context, str | None) else context.get_start_method(),
        prefetch_factor=loader.prefetch_factor,
        pin_memory=loader.pin_memory,
        leave_out=leave_out,
        declared_apart=declared_apart,
    )


def refuse_own_batches(loader: DataLoader[Any]) -> None:
    """Refuse a loader that leaves nothing for the run to draw: records without numbers, batches of its own, a choice among the records."""
    if isinstance(loader.dataset, IterableDataset):
        as_source(loader.dataset)  # refuses it
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    if loader.batch_size is None or type(sampler) is not torch_data.BatchSampler:
        raise InputError(
            f"data: got a DataLoader with a {type(sampler).__name__} and batch_size={loader.batch_size}: it makes batches of its own.",
            source=_DESIGN,
            remedy="give DataLoader(dataset, collate_fn=...), or the data set, and choose the design with run.batches.",
        )
    records, drawn = length_of(loader.dataset), length_of(sampler.sampler)
    if drawn != records and getattr(sampler.sampler, "dataset", None) is not loader.dataset:  # a DistributedSampler's
        raise InputError(
            f"data: got a DataLoader whose {type(sampler.sampler).__name__} draws {drawn} of {records} records.",
            source="a sampler that leaves records out, or repeats them; it is not used, and all records would be",
            remedy="choose records before: DataLoader(torch.utils.data.Subset(dataset, indices), ...); the run draws from all of them.",
        )


def _warn_of_ignored(loader: DataLoader[Any]) -> None:
    ignored = [f"batch_size={loader.batch_size}"]
    if type(loader.sampler) is not torch_data.SequentialSampler:
        ignored.append("shuffle=True" if type(loader.sampler) is torch_data.RandomSampler else f"sampler ({type(loader.sampler).__name__})")
    ignored += [name for name in ("drop_last", "generator", "worker_init_fn") if getattr(loader, name)]
    warnings.warn(
        LetheWarning(
            f"data: of the DataLoader its data set, collate_fn and workers are used; ignored are {', '.join(ignored)}: the run says how "
            "records are drawn and how many (run.batches)."
        ),
        stacklevel=4,
    )


def _of_fields(data: Mapping[Any, Any]) -> Source:
    """Rows of tensors or arrays that have names."""
    for name, values in data.items():
        if not isinstance(name, str) or not isinstance(values, torch.Tensor | np.ndarray | list | tuple):
            raise InputError(
                f"data: field {name} is {type(values).__name__}; it needs to be a tensor or an array, with a row for each record, and "
                "its name that of an argument of the model.",
                remedy="of a DatasetDict, or another mapping of data sets, give one: data['train'].",
            )
    rows = {name: data[name] if isinstance(data[name], torch.Tensor | np.ndarray) else column(name, data[name]) for name in sorted(data)}
    require_one_width(rows, "data")
    return TensorSource(*rows.values(), fields=list(rows))
