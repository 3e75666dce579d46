"""Makes the run of a training from a target (epsilon, delta) and, given or chosen, epochs, a batch size and a clip norm. `fit`,
`PrivacyEngine` and the integrations call `planned`: most users have no Run, and the noise must be the smallest that meets the target.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import DataLoader

from lethe.accounting.plan import plan
from lethe.calculus.domains import require_count, require_positive
from lethe.errors import InputError
from lethe.partitions.dask_tables import table_in_blocks
from lethe.run.batches import RandomAllocation
from lethe.run.losses import Loss, Unknown
from lethe.run.participation import Neighbours
from lethe.run.run import Run
from lethe.train.data.foreign_order import refuse_foreign_order
from lethe.train.data.loaders import as_source, records_of
from lethe.train.data.users import ids_of, owners_of
from lethe.train.distributed.workers import Workers
from lethe.train.settings import EPOCHS, SMALL_NORM, default_batch_size, default_lr

_TARGET = "fit(model, loss, data, epsilon=3.0, delta=1e-5); or a planned run: lethe.plan(run, epsilon, delta)."


class Words(NamedTuple):
    """What a training is told in the place of a run, as it was given; None: nothing was."""

    epsilon: float | None = None
    delta: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    clip_norm: float | None = None


class TrainingPlan(NamedTuple):
    """What is to be trained: the run, with its noise, planned for `delta`, None: it was given; the data, of a DataLoader its records; and
    the settings that were not given."""

    run: Run
    data: Any
    delta: float | None
    steps_per_epoch: int
    settings: Mapping[str, Any] = MappingProxyType({})


def planned(
    run: Run | None,
    words: Words,
    data: Any,
    *,
    users: Any = None,
    rate: Any = None,
    weights: float | None = None,
    loss: Loss | None = None,
    allow_large_delta: bool = False,
) -> TrainingPlan:
    r"""The caller's run, or the one that `words` describe, with the smallest noise that meets the target.

    What is called shuffling: random allocation, every iterate released, one record added or removed. An epoch is a pass, with as many steps
    as without privacy, $k = \lceil n/b\rceil$; a batch has n/k records in the mean. Of several processes b is of each. With a run the words
    say nothing; with users the numbers count them. `rate` is the learning rate, of a linear model the step size; None, and it is chosen
    for weights of this `weight_scale`.
    """
    if run is not None:
        for name, value in words._asdict().items():
            if value is not None:
                raise InputError(
                    f"{name}: given together with a run, which says it already.",
                    source="run",
                    remedy="leave it out, or the run: " + _TARGET,
                )
        return TrainingPlan(run, data, None, run.steps_per_pass if isinstance(run, Run) else 0)  # what is no run is refused by training
    if isinstance(data, DataLoader):
        refuse_foreign_order(data)
        words, data = words._replace(batch_size=words.batch_size or data.batch_size), records_of(data)
    if words.epsilon is None or words.delta is None:
        raise InputError(f"{'epsilon' if words.epsilon is None else 'delta'}: none was given, and no run.", remedy=_TARGET)
    units = _records(data, linear=loss is not None) if users is None else int(owners_of(ids_of(users, data)).max()) + 1
    epochs = EPOCHS if words.epochs is None else require_count("epochs", words.epochs)
    if words.batch_size is None:
        size = default_batch_size(units, epochs, words.epsilon, words.delta)
    else:
        size = require_count("batch_size", words.batch_size) * Workers.current().world_size
    per_epoch = steps_per_epoch(units, size)
    rate = rate if weights is None else default_lr(epochs * per_epoch, weights)
    norm = None if loss is not None else 1.0 if weights is None else SMALL_NORM
    norm = norm if words.clip_norm is None else require_positive("clip_norm", words.clip_norm)
    unplanned = shuffled_run(units, size, epochs * per_epoch, rate, clip_norm=norm, of_users=users is not None, loss=loss)
    noisy = plan(unplanned, words.epsilon, words.delta, allow_large_delta=allow_large_delta)  # pyright: ignore[reportArgumentType]
    chosen = {"epochs": epochs, "batch_size": noisy.batch_size, "clip_norm": norm}
    settings = {name: value for name, value in chosen.items() if getattr(words, name) is None and value is not None}
    return TrainingPlan(noisy, data, words.delta, per_epoch, settings | ({} if weights is None else {"lr": rate}))


def steps_per_epoch(units: int, size: int) -> int:
    """How many steps an epoch has without privacy, where a step takes so many of the units; none of them is dropped."""
    return -(-units // size)


def shuffled_run(
    units: int,
    size: int,
    steps: int,
    rate: Any,
    *,
    clip_norm: float | None,
    of_users: bool,
    neighbours: Neighbours | None = None,
    loss: Loss | None = None,
) -> Run:
    """The run of a training that was told no more than how large and how many its batches are; its noise is still to be planned.

    `rate` is the first learning rate, which the certificate of every iterate does not depend on.
    """
    usable = isinstance(rate, float | int) and 0 < rate < math.inf
    return Run(
        records=units,
        batches=RandomAllocation(size=-(-units // steps_per_epoch(units, size))),
        steps=steps,
        step_size=float(rate) if usable else 1.0,
        clip_norm=clip_norm,
        loss=Unknown() if loss is None else loss,
        release="all",
        neighbours=cast(Neighbours, neighbours),  # None: as of Run
        unit="user" if of_users else "record",
    )


def _records(data: Any, *, linear: bool) -> int:
    """How many records there are."""
    if linear and table_in_blocks(data[0] if isinstance(data, tuple | list) else data, targets=False) is not None:
        raise InputError("data: got a table in blocks, and no run.", remedy="count its records in a run: lethe.plan(lethe.Run(...), ...).")
    pair = linear and isinstance(data, tuple | list) and len(data) == 2
    return len(torch.as_tensor(data[1])) if pair else len(as_source(data))
