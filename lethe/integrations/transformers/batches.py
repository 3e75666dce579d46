"""The records of a Trainer, collated by its collator, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

from lethe.errors import InputError
from lethe.train.core.comparison import first_line
from lethe.train.data.map_style import MapStyleSource

_NO_COLUMN = (
    "no column of the data set is an argument of the model's forward: remove_unused_columns=False, or columns that are called as the "
    "arguments are."
)


class Collated:
    """A data collator that says what is wrong with it; a class, so that processes can be sent it.

    Args:
        collator: of the Trainer, from a list of records to a mapping of tensors.
    """

    def __init__(self, collator: Callable[[list[Any]], Any]) -> None:
        self._collator = collator

    def __call__(self, records: list[Any]) -> dict[str, Any]:
        """The batch.

        Raises:
            InputError: it cannot be made, or is no mapping.
        """
        try:
            batch = self._collator(records)
        except InputError:
            raise
        except Exception as error:
            named = not records or isinstance(records[0], Mapping)
            raise InputError(
                f"data_collator: of {len(records)} records it makes no batch: {type(error).__name__}: {first_line(error)}",
                source="the data collator, or records whose parts disagree in length" if named else "train_dataset, data_collator",
                remedy="pad each part of a record to one length: DataCollatorWithPadding(tokenizer)."
                if named
                else f"a record is a {type(records[0]).__name__}: make it a mapping of the model's arguments, as tokenizer(text) does.",
            ) from error
        if not isinstance(batch, Mapping):
            raise InputError(f"data_collator: made a {type(batch).__name__}; it needs a mapping of the model's arguments to tensors.")
        if all(value is None for value in batch.values()):
            raise InputError("data_collator: made an empty batch.", remedy=_NO_COLUMN)
        return dict(batch)


def source_of(trainer: Any, *, declared_apart: bool) -> MapStyleSource:
    """The records of a Trainer, collated by its collator.

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
    reading = {"num_workers": args.dataloader_num_workers, "multiprocessing_context": args.dataloader_multiprocessing_context}
    return MapStyleSource(dataset, collate=Collated(collator), declared_apart=declared_apart, **reading)


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
