"""Names that users of Opacus type: each that Lethe has no use for is answered by the line that does the same here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from lethe.errors import InputError

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
    'state the unit in a run: run = lethe.plan(lethe.Run(unit="user", records=..., batches=lethe.Poisson(size=...), ...), epsilon=..., '
    "delta=...), counted in users; PrivacyEngine(run).make_private(module=..., optimizer=..., losses=..., data=..., users=ids)"
)

ARGUMENTS: Mapping[str, str] = {
    "poisson_sampling": "leave it out for Poisson batches; shuffled ones cost another epsilon, and it is accounted for: run = "
    "lethe.plan(lethe.Run(records=..., batches=lethe.Shuffled(size=...), passes=..., step_size=..., clip_norm=..., release='all', "
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
    "register_grad_sampler": "lethe.train.clip.register_rule; most layers need none",
    "accountant": "engine.get_epsilon(delta) after any step; lethe.certify(engine.record(), delta) at the end; engine.run says the noise",
    "PRVAccountant": "lethe.certify(run, delta) tries every theorem, exact loss distributions among them",
    "RDPAccountant": "lethe.certify(run, delta) tries every theorem; lethe.integrations.dp_accounting has an accountant to compose with",
    "get_noise_multiplier": "lethe.plan(run, epsilon=target_epsilon, delta=target_delta).noise_multiplier, with run = "
    "lethe.Run(records=..., batches=lethe.Poisson(size=sample_rate * records), steps=..., step_size=1.0, clip_norm=1.0, release='all', "
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
