"""Records of a DataLoader: its data set, collate function and workers. How it draws is the run's affair."""

from __future__ import annotations

import warnings
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from lethe.errors import InputError, LetheWarning
from lethe.train.data.sources.map_style import MapStyleSource, length_of

_DESIGN = "which records meet which step is the batch design of the run, and part of the privacy guarantee"


def reading_of(loader: DataLoader[Any], **options: Any) -> MapStyleSource:
    """The records of a DataLoader, collated and read by workers as the loader says.

    Args:
        loader: whose data set is map-style.
        options: of `MapStyleSource`.
    """
    collate: Any = None if loader.collate_fn is default_collate else loader.collate_fn
    return MapStyleSource(
        loader.dataset, collate=collate, workers=loader.num_workers, context=_method(loader.multiprocessing_context), **options
    )


def reads_plainly(loader: DataLoader[Any]) -> bool:
    """Whether a loader does nothing to its records that a data set alone would not have done to them."""
    return loader.collate_fn is default_collate and not loader.num_workers


def refuse_own_batches(loader: DataLoader[Any]) -> None:
    """Refuse a loader that leaves nothing for the run to draw: records without numbers, batches of its own, or a choice among the records.

    Raises:
        InputError: see above.
    """
    if isinstance(loader.dataset, IterableDataset):
        raise InputError(
            f"data: got a DataLoader of {type(loader.dataset).__name__}, an IterableDataset: its number of records is unknown, and it "
            "cannot be asked for record i.",
            source="the number of records is a public part of the guarantee",
            remedy="give a map-style data set, or store the records as .npy or Parquet files.",
        )
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        drawn = "batch_size=None" if loader.batch_sampler is None else f"a {type(loader.batch_sampler).__name__} as batch_sampler"
        raise InputError(
            f"data: got a DataLoader with {drawn}: it makes batches of its own.",
            source=_DESIGN,
            remedy="give DataLoader(dataset, collate_fn=...), or the data set, and choose the design with run.batches.",
        )
    sampler = loader.sampler
    records, drawn = length_of(loader.dataset), _length(sampler)
    if drawn != records and not (isinstance(sampler, DistributedSampler) and sampler.dataset is loader.dataset):
        raise InputError(
            f"data: got a DataLoader whose {type(sampler).__name__} draws {'?' if drawn is None else drawn} of {records} records.",
            source="a sampler that leaves records out, or repeats them; it is not used, and all records would be",
            remedy="choose records before: DataLoader(torch.utils.data.Subset(dataset, indices), ...); the run draws from all of them.",
        )


def warn_of_ignored(loader: DataLoader[Any]) -> None:
    """Say what of a loader is not used, in one warning."""
    sampler = loader.sampler
    ignored = [f"batch_size={loader.batch_size}"]
    if type(sampler) is RandomSampler:
        ignored.append("shuffle=True")
    elif type(sampler) is not SequentialSampler:
        ignored.append(f"sampler ({type(sampler).__name__})")
    ignored += ["drop_last=True"] if loader.drop_last else []
    ignored += [name for name in ("generator", "worker_init_fn") if getattr(loader, name) is not None]
    warnings.warn(
        LetheWarning(
            f"data: of the DataLoader its data set, collate_fn and workers are used; ignored are {', '.join(ignored)}: the run says how "
            "records are drawn and how many (run.batches)."
        ),
        stacklevel=4,
    )


def _length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except (TypeError, NotImplementedError, ValueError):
        return None


def _method(context: Any) -> str | None:
    return context if isinstance(context, str | None) else context.get_start_method()
