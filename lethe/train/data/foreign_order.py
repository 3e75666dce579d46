"""A table of other libraries' samplers, loaders and streams: which are accepted, and what to use instead of the others. A run draws its
own batches, since privacy depends on how; a user's order would be ignored in silence, so `records_of` refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, Sampler

from lethe.errors import InputError
from lethe.train.data.map_style import length_of

DESIGN = "which records meet which step is the batch design of the run, and part of the privacy guarantee"


class Reading(NamedTuple):
    """One row of the table: what the object does; what to give in its place (None: it is accepted, and the run draws from its records)."""

    does: str
    instead: str | None = None


_PLAIN = "give DataLoader(dataset, batch_size=...): which records a step has, the run draws; its `batches` say how."
_FILES = "give a map-style data set, with len(dataset) and dataset[i]; or store the records as .npy or Parquet files."
_STREAM = Reading("is a stream, of which no record can be drawn by its number", _FILES)
_LENGTHS = Reading(
    "puts records of like length together, so that a record's batch depends on all others",
    "leave it out, and truncate long records; a small physical size (micro-batches of few records) saves padding too.",
)
_PREPARED = Reading("draws for all processes by itself", "give the DataLoader as it was before accelerator.prepare.")
_POISSON = Reading(
    "draws Poisson batches by itself",
    "give DataLoader(dataset, batch_size=...), and a run with batches=lethe.batches.Poisson(sample_rate * records).",
)

READINGS: Mapping[str, Reading] = {
    "torch.SequentialSampler": Reading("reads in the order of the data set"),
    "torch.RandomSampler": Reading("shuffles anew each pass"),
    "torch.DistributedSampler": Reading("shuffles anew each pass, and divides the records among processes"),
    "torch.WeightedRandomSampler": Reading(
        "draws some records more often than others",
        "weigh each record's loss instead, nn.CrossEntropyLoss(weight=...); every record is drawn at one rate, which the noise is for.",
    ),
    "torch.SubsetRandomSampler": Reading("leaves records out", "give DataLoader(Subset(dataset, indices), batch_size=...)."),
    "torch.IterableDataset": _STREAM,
    "datasets.IterableDataset": _STREAM,
    "tensorflow.DatasetV2": _STREAM,
    "transformers.LengthGroupedSampler": _LENGTHS,
    "transformers.DistributedLengthGroupedSampler": _LENGTHS,
    "transformers.BatchRebalanceSampler": _LENGTHS,
    "accelerate.DataLoaderShard": _PREPARED,
    "accelerate.DataLoaderDispatcher": _PREPARED,
    "opacus.DPDataLoader": _POISSON,
    "opacus.UniformWithReplacementSampler": _POISSON,
    "opacus.DistributedUniformWithReplacementSampler": _POISSON,
}
"""package.Class -> what is done about it; of what derives from a refused one as well. The rows of docs/choose/samplers.md are these."""


def refuse_foreign_order(data: Any, records: Any = None) -> None:
    """Refuse a DataLoader, a sampler of `records`, or a stream, which reads otherwise than a run can draw: by `READINGS`.

    Arrays and map-style data sets have no order, and pass. A sampler that is not in the table is refused, and a loader with batches of its
    own; so is one that draws records twice or leaves some out.
    """
    loaded = isinstance(data, DataLoader)
    records, sampler = (data.dataset, getattr(data.batch_sampler, "sampler", data.sampler)) if loaded else (records, data)
    for part in (data, records, data.batch_sampler, sampler) if loaded else (data,):
        reading = next((known for name in _names(part) if (known := READINGS.get(name)) is not None and known.instead), None)
        if reading is not None:
            raise _refused(part, reading)
    if not loaded and not isinstance(sampler, Sampler):
        return
    if loaded and data.batch_size is None:
        raise _refused(data.batch_sampler or data, Reading("makes batches of its own", _PLAIN))
    strange = data if loaded and type(data).__iter__ is not DataLoader.__iter__ else None if _names(sampler)[0] in READINGS else sampler
    if strange is not None:
        raise _refused(strange, Reading("reads in an order that Lethe does not know", _PLAIN))
    if getattr(sampler, "replacement", False):
        raise _refused(sampler, Reading("draws with replacement: some records twice, others never", _PLAIN))
    drawn, stored_records = length_of(sampler), length_of(records)
    if drawn != stored_records and getattr(sampler, "dataset", None) is not records:  # a DistributedSampler divides them among processes
        raise _refused(sampler, Reading(f"draws {drawn} of {stored_records} records", READINGS["torch.SubsetRandomSampler"].instead))


def _names(part: Any) -> list[str]:
    """Its class as the table has it, and those that it derives from."""
    return [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(part).__mro__]


def _refused(part: Any, reading: Reading) -> InputError:
    return InputError(f"data: got a {type(part).__name__}, which {reading.does}.", source=DESIGN, remedy=reading.instead)
