"""The run that a Trainer's arguments stand for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sized
from typing import Any

from transformers import TrainingArguments

from lethe.accounting.plan import plan
from lethe.calculus.large_delta import delta_for
from lethe.errors import InputError
from lethe.integrations.recorded_training import PlannedTraining
from lethe.run.known_fields import refuse_users, require_run
from lethe.run.neighbours import Neighbours
from lethe.run.run import Run
from lethe.train.data.users import owners_of
from lethe.train.planning import poisson_run, steps_per_epoch

_COUNTS = {
    "per_device_train_batch_size": "give how many records are on the device at once.",
    "gradient_accumulation_steps": "leave it at 1, or give how many times that many records a step has.",
    "num_train_epochs": "give how long training lasts, or max_steps; an untrained model needs no privacy.",
}


def planned(
    args: TrainingArguments,
    dataset: Any,
    *,
    epsilon: float | None,
    delta: float,
    run: Run | None,
    neighbours: Neighbours,
    allow_large_delta: bool = False,
    users: Any = None,
) -> PlannedTraining:
    r"""The run of a Trainer.

    A logical batch is per_device_train_batch_size x gradient_accumulation_steps records in each process, of which the first factor are on
    its device at once. An epoch has as many steps as without privacy, and T is max_steps, or num_train_epochs of them. max_grad_norm is
    the clip norm.
    With users, all of these numbers count users.

    Args:
        args: checked already.
        dataset: the records, with a length.
        epsilon: what all may cost, at `delta`; None where `run` is given.
        delta: in (0, 1).
        run: instead of epsilon; batches, steps and clip norm are its own, and arguments that say another thing are refused.
        neighbours: of a run that is made here.
        allow_large_delta: whether a delta of 1/records or more is meant.
        users: the id of each record's user; None: a record is the unit.
    Raises:
        InputError: neither or both of epsilon and run, no length, or arguments that contradict the run.
        CalibrationError: no noise meets the target.
    """
    if (epsilon is None) == (run is None):
        raise InputError(
            f"epsilon: got {epsilon!r}, run: {'none' if run is None else 'a run'}; it needs one of them.",
            remedy="PrivateTrainer(..., epsilon=3.0, delta=1e-5), or PrivateTrainer(..., run=run, delta=1e-5).",
        )
    if not isinstance(dataset, Sized):
        raise InputError(
            f"train_dataset: {type(dataset).__name__} has no length; the number of records is a public part of the guarantee.",
            remedy="give a map-style data set, such as datasets.Dataset.",
        )
    if run is not None and users is None:
        refuse_users(require_run(run, correlated=True), "PrivateTrainer without users=")
    units = len(dataset) if users is None else int(owners_of(users).max()) + 1
    physical, accumulated = args.per_device_train_batch_size, args.gradient_accumulation_steps
    logical = physical * accumulated * args.world_size if run is None else run.batch_size
    if not units:
        raise InputError(
            "train_dataset: it has no records; it needs at least one.", source="train_dataset", remedy="look at len(train_dataset)."
        )
    _require_counts(args)
    if run is None:
        per_epoch = steps_per_epoch(units, physical * args.world_size, accumulated, drop_last=args.dataloader_drop_last)
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)
        told: dict[str, Any] = {"clip_norm": _clip_norm(args), "neighbours": neighbours, "of_users": users is not None}
        made = poisson_run(units, logical, steps, args.learning_rate, **told)
        return PlannedTraining(plan(made, epsilon, delta, allow_large_delta=allow_large_delta), physical, per_epoch)
    delta_for(run.records, delta, allow_large_delta=allow_large_delta)  # before the long work
    per_epoch = steps_per_epoch(units, logical, 1, drop_last=False)
    _refuse_other_words(args, run, per_epoch)
    return PlannedTraining(run, min(physical, logical), per_epoch)


def _clip_norm(args: TrainingArguments) -> float:
    if not (isinstance(args.max_grad_norm, int | float) and 0 < args.max_grad_norm < math.inf):
        raise InputError(
            f"max_grad_norm: got {args.max_grad_norm!r}; it is the norm that each record's gradient is clipped to: a number > 0.",
            source="TrainingArguments",
            remedy="leave it at 1.0, or set it to the size of most records' gradients, judged by public data.",
        )
    return args.max_grad_norm


def _require_counts(args: TrainingArguments) -> None:
    """Refuse sizes and lengths of which there is none."""
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps", *(() if args.max_steps > 0 else ("num_train_epochs",))):
        value = getattr(args, name)
        if not 0 < value < math.inf:
            raise InputError(f"{name}: got {value}; it needs a number > 0.", source="TrainingArguments", remedy=_COUNTS[name])


def _refuse_other_words(args: TrainingArguments, run: Run, per_epoch: int) -> None:
    """Refuse arguments that were set to another thing than the run says; what was left at its default says nothing."""
    defaults = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    logical = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    steps = math.ceil(args.num_train_epochs * per_epoch)
    said = (
        ("max_grad_norm", args.max_grad_norm, run.clip_norm, args.max_grad_norm in (defaults["max_grad_norm"], run.clip_norm)),
        ("max_steps", args.max_steps, run.total_steps, args.max_steps <= 0 or args.max_steps == run.total_steps),
        (
            "num_train_epochs",
            args.num_train_epochs,
            f"{run.total_steps} steps",
            args.num_train_epochs == defaults["num_train_epochs"] or args.max_steps > 0 or steps == run.total_steps,
        ),
        (
            "gradient_accumulation_steps",
            args.gradient_accumulation_steps,
            f"batches of {run.batch_size}",
            args.gradient_accumulation_steps == 1 or logical == run.batch_size,
        ),
    )
    for name, got, wanted, agrees in said:
        if not agrees:
            raise InputError(
                f"{name}: got {got}; the run says {wanted}.", source="TrainingArguments, run", remedy="leave it out: the run's is used."
            )
