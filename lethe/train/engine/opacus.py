"""What users of Opacus give and type: a DataLoader in the place of a run, and names, each answered by the line that does the same here."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from lethe.calculus.domains import require_count, require_positive
from lethe.errors import InputError, LetheWarning
from lethe.run.batches import Poisson
from lethe.run.run import Run
from lethe.train.data.loaders import records_of
from lethe.train.data.map_style import length_of
from lethe.train.data.sources import Source

_PHYSICAL = "PrivacyEngine(run, physical_size=64): the loader then gives micro-batches, and engine.stepped says when one completed a step"
_ANY_MODULE = (
    "nothing is wrapped and nothing needs a fixer: give make_private the model itself; what mixes records, as batch normalisation in train "
    "mode does, is refused when training begins"
)

OF_LOSSES = (
    "losses=lambda batch: criterion(model(batch[0]), batch[1]), of a criterion with reduction='none', and engine.backward(batch) in the "
    "loop: it computes the losses by itself"
)
OF_USERS = (
    'state the unit in a run: run = lethe.plan(lethe.Run(unit="user", records=..., batches=lethe.batches.Poisson(...), ...), epsilon=..., '
    "delta=...), counted in users; PrivacyEngine(run).make_private(module=..., optimizer=..., losses=..., data=..., users=ids)"
)

ARGUMENTS: Mapping[str, str] = {
    "poisson_sampling": "leave it out for Poisson batches; shuffled ones cost another epsilon, and it is accounted for: run = "
    "lethe.plan(lethe.Run(records=..., batches=lethe.batches.Shuffled(...), passes=..., step_size=..., clip_norm=..., release='all', "
    "neighbours='zero_out'), epsilon=..., delta=...); PrivacyEngine(run).make_private(module=..., optimizer=..., losses=..., data=...)",
    "clipping": "leave it out for one norm of all parameters; PrivacyEngine(run, clip_groups='per_layer') clips each layer by itself",
    "loss_reduction": "leave it out: the noisy sum is divided by the expected batch size; multiply the learning rate by it for a sum",
    "batch_first": "leave it out, and give the model's tensors with the records first, or transpose them inside the module",
    "grad_sample_mode": "leave it out: gradients of records are found the same way for every model",
    "wrap_model": "leave it out: nothing is wrapped",
    "rand_on_empty": "leave it out: an empty batch comes as one row that does not count, and takes its noisy step",
    "noise_generator": "PrivacyEngine(run, noise_generator=...): for tests, since whoever has it knows the noise",
    "criterion": OF_LOSSES,
    "delta": "target_delta here; delta of lethe.certify and engine.get_epsilon",
    "noise_multiplier": "leave it out: it is found for target_epsilon; make_private(noise_multiplier=...) takes one",
    "users": OF_USERS,
    "records_per_user": OF_USERS,
}
"""Argument of Opacus' make_private, or make_private_with_epsilon -> what to write."""

NAMES: Mapping[str, str] = {
    "GradSampleModule": _ANY_MODULE,
    "ModuleValidator": _ANY_MODULE,
    "validate": _ANY_MODULE,
    "is_compatible": _ANY_MODULE,
    "get_compatible_module": _ANY_MODULE,
    "BatchMemoryManager": _PHYSICAL,
    "max_physical_batch_size": _PHYSICAL,
    "DPOptimizer": "engine.make_private(module=..., optimizer=..., losses=...) guards the optimiser that you have, and returns it",
    "DPDataLoader": "engine.make_private(...) returns a loader of the run's batches; give it the data set",
    "register_grad_sampler": "lethe.train.register_rule; most layers need none",
    "accountant": "engine.get_epsilon(delta) after any step; lethe.certify(engine.record(), delta) at the end; engine.run says the noise",
    "PRVAccountant": "lethe.certify(run, delta) tries every theorem, exact loss distributions among them",
    "RDPAccountant": "lethe.certify(run, delta) tries every theorem; lethe.integrations.dp_accounting has an accountant to compose with",
    "get_noise_multiplier": "lethe.plan(run, epsilon=target_epsilon, delta=target_delta).noise_multiplier, with run = "
    "lethe.Run(records=..., batches=lethe.batches.Poisson(sample_rate * records), steps=..., step_size=1.0, clip_norm=1.0, release='all', "
    "neighbours='add_or_remove')",
    "secure_mode": "PrivacyEngine(run, secure=True)",
    "attach_step_hook": "optimizer.register_step_post_hook(hook) is PyTorch's own; the engine counts its steps by itself",
    "save_checkpoint": "PrivacyEngine(run, checkpoints=folder) saves as it goes and resumes with fresh noise; engine.save() saves now",
    "load_checkpoint": "PrivacyEngine(run, checkpoints=folder).make_private(...) goes on from what lies in the folder",
}
"""Name that Opacus exports, or attribute of its PrivacyEngine -> what to write."""


def refuse_name(module: str, name: str) -> NoReturn:
    """Answer a name that `lethe.train` does not export: one of Opacus by an InputError, since `from lethe.train import ...` would hide the
    message of an AttributeError."""
    if name in NAMES:
        raise InputError(f"{module} has no {name}, a name of Opacus.", remedy=NAMES[name])
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def refuse_beside_a_run(**given: Any) -> None:
    """Refuse what an engine's run says itself."""
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
        steps=require_count("steps", steps) if epochs is None else require_count("epochs", epochs) * len(loader),
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
