"""What make_private was given: a run and its data set, or a DataLoader, as Opacus is given, of which a run is made."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from lethe.calculus.domains import require_count, require_positive
from lethe.certificates.counted_elsewhere import planned
from lethe.errors import InputError, LetheWarning
from lethe.run.batches import Poisson
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.train.data import as_source
from lethe.train.data.loaders import records_of
from lethe.train.data.map_style import length_of
from lethe.train.data.sources import Source
from lethe.train.engine.opacus_names import OF_USERS


class Opening(NamedTuple):
    """How a loop begins: the run, its records, the data set that the user gave, and the length of an epoch; None: there are no epochs."""

    run: Run
    data: Any
    dataset: Any
    steps_per_epoch: int | None = None


def of_run(
    run: Run,
    data: Any,
    *,
    noise_multiplier: float | None = None,
    max_grad_norm: float | None = None,
    target: tuple[float, float] | None = None,
    **of_loaders: Any,
) -> Opening:
    """The opening of an engine that has a run.

    Args:
        run: the engine's.
        data: its records.
        noise_multiplier, max_grad_norm: the run's own numbers, or None.
        target: an epsilon and a delta; None, or else it is refused.
        of_loaders: what belongs to an engine without a run; None, or else it is refused.
    Raises:
        InputError: arguments that contradict the run.
    """
    if target is not None:
        raise InputError(
            "make_private_with_epsilon: this engine has a run, whose noise is its own.",
            remedy="PrivacyEngine(lethe.plan(run, epsilon=..., delta=...)).make_private(module=..., optimizer=..., losses=..., data=...), "
            "or an engine without a run: PrivacyEngine().make_private_with_epsilon(...).",
        )
    for name, value in of_loaders.items():
        if value is not None:
            raise InputError(
                f"{name}: given, and the engine has a run, which says how records are drawn and for how long.",
                source="the run in PrivacyEngine(run)",
                remedy="give the data set as data=...; or leave the run out: PrivacyEngine().make_private(data_loader=..., ...).",
            )
    own = require_run(run, correlated=True).uncorrelated
    same_noise = noise_multiplier is None or bool((own.noise_multipliers[own.noisy_steps] == noise_multiplier).all())
    for name, value, same, said in (
        ("noise_multiplier", noise_multiplier, same_noise, own.to_document().get("noise_multiplier")),
        ("max_grad_norm", max_grad_norm, max_grad_norm in (None, own.clip_norm), own.clip_norm),
    ):
        if not same:
            remedy = "leave it out: the run's is used, and certified."
            raise InputError(f"{name}: got {value!r}; the run says {said!r}.", source="the run in PrivacyEngine(run)", remedy=remedy)
    return Opening(run, data, data.dataset if isinstance(data, DataLoader) else data)


def of_loader(
    loader: Any,
    optimizer: Any,
    *,
    noise_multiplier: float | None = None,
    max_grad_norm: float | None = None,
    target: tuple[float, float] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    allow_large_delta: bool = False,
    **of_runs: Any,
) -> Opening:
    r"""The opening of an engine without a run: that which Opacus' `make_private` stands for, Poisson batches of the loader's size, every
    iterate released, records added or removed, $T = $ epochs x len(loader) steps.

    Args:
        loader: a DataLoader; its data set, collate function, batch size, length and workers are used. It is not iterated.
        optimizer: whose learning rate is noted as step size; it does not enter the accounting of every iterate.
        noise_multiplier, max_grad_norm, target, epochs, steps, allow_large_delta: as of the engine.
        of_runs: arguments for engines with a run, each None.
    Raises:
        InputError: a loader that no design stands for, arguments that are missing or out of range.
        CalibrationError: no noise meets the target.
    """
    if loader is None or of_runs.pop("data", None) is not None:
        raise InputError(
            "data_loader: this engine has no run, and needs a DataLoader that says how large batches are.",
            remedy="give data_loader=..., or a run: PrivacyEngine(run).make_private(module=..., optimizer=..., losses=..., data=...).",
        )
    if noise_multiplier is None and target is None:
        raise InputError(
            "noise_multiplier: none was given, and the engine has no run.",
            remedy="give one, or a target: make_private_with_epsilon(target_epsilon=..., target_delta=..., ...).",
        )
    for name, value in of_runs.items():
        if value is not None:
            raise InputError(
                f"{name}: given, and the engine has no run: batch_size of a DataLoader counts records, where batches of users count users.",
                source="the unit of privacy, which is part of a run",
                remedy=OF_USERS,
            )
    source = _source_of(loader)
    if (epochs is None) == (steps is None):
        raise InputError(
            f"epochs: got {epochs!r}, steps: {steps!r}; it needs one of them: how long training lasts, at most.",
            source="noise, and what is spent, follow from the number of steps; a loop may end earlier, and is certified for all of them",
            remedy="write epochs=10, or steps=...",
        )
    if max_grad_norm is None:
        raise InputError("max_grad_norm: none was given; it needs the norm that each record's gradient is clipped to.")
    require_positive("max_grad_norm", max_grad_norm)
    rate = optimizer.param_groups[0]["lr"] if isinstance(optimizer, torch.optim.Optimizer) else 1.0
    run = Run(
        records=len(source),
        batches=Poisson(size=min(loader.batch_size, len(source))),
        steps=require_count("steps", steps) if epochs is None else require_count("epochs", epochs) * len(loader),
        step_size=float(rate) if isinstance(rate, float | int) and 0 < rate < float("inf") else 1.0,
        clip_norm=max_grad_norm,
        noise_multiplier=noise_multiplier,
        release="all",
        neighbours="add_or_remove",
    )
    counted = run if target is None else planned(run, *target, allow_large_delta=allow_large_delta)
    return Opening(counted, source, loader.dataset, len(loader))


def _source_of(loader: Any) -> Source:
    """The records of a DataLoader. What only makes reading faster is ignored; `generator` and `worker_init_fn` with a warning."""
    if not isinstance(loader, DataLoader):
        needed = "a torch.utils.data.DataLoader"
        raise InputError(f"data_loader: got {type(loader).__name__}; it needs {needed}.", remedy="give the data set as data=...")
    if isinstance(loader.dataset, IterableDataset):
        as_source(loader.dataset)  # refuses it
    records, sampler = length_of(loader.dataset), loader.sampler
    ordinary = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == records
    )
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler or not ordinary:
        drawn = loader.batch_sampler if loader.batch_size is None and loader.batch_sampler is not None else sampler
        raise InputError(
            f"data_loader: it draws by {type(drawn).__name__}, for which no batch design stands.",
            source="which records meet which step is the batch design of the run, and part of the guarantee",
            remedy="give the DataLoader as it was before accelerator.prepare; the private one that you get for it may be prepared."
            if type(loader).__module__.startswith("accelerate")
            else "give DataLoader(dataset, batch_size=..., shuffle=True), or a Run with its batches and the data set as data=...",
        )
    for name in ("generator", "worker_init_fn"):
        if getattr(loader, name) is not None:
            ignored = f"data_loader.{name} is ignored: batches are drawn from fresh entropy, and workers start as they are."
            warnings.warn(LetheWarning(ignored), stacklevel=5)
    if not len(loader):
        raise InputError(
            f"data_loader: it has no batch: {records} records, batch_size={loader.batch_size}, drop_last={loader.drop_last}.",
            remedy="give records, and a batch_size below their number, or leave drop_last out: a Poisson batch has no last one.",
        )
    return records_of(loader)
