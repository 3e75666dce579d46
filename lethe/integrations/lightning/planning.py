"""The run that a Trainer and its DataLoader stand for."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from lethe.accounting.plan import plan
from lethe.calculus.large_delta import delta_for
from lethe.errors import InputError
from lethe.integrations.recorded_training import PlannedTraining
from lethe.run.known_fields import refuse_users, require_run
from lethe.run.neighbours import Neighbours
from lethe.run.run import Run
from lethe.train.data.users import owners_of
from lethe.train.planning import poisson_run, steps_per_epoch


def planned(
    trainer: Any,
    loader: DataLoader[Any],
    records: int,
    *,
    epsilon: float | None,
    delta: float,
    run: Run | None,
    clip_norm: float | None,
    neighbours: Neighbours,
    allow_large_delta: bool = False,
    users: Any = None,
) -> PlannedTraining:
    r"""The run of a Trainer.

    A logical batch is the loader's batch_size x accumulate_grad_batches records (expected) in each process, of which the first factor are
    on its device at once. An epoch has as many steps as without privacy, and T is max_steps, or max_epochs of them, whichever is fewer.
    With users, all of these numbers count users.

    Args:
        trainer: checked already.
        loader: that trains.
        records: n.
        epsilon: what all may cost, at `delta`; None where `run` is given.
        delta: in (0, 1).
        run: instead of epsilon; batches and clip norm are its own, and the Trainer must take as many steps.
        clip_norm: with epsilon.
        neighbours: of a run that is made here.
        allow_large_delta: whether a delta of 1/records or more is meant.
        users: the id of each record's user; None: a record is the unit.
    Raises:
        InputError: arguments that contradict one another, or training without an end.
        CalibrationError: no noise meets the target.
    """
    physical, accumulated = int(loader.batch_size or 1), int(trainer.accumulate_grad_batches)
    units = records if users is None else int(owners_of(users).max()) + 1
    logical = physical * accumulated * trainer.world_size
    if run is None:
        if clip_norm is None:
            raise InputError(
                "clip_norm: none was given; it needs the norm that each record's gradient is clipped to.",
                remedy="PrivateTraining(epsilon=3.0, delta=1e-5, clip_norm=1.0).",
            )
        per_epoch = steps_per_epoch(units, physical * trainer.world_size, accumulated, drop_last=loader.drop_last)
        told: dict[str, Any] = {"clip_norm": clip_norm, "neighbours": neighbours, "of_users": users is not None}
        made = poisson_run(units, logical, _steps(trainer, per_epoch), _rate(trainer), **told)
        return PlannedTraining(plan(made, epsilon, delta, allow_large_delta=allow_large_delta), physical, per_epoch)
    delta_for(require_run(run, correlated=True).records, delta, allow_large_delta=allow_large_delta)  # before the long work
    if users is None:
        refuse_users(run, "PrivateTraining without users=")
    if clip_norm is not None and clip_norm != run.clip_norm:
        raise InputError(f"clip_norm: got {clip_norm!r}; the run says {run.clip_norm!r}.", remedy="leave it out: the run's is used.")
    if accumulated != 1 and logical != run.batch_size:
        several = "" if trainer.world_size == 1 else f" in each of {trainer.world_size} processes"
        raise InputError(
            f"accumulate_grad_batches: got {accumulated}, with batches of {physical}{several}; the run says {run.batch_size} {run.unit}s a "
            "step.",
            source="Trainer, run.batches",
            remedy="leave it at 1: the run says how many records a step has; the loader's batch_size, how many are on the device at once.",
        )
    per_epoch = steps_per_epoch(units, run.batch_size, 1, drop_last=False)
    steps = _steps(trainer, per_epoch)
    if steps != run.total_steps:
        raise InputError(
            f"max_steps: the Trainer takes {steps} steps; the run says {run.total_steps}.",
            source=f"max_steps and max_epochs of the Trainer, with {per_epoch} steps an epoch",
            remedy=f"Trainer(max_steps={run.total_steps}, max_epochs=-1).",
        )
    return PlannedTraining(run, min(physical, run.batch_size), per_epoch)


def _steps(trainer: Any, per_epoch: int) -> int:
    most_steps, most_epochs = trainer.max_steps, trainer.max_epochs
    limits = [*([most_steps] if most_steps != -1 else []), *([most_epochs * per_epoch] if most_epochs not in (None, -1) else [])]
    if not limits or min(limits) < 1:
        raise InputError(
            f"max_epochs: got {most_epochs}, max_steps: {most_steps}; it needs to be known how long training lasts, at most.",
            source="the noise, and what is spent, follow from the number of steps",
            remedy="Trainer(max_epochs=...), or Trainer(max_steps=...).",
        )
    return min(limits)


def _rate(trainer: Any) -> Any:
    groups = trainer.optimizers[0].param_groups if trainer.optimizers else []
    return groups[0]["lr"] if groups else None  # without an optimiser, which is refused in a moment, Lightning has one of no parameters
