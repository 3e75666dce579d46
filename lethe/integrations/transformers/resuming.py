"""Taking a Trainer's training up again: from Lethe's journal alone, never from an earlier checkpoint-N."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from pathlib import Path
from typing import Any

from transformers import TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from lethe.errors import InputError
from lethe.train import Checkpoints
from lethe.train.distributed.workers import Workers, ending_together

# Beside output_dir, and not in it: what lies there is as private as the data, and output_dir is what people publish.
_ENDING = ".private"
_EVERY = 500


class KeptState:
    """The Trainer's state, for a checkpoint: its log, and how far it is."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """As one text: plain data."""
        return {"state": json.dumps(dataclasses.asdict(self._trainer.state))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the log back, and the step; what the Trainer was told anew stays."""
        before = TrainerState(**json.loads(state["state"]))
        for name in ("log_history", "global_step", "best_metric", "best_global_step", "best_model_checkpoint"):
            setattr(self._trainer.state, name, getattr(before, name))


def checkpoints_of(own: Checkpoints | str | os.PathLike[str] | None, args: TrainingArguments) -> Checkpoints | None:
    """Where the training is kept: what the PrivateTrainer names; else a folder beside output_dir, unless save_strategy is "no"."""
    if own is not None:
        return Checkpoints.of(own)
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
    known = {path.resolve() for path in (output, folder, *([Path(last)] if last else []))}
    if resume is not True and Path(str(resume)).resolve() not in known:
        raise InputError(
            f"resume_from_checkpoint: got {resume!r}, which is not where this training is.",
            source="steps that were taken are released: from an earlier checkpoint they would be taken twice, and cost twice",
            remedy="resume_from_checkpoint=True: training goes on from Lethe's own checkpoint, with the step after the last one released.",
        )
    return True


def refuse_begun(resumed: int, wanted: bool, folder: Path | None) -> None:
    """Refuse to go on unasked after some steps, where somebody may have meant to begin anew."""
    if resumed and not wanted:
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
