"""What a Trainer needs beside its loop: its records as a data source, a model card with the certificate, and resuming. `privatize`'s
Trainer calls it. Training resumes from Lethe's journal alone, never from an earlier checkpoint-N, whose later steps were already released
and count.
"""

import dataclasses
import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub.repocard import metadata_load, metadata_save
from torch import Tensor
from transformers import DataCollatorForLanguageModeling, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import lethe.report
from lethe.certificates.certificate import Certificate
from lethe.documents.strict import write_bytes
from lethe.errors import InputError
from lethe.train import Checkpoints
from lethe.train.core.comparison import first_line
from lethe.train.data.map_style import MapStyleSource
from lethe.train.distributed.workers import Workers, ending_together

# Beside output_dir, and not in it: what lies there is as private as the data, and output_dir is what people publish.
_ENDING = ".private"
_EVERY = 500


class KeptState:
    """The Trainer's state, for a checkpoint: its log, and how far it is."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """The Trainer's state as one JSON text."""
        return {"state": json.dumps(dataclasses.asdict(self._trainer.state))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the log back, and the step; what the Trainer was told anew stays."""
        before = TrainerState(**json.loads(state["state"]))
        for name in ("log_history", "global_step", "best_metric", "best_global_step", "best_model_checkpoint"):
            setattr(self._trainer.state, name, getattr(before, name))


def checkpoints_of(checkpoints: Checkpoints | str | os.PathLike[str] | None, args: TrainingArguments) -> Checkpoints | None:
    """Where the training is kept: what the trainer names; else a folder beside output_dir, unless save_strategy is "no"."""
    if checkpoints is not None:
        return Checkpoints.of(checkpoints)
    if getattr(args.save_strategy, "value", args.save_strategy) == "no":
        return None
    every = max(1, int(args.save_steps)) if args.save_steps >= 1 else _EVERY
    return Checkpoints(folder=Path(str(args.output_dir).rstrip(os.sep) + _ENDING), every=every)


@ending_together
def refuse_earlier(resume: str | bool | None, args: TrainingArguments, folder: Path | None) -> bool:
    """Whether training is to be taken up again: `resume` is True, or the folder of the last checkpoint, or of all; not an earlier one.

    Of several processes number 0, which keeps the folder, looks into it.
    """
    if resume in (None, False) or not Workers.current().root:
        return resume not in (None, False)
    if folder is None or not (folder / "journal").exists():
        raise InputError(
            f"resume_from_checkpoint: got {resume!r}, and there is no training to take up in {folder or 'any folder'}.",
            remedy="leave it out to begin (from the weights of another training: Model.from_pretrained(checkpoint)); and keep "
            "save_strategy at steps or epoch, so that there is one the next time.",
        )
    output = Path(str(args.output_dir))
    last = get_last_checkpoint(str(output)) if output.is_dir() else None
    earlier_folders = {path.resolve() for path in (output, folder, *([Path(last)] if last else []))}
    if resume is not True and Path(str(resume)).resolve() not in earlier_folders:
        raise InputError(
            f"resume_from_checkpoint: got {resume!r}, which is not where this training is.",
            source="steps that were taken are released: from an earlier checkpoint they would be taken twice, and cost twice",
            remedy="resume_from_checkpoint=True: training goes on from Lethe's own checkpoint, with the step after the last one released.",
        )
    return True


def refuse_begun(resumed: int, requested: bool, folder: Path | None) -> None:
    """Refuse to go on unasked after some steps, where somebody may have meant to begin anew."""
    if resumed and not requested:
        raise InputError(
            f"train: {resumed} steps of this run were taken before, in {folder}; they are released and count.",
            source="output_dir, or checkpoints=",
            remedy="trainer.train(resume_from_checkpoint=True) goes on; another output_dir begins another run, whose cost adds up.",
        )


def caught_up(scheduler: Any, steps: int) -> None:
    """Take a scheduler past steps that were released and lost: the schedule is of steps, not of those that moved the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimiser did not step
        for _ in range(steps):
            scheduler.step()


_NO_COLUMN = (
    "no column of the data set is an argument of the model's forward: remove_unused_columns=False, or columns that are called as the "
    "arguments are."
)
_BEGIN, _END = "<!-- lethe: begin -->", "<!-- lethe: end -->"


class Collated:
    """A data collator that says what is wrong with it; a class, so that processes can be sent it.

    Texts are left out. What has k rows of each record, in k blocks of all records, such as chosen and rejected answers, is given a row for
    each; `unfolded` puts it back.
    """

    def __init__(self, collator: Callable[[list[Any]], Any]) -> None:
        self._collator = collator
        self._several: set[str] = set()

    def __call__(self, records: list[Any]) -> dict[str, Any]:
        """The batch, or what is wrong with it."""
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
        batch_tensors: dict[str, Any] = {}
        for name, value in batch.items():
            if isinstance(value, list | tuple) and value and isinstance(value[0], str | Mapping):
                continue
            batch_tensors[name] = value
            if isinstance(value, Tensor) and value.dim() and len(value) != len(records) and len(value) % len(records) == 0:
                self._several.add(name)
                batch_tensors[name] = value.unflatten(0, (-1, len(records))).transpose(0, 1).contiguous()
        return batch_tensors

    def unfolded(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The batch as the collator makes it."""
        return {name: value.transpose(0, 1).flatten(0, 1) if name in self._several else value for name, value in batch.items()}


def source_of(trainer: Any, *, declared_apart: bool) -> tuple[MapStyleSource, Collated]:
    """The records of a Trainer, collated by its collator. That for masked language models masks each record by itself."""
    dataset, collator, args = trainer.train_dataset, trainer.data_collator, trainer.args
    if hasattr(dataset, "remove_columns") and hasattr(dataset, "column_names"):  # a datasets.Dataset
        dataset = trainer._remove_unused_columns(dataset, description="training")
    else:
        collator = trainer._get_collator_with_removed_columns(collator, description="training")
    reading = {"num_workers": args.dataloader_num_workers, "multiprocessing_context": args.dataloader_multiprocessing_context}
    is_language_modelling = type(trainer.data_collator) is DataCollatorForLanguageModeling and trainer.data_collator.mlm
    collated = Collated(collator)
    return MapStyleSource(dataset, collate=collated, declared_apart=declared_apart or is_language_modelling, **reading), collated


def add_certificate(card: Path, certificate: Certificate) -> None:
    """Write a certificate into a model card, in its metadata and in words below; one that is there from before is replaced."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.md"
        lethe.report.write(certificate, report)
        card_data, words = metadata_load(report) or {}, report.read_text().split("\n---\n", 1)[1].strip()
    theirs = (metadata_load(card) or {}) if card.exists() else {}
    tags = [theirs["tags"]] if isinstance(theirs.get("tags"), str) else list(theirs.get("tags") or ())
    text = re.sub(f"\n*{_BEGIN}.*?{_END}\n*", "\n", card.read_text() if card.exists() else "", flags=re.DOTALL).rstrip()
    write_bytes(card, f"{text}\n\n{_BEGIN}\n{words}\n{_END}\n".encode())
    metadata_save(
        card,
        {**theirs, "tags": list(dict.fromkeys([*tags, *card_data["tags"]])), "differential_privacy": card_data["differential_privacy"]},
    )
