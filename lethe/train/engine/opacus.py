"""Names and arguments that users of Opacus type, each answered by an error with the line that does the same here. `lethe.train` and
`PrivacyEngine` look names up in it that they do not have.
"""

from collections.abc import Mapping
from typing import NoReturn

from lethe.errors import InputError
from lethe.errors.names import refuse_old_name

_ENGINE = "PrivacyEngine(model, optimizer, losses, data, epsilon=3.0, delta=1e-5, epochs=10, batch_size=256)"
_WITH = "PrivacyEngine(model, optimizer, losses, data, ..., options=TrainOptions({}))"
_PHYSICAL = _WITH.format("physical_size=64") + ": engine.stepped says when a micro-batch completed a step"
_ANY_MODULE = (
    "give PrivacyEngine the model itself: nothing is wrapped. Batch normalisation mixes records: fix_batch_norm(model) puts group "
    "normalisation in its place"
)
_RUN = "run = lethe.plan(lethe.Run(...), epsilon, delta); PrivacyEngine(model, optimizer, losses, data, run)"

OF_LOSSES = (
    "losses=lambda batch: criterion(model(batch[0]), batch[1]), of a criterion with reduction='none', and engine.backward(batch) in the "
    "loop: it computes the losses by itself"
)

ARGUMENTS: Mapping[str, str] = {
    "module": "PrivacyEngine(model, ...): the model comes first",
    "data_loader": "give it as data: its data set, batch size and collate function are used",
    "target_epsilon": "epsilon=...",
    "target_delta": "delta=...",
    "max_grad_norm": "clip_norm=...",
    "noise_multiplier": f"leave it out: it is found for epsilon; or state it in a run: {_RUN}",
    "steps": f"epochs=...; or state them in a run: {_RUN}",
    "poisson_sampling": "leave it out: an epoch is shuffled, each record once, and accounted for as that; Poisson batches are a run of "
    f"batches=lethe.batches.Poisson(256): {_RUN}",
    "neighbours": f"state the relation in a run: {_RUN}",
    "max_physical_batch_size": _PHYSICAL,
    "clipping": "leave it out for one norm of all parameters; " + _WITH.format("clip_groups='per_layer'"),
    "loss_reduction": "leave it out: the noisy sum is divided by the expected batch size; multiply the learning rate by it for a sum",
    "batch_first": "leave it out, and give the model's tensors with the records first, or transpose them inside the module",
    "grad_sample_mode": "leave it out: gradients of records are found the same way for every model",
    "wrap_model": "leave it out: nothing is wrapped",
    "rand_on_empty": "leave it out: an empty batch comes as one row that does not count, and takes its noisy step",
    "criterion": OF_LOSSES,
    "secure_mode": _WITH.format("secure=True"),
}
"""Argument of Opacus' PrivacyEngine, make_private or make_private_with_epsilon -> what to write."""

NAMES: Mapping[str, str] = {
    "make_private": _ENGINE + ": for batch in engine.batches(): engine.backward(batch); optimizer.step(); optimizer.zero_grad()",
    "make_private_with_epsilon": _ENGINE + ": for batch in engine.batches(): engine.backward(batch); optimizer.step()",
    "get_epsilon": "engine.epsilon() is that of the certificate; engine.epsilon(steps_fixed_in_advance=True) of the steps so far",
    "fit_linear": "fit(Linear(classes=10), None, (X, y), run)",
    "fit_head": "fit(Head(backbone, head), None, data, run)",
    "GradSampleModule": _ANY_MODULE,
    "ModuleValidator": _ANY_MODULE,
    "validate": _ANY_MODULE,
    "is_compatible": _ANY_MODULE,
    "get_compatible_module": _ANY_MODULE,
    "BatchMemoryManager": _PHYSICAL,
    "DPOptimizer": _ENGINE + " guards the optimiser that you have",
    "DPDataLoader": "engine.batches() gives the batches of the run",
    "register_grad_sampler": "lethe.train.register_rule; most layers need none",
    "accountant": "engine.epsilon() at any time; lethe.certify(engine.record(), delta) at the end; engine.run says the noise",
    "PRVAccountant": "lethe.certify(run, delta) tries every theorem, exact loss distributions among them",
    "RDPAccountant": "lethe.certify(run, delta) tries every theorem; lethe.integrations.dp_accounting has an accountant to compose with",
    "get_noise_multiplier": "lethe.plan(run, epsilon=target_epsilon, delta=target_delta).noise_multiplier, with run = "
    "lethe.Run(records=..., batches=lethe.batches.Poisson(sample_rate * records), steps=..., step_size=1.0, clip_norm=1.0, release='all')",
    "attach_step_hook": "optimizer.register_step_post_hook(hook) is PyTorch's own; the engine counts its steps by itself",
    "save_checkpoint": _WITH.format("checkpoints=folder") + " saves as it goes and resumes with fresh noise; engine.save() saves now",
    "load_checkpoint": _WITH.format("checkpoints=folder") + " goes on from what lies in the folder",
}
"""Name that Opacus exports, or Lethe once did, or attribute of a PrivacyEngine -> what to write."""


def refuse_name(module: str, name: str) -> NoReturn:
    """Answer a name that `lethe.train` does not export: one of Opacus, or an older one, by an InputError, since `from lethe.train import`
    would hide the message of an AttributeError."""
    if name in NAMES:
        raise InputError(f"{module} has no {name}.", remedy=NAMES[name])
    refuse_old_name(module, name)
