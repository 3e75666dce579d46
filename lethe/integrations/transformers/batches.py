"""The run's batches as the Trainer asks for them: one logical batch a step, of one or more micro-batches with the collator's keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from torch import Tensor
from transformers import TrainerCallback

from lethe.errors import InputError
from lethe.train import PrivacyEngine
from lethe.train.data.logical_batches import LogicalBatches
from lethe.train.data.sources.fields import Fields, attending
from lethe.train.data.sources.map_style import MapStyleSource

_NO_COLUMN = (
    "no column of the data set is an argument of the model's forward: remove_unused_columns=False, or columns that are called as the "
    "arguments are."
)


class KeyedCollate:
    """A data collator whose batches are tuples, in the order of their keys; a class, so that processes can be sent it.

    Args:
        collator: of the Trainer, from a list of records to a mapping of tensors.
    """

    def __init__(self, collator: Callable[[list[Any]], Any]) -> None:
        self._collator, self._fields = collator, Fields("data_collator", _NO_COLUMN)

    def __call__(self, records: list[Any]) -> tuple[Tensor, ...]:
        """The batch.

        Raises:
            InputError: it cannot be made, or holds something else than tensors with a row for each record.
        """
        try:
            collated = self._collator(records)
        except InputError:
            raise
        except Exception as error:
            named = not records or isinstance(records[0], Mapping)
            raise InputError(
                f"data_collator: of {len(records)} records it makes no batch: {type(error).__name__}: {_first_line(error)}",
                source="the data collator, or records whose parts disagree in length" if named else "train_dataset, data_collator",
                remedy="pad each part of a record to one length: DataCollatorWithPadding(tokenizer)."
                if named
                else f"a record is a {type(records[0]).__name__}: make it a mapping of the model's arguments, as tokenizer(text) does.",
            ) from error
        if not isinstance(collated, Mapping):
            raise InputError(f"data_collator: made a {type(collated).__name__}; it needs a mapping of the model's arguments to tensors.")
        batch = {str(key): value for key, value in cast(Mapping[Any, Any], collated).items() if value is not None}
        return self._fields.in_order(batch, len(records))

    @property
    def keys(self) -> tuple[str, ...]:
        """Of the first batch; all others must have the same."""
        return self._fields.names


def source_of(trainer: Any, *, declared_apart: bool) -> tuple[MapStyleSource, tuple[str, ...]]:
    """The records of a Trainer, collated by its collator, and the names of their parts.

    Args:
        trainer: whose train_dataset, data_collator and remove_unused_columns are used.
        declared_apart: see `MapStyleSource`.
    Raises:
        InputError: the first record cannot be collated.
    """
    dataset, collator, args = trainer.train_dataset, trainer.data_collator, trainer.args
    if hasattr(dataset, "remove_columns") and hasattr(dataset, "column_names"):  # a datasets.Dataset
        dataset = trainer._remove_unused_columns(dataset, description="training")
    else:
        collator = trainer._get_collator_with_removed_columns(collator, description="training")
    collate = KeyedCollate(collator)
    reading = {"workers": args.dataloader_num_workers, "context": args.dataloader_multiprocessing_context}
    return MapStyleSource(dataset, collate=collate, declared_apart=declared_apart, **reading), collate.keys


class NamedBatches(LogicalBatches):
    """Logical batches whose micro-batches are dicts with the collator's keys."""

    def open_named(self, engine: PrivacyEngine, batches: Iterator[tuple[Tensor, ...]], keys: tuple[str, ...]) -> None:
        """Name the engine whose batches these are; its steps so far are done.

        Args:
            engine: that has a model.
            batches: of its loader, micro-batch by micro-batch.
            keys: of the parts.
        """
        self.open(engine, (attending(dict(zip(keys, parts, strict=True)), engine.counted) for parts in batches))


class Epochs(TrainerCallback):
    """Says how far training is, also where it was taken up again."""

    def __init__(self, steps_per_epoch: int) -> None:
        self._steps_per_epoch = steps_per_epoch

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Called by the Trainer.

        Args:
            args, control, others: not used.
            state: whose epoch is set.
        """
        state.epoch = state.global_step / self._steps_per_epoch


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
