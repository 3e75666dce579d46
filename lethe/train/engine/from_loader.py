"""From a user's DataLoader to a source of its records and the run that it stands for."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from lethe.calculus.domains import require_positive
from lethe.errors import InputError, LetheWarning
from lethe.run.batches import Poisson
from lethe.run.run import Run
from lethe.train.data import as_source
from lethe.train.data.sources.base import Source, require_whole
from lethe.train.data.sources.map_style import length_of
from lethe.train.data.sources.recognise import records_of

_DESIGN = "which records meet which step is the batch design of the run, and part of the guarantee"


class LoaderFacts(NamedTuple):
    """What a DataLoader says.

    Args:
        source: its records, with its collate function and workers.
        size: of a batch.
        steps_per_epoch: how many batches an epoch has; the last may be a smaller one.
    """

    source: Source
    size: int
    steps_per_epoch: int


def facts_of(loader: Any) -> LoaderFacts:
    """The records, batch size and epoch of a DataLoader, which is itself not iterated: batches are drawn as the run's design says.

    Its data set, collate function, batch size, length and workers are used. Shuffling, which the design replaces, and what only makes
    reading faster (pin_memory, persistent_workers, prefetch_factor) are ignored; `generator` and `worker_init_fn` are as well, with a
    warning.

    Raises:
        InputError: no DataLoader, or one whose sampler draws records in a way that no design of the run stands for.
    """
    if not isinstance(loader, DataLoader):
        raise InputError(
            f"data_loader: got {type(loader).__name__}; it needs a torch.utils.data.DataLoader.", remedy="give the data set as data=..."
        )
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
            source=_DESIGN,
            remedy="give the DataLoader as it was before accelerator.prepare; the private one that you get for it may be prepared."
            if type(loader).__module__.startswith("accelerate")
            else "give DataLoader(dataset, batch_size=..., shuffle=True), or a Run with its batches and the data set as data=...",
        )
    for name in ("generator", "worker_init_fn"):
        if getattr(loader, name) is not None:
            warnings.warn(
                LetheWarning(f"data_loader.{name} is ignored: batches are drawn from fresh entropy, and workers start as they are."),
                stacklevel=5,
            )
    if not len(loader):
        raise InputError(
            f"data_loader: it has no batch: {records} records, batch_size={loader.batch_size}, drop_last={loader.drop_last}.",
            remedy="give records, and a batch_size below their number, or leave drop_last out: a Poisson batch has no last one.",
        )
    return LoaderFacts(records_of(loader), loader.batch_size, len(loader))


def run_like_opacus(
    facts: LoaderFacts, optimizer: Any, *, epochs: Any, steps: Any, max_grad_norm: float | None, noise_multiplier: float | None = None
) -> Run:
    r"""The run that Opacus' `make_private` stands for: Poisson batches of the loader's size, every iterate released, records added or
    removed, $T = $ epochs x len(data_loader) steps.

    Args:
        facts: of the loader.
        optimizer: whose learning rate is noted as step size; it does not enter the accounting of every iterate.
        epochs, steps: exactly one of them.
        max_grad_norm: C.
        noise_multiplier: z; None: still to be planned.
    Raises:
        InputError: not exactly one of epochs and steps, no clip norm, or a number out of range.
    """
    if (epochs is None) == (steps is None):
        raise InputError(
            f"epochs: got {epochs!r}, steps: {steps!r}; it needs one of them: how long training lasts, at most.",
            source="noise, and what is spent, follow from the number of steps; a loop may end earlier, and is certified for all of them",
            remedy="write epochs=10, or steps=...",
        )
    if max_grad_norm is None:
        raise InputError("max_grad_norm: none was given; it needs the norm that each record's gradient is clipped to.")
    require_positive("max_grad_norm", max_grad_norm)
    length = require_whole("steps", steps, 1) if epochs is None else require_whole("epochs", epochs, 1) * facts.steps_per_epoch
    rates = [group["lr"] for group in optimizer.param_groups] if isinstance(optimizer, torch.optim.Optimizer) else []
    usable = rates and isinstance(rates[0], float | int) and 0 < rates[0] < float("inf")
    return Run(
        records=len(facts.source),
        batches=Poisson(size=min(facts.size, len(facts.source))),
        steps=length,
        step_size=float(rates[0]) if usable else 1.0,
        clip_norm=max_grad_norm,
        noise_multiplier=noise_multiplier,
        release="all",
        neighbours="add_or_remove",
    )
