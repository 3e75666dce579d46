"""What make_private is given beside a run, or in its place: a DataLoader, as Opacus is given, of which a run is made."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from lethe.calculus.domains import require_positive
from lethe.errors import InputError, LetheWarning
from lethe.run.batches import Poisson
from lethe.run.run import Run
from lethe.train.data.sources.base import Source, require_whole
from lethe.train.data.sources.map_style import length_of
from lethe.train.data.sources.recognise import records_of
from lethe.train.engine.opacus_names import OF_USERS


def refuse_beside_a_run(**given: Any) -> None:
    """Refuse what an engine's run says itself.

    Raises:
        InputError: some of it is given, and not None.
    """
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"{name}: given, and the engine has a run, which says how records are drawn, for how long, and with what noise.",
                source="the run in PrivacyEngine(run)",
                remedy="plan the run, and give the data set: PrivacyEngine(lethe.plan(run, epsilon=..., delta=...))"
                ".make_private(module=..., optimizer=..., losses=..., data=...); or leave the run out: "
                "PrivacyEngine().make_private(data_loader=..., ...).",
            )


def run_of(
    loader: Any,
    optimizer: Any,
    *,
    noise_multiplier: float | None,
    max_grad_norm: float | None,
    epochs: int | None,
    steps: int | None,
    **of_runs: Any,
) -> tuple[Run, Source]:
    r"""The run that Opacus' `make_private` stands for, and its records: Poisson batches of the loader's size, every iterate released,
    records added or removed, $T = $ epochs x len(loader) steps.

    Args:
        loader: a DataLoader; its data set, collate function, batch size, length and workers are used. It is not iterated.
        optimizer: whose learning rate is noted as step size; it does not enter the accounting of every iterate.
        noise_multiplier, max_grad_norm, epochs, steps: as of the engine.
        of_runs: arguments for engines with a run; None, or else they are refused.
    Raises:
        InputError: a loader that no design stands for, arguments that are missing or out of range.
    """
    if not isinstance(loader, DataLoader) or of_runs.pop("data", None) is not None:
        raise InputError(
            f"data_loader: got {type(loader).__name__}; this engine has no run, and needs a torch.utils.data.DataLoader alone, which says "
            "how large batches are.",
            remedy="give data_loader=..., or a run: PrivacyEngine(run).make_private(module=..., optimizer=..., losses=..., data=...).",
        )
    for name, value in of_runs.items():
        if value is not None:
            raise InputError(
                f"{name}: given, and the engine has no run: batch_size of a DataLoader counts records, where batches of users count users.",
                source="the unit of privacy, which is part of a run",
                remedy=OF_USERS,
            )
    source, size = _source_of(loader), loader.batch_size
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
        batches=Poisson(size=min(size or 1, len(source))),
        steps=require_whole("steps", steps, 1) if epochs is None else require_whole("epochs", epochs, 1) * len(loader),
        step_size=float(rate) if isinstance(rate, float | int) and 0 < rate < float("inf") else 1.0,
        clip_norm=max_grad_norm,
        noise_multiplier=noise_multiplier,
        release="all",
        neighbours="add_or_remove",
    )
    return run, source


def _source_of(loader: DataLoader[Any]) -> Source:
    """The records of a DataLoader. What only makes reading faster is ignored; `generator` and `worker_init_fn` with a warning."""
    records, sampler = length_of(loader.dataset), loader.sampler
    shuffled = type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == records
    ordinary = shuffled or type(sampler) is SequentialSampler
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler or not ordinary:
        drawn = loader.batch_sampler if loader.batch_size is None and loader.batch_sampler is not None else sampler
        raise InputError(
            f"data_loader: it draws by {type(drawn).__name__}, for which no batch design stands.",
            source="which records meet which step is the batch design of the run, and part of the guarantee",
            remedy="give DataLoader(dataset, batch_size=..., shuffle=True), as it was before accelerator.prepare (the private one that you "
            "get for it may be prepared); or a Run with its batches and the data set as data=...",
        )
    for name in ("generator", "worker_init_fn"):
        if getattr(loader, name) is not None:
            ignored = f"data_loader.{name} is ignored: batches are drawn from fresh entropy, and workers start as they are."
            warnings.warn(LetheWarning(ignored), stacklevel=5)
    return records_of(loader)
