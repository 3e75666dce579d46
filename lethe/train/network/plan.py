"""Checks, before a network's training, that run, model and optimiser are what the run's certificate assumes; makes the clipper. `Trainer`
calls these functions before it reads a record; what a certificate does not cover is refused with an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from lethe.errors import HypothesisError, InputError
from lethe.run.fields import SHORTENING
from lethe.run.run import Run
from lethe.train.clip.adaptive import AdaptiveNorm
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import METHODS, as_groups
from lethe.train.clip.isolated import Losses
from lethe.train.clip.parts.selection import SelectedTables
from lethe.train.clip.rules.registry import per_layer
from lethe.train.clip.sum_error import margin_of
from lethe.train.core.proximal import ProximalGroup
from lethe.train.core.tensors import checked_tensors, local, sharing_memory
from lethe.train.distributed.workers import Workers
from lethe.train.options import TrainOptions

# By name: importing the sharded ones takes as long as a short training, and they are absent where torch is built without them.
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_QUANTILE = 0.5  # Andrew et al. 2019, arXiv:1905.03871
_OF_WRAPPERS = (
    "give the bare module (wrapper.module), whole in every process: with torch.distributed initialised the clipped sums are added up here. "
    "To shard it use torch.distributed.fsdp.fully_shard(module)."
)


def clipper_of(
    model: nn.Module, losses: Losses, run: Run, options: TrainOptions, *, budgeted: bool
) -> tuple[Run, Clipper, AdaptiveNorm | None, SelectedTables | None]:
    """The run with the clipping that is used, which is recorded and certified, the clipper that keeps to it, an adaptive norm, and tables
    whose rows are selected.

    `budgeted`: whether the filter of a run with noise_budget is asked before every step.
    """
    groups: Any = options.clip_groups
    if groups == "per_layer":
        groups = per_layer(model, run.clip_norm or 1.0)  # of a run without one, groups are refused
    run = _as_selected(_as_clipped(run, groups, options.method), options)
    if isinstance(model, nn.Module):
        _refuse_wrapped(model)
    drawn = run.uncorrelated
    if run.noise_budget is None:
        drawn.noise_stds  # noqa: B018  refuses a run without noise, before anything is trained
    if run.clip_norm is None:
        raise InputError(
            "clip_norm: null; nothing bounds the gradients of a network but clipping.",
            source="run.clip_norm",
            remedy="set clip_norm, or train a Linear, whose gradient bounds hold by construction.",
        )
    if run.noise_budget is not None and not budgeted:
        raise InputError(
            f"noise_budget: got {run.noise_budget:g}; a training loop of your own cannot have it: its filter must decide on each step.",
            source="run.noise_budget",
            remedy="use lethe.train.fit, or drop noise_budget: noise that is fixed in advance needs no filter.",
        )
    size = options.physical_size
    part = size if isinstance(size, int) and size > 0 else None  # what is no size is refused by the stream
    selected = None if options.sparse_selection is None else options.sparse_selection.of(dict(model.named_parameters()))
    adaptive = AdaptiveNorm(drawn) if run.clip_method == "adaptive" else None
    clipper = Clipper(
        model,
        losses,
        run.clip_norm if groups is None else tuple(groups),
        method="clip" if adaptive is not None else run.clip_method,
        margin=margin_of(drawn, part, processes=Workers.current().world_size),
        isolation=options.isolation,
        gradient_memory=options.gradient_memory,
        contributing=None if selected is None else selected.tables,
        adaptive=adaptive,
    )
    if run.clip_method not in SHORTENING and run.release == "last":
        raise HypothesisError(
            f"clip_method: {run.clip_method} is no projection, so nothing is known of a step's Lipschitz constant; release is last.",
            source="method or run.clip_method, run.release",
            remedy="use method clip, or certify with release: all.",
        )
    return run, clipper, adaptive, selected


def _as_selected(run: Run, options: TrainOptions) -> Run:
    """The run with the share that the choice of rows is given; an error where it says another, or that share enlarges its bound."""
    share = None if options.sparse_selection is None else options.sparse_selection.share
    selecting = run.replace(sparse_selection=share)
    same = run.sparse_selection in (None, share) and not run.record_bound < selecting.record_bound
    if not same or (share is not None and (options.secure or Workers.current().several)):
        raise InputError(
            f"sparse_selection: got the share {share}; the run says {run.sparse_selection}, and bounds gradients by {run.record_bound:g}.",
            source="SparseSelection.share, run.sparse_selection, loss.gradient_bound; or secure noise, or several processes",
            remedy="plan a run with sparse_selection, and train it in one process; or leave the selection out.",
        )
    return selecting


def _as_clipped(run: Run, groups: Any, method: Any) -> Run:
    """The run with these groups and this method; an error where it says others."""
    if any(name not in (None, "envelope", "adaptive", *METHODS) for name in (method, run.clip_method)):
        raise InputError(
            f"method: got {method!r}, clip_method {run.clip_method}; it needs {', '.join(METHODS)}, adaptive, of fit directional, or None."
        )
    if "envelope" in (method, run.clip_method):
        raise InputError(
            "clip_method: got envelope; it is known of linear models only, and a network's would cost a minimisation a record.",
            source="method or run.clip_method",
            remedy="use clip_method: clip; or freeze the network but for its last layer, and train it as a Head.",
        )
    if method is not None and method != run.clip_method:
        if run.clip_method != "clip":
            raise InputError(f"method: got {method!r}; the run says {run.clip_method}.", remedy="leave method out: the run's is used.")
        lengthened = run.replace(clip_method=method, clip_quantile=_QUANTILE if method == "adaptive" else None)
        if run.record_bound < lengthened.record_bound:
            raise HypothesisError(
                f"method: {method} makes per-sample gradients of norm up to {run.clip_norm:g}; the run counts with "
                f"loss.gradient_bound = {run.record_bound:g}.",
                source="method, run.loss.gradient_bound",
                remedy=f"plan the run with clip_method: {method}, use method clip, or leave the gradient bound out.",
            )
        run = lengthened
    if groups is None:
        if run.clip_groups is not None:
            raise InputError(
                f"clip_groups: none were given; the run says norms of {len(run.clip_groups)}, and not which parameters they are for.",
                remedy="give a Group with its parameters for each of them, in their order.",
            )
        return run
    if not isinstance(groups, list | tuple):
        raise InputError(f"clip_groups: got {groups!r}; it needs a list of Group, 'per_layer', or None.")
    norms = tuple(group.clip_norm for group in as_groups(tuple(groups)))
    if run.clip_groups is not None and run.clip_groups != norms:
        raise InputError(
            f"clip_groups: got the norms {list(norms)}; the run says {list(run.clip_groups)}.",
            remedy="give the run's, in their order, or leave clip_groups out of the run: what is used is recorded.",
        )
    return run.replace(clip_groups=norms)


def _refuse_wrapped(model: nn.Module) -> None:
    """Refuse a model whose gradients are exchanged before they are clipped; what `bare_module` takes off and `Shards` gathers is none."""
    for path, module in model.named_modules():
        for kind in type(module).__mro__:
            if kind.__name__ in _WRAPPERS and kind.__module__.startswith("torch."):
                what = "it copies the model, or adds up whole gradients, where no record's own is clipped"
                raise InputError(f"{path or 'model'}: wrapped in {kind.__name__}: {what}.", remedy=_OF_WRAPPERS)


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require grad, by name: float32 or float64, finite, all on one device."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    tensors = {name: local(parameter).detach() for name, parameter in named.items()}
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"parameter {name}: got {tensor.dtype}; it needs float32 or float64: noise on coarser numbers is not Gaussian.",
                source="model",
                remedy="keep the parameters in float32 (model.float()) and compute in half precision under torch.autocast.",
            )
    checked_tensors(tensors.values())
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise InputError("model: its parameters are not finite before training.", remedy="initialise them.")
    devices = {str(tensor.device) for tensor in tensors.values()}
    if len(devices) != 1:
        raise InputError(
            f"model: its trained parameters are on {', '.join(sorted(devices))}; they need to be on one device.",
            remedy="move the model before training: model.to(device).",
        )
    if shared := sharing_memory(tensors):
        raise InputError(
            f"parameters {' and '.join(shared)} share numbers in memory: a step would move these once for each, and they are not the "
            "parameters that the run is about.",
            source="a parameter whose .data is another's, or a view of it",
            remedy="let two modules own the same parameter (b.weight = a.weight), or give each its own memory: tensor.clone().",
        )
    return named


def refuse_for_shards(run: Run, options: TrainOptions) -> None:
    """Refuse what would need whole parameters between two steps, where each process has shards."""
    requested = {
        "release: last": run.release == "last",
        "run.regulariser": bool(run.regularisers),
        "clip_method: adaptive": run.clip_method == "adaptive",
        "run.pass_weights": run.pass_weights is not None,
        "proximal_groups": options.proximal_groups is not None,
        "noise_policy": options.noise_policy is not None,
        "validation_data": options.validation_data is not None,
        "ema, and checkpoints": options.ema is not None and options.checkpoints is not None,
    }
    if unsupported := [name for name, is_requested in requested.items() if is_requested]:
        raise InputError(
            f"{unsupported[0]}: given, and the model is in shards (fully_shard); it needs whole parameters after every step.",
            source=unsupported[0],
            remedy="leave it out, or give the model whole in every process.",
        )


def refuse_groups(groups: Sequence[ProximalGroup], run: Run) -> None:
    """Refuse proximal groups that the run's certificate does not cover, or that lack a part; names are `NetworkProximal`'s to refuse."""
    if not isinstance(groups, list | tuple) or not groups or not all(isinstance(group, ProximalGroup) for group in groups):
        raise InputError(f"proximal_groups: got {groups!r}; it needs a list of ProximalGroup.", remedy="leave it out where there is none.")
    _refuse_plain("proximal_groups", run)
    for group in groups:
        if not isinstance(group.regularisers, list | tuple) or not group.regularisers:
            raise InputError(f"regularisers: got {group.regularisers!r}; a proximal group needs at least one, in a tuple.")
        if not isinstance(group.parameters, list | tuple | None):
            raise InputError(f"parameters: got {group.parameters!r}; a proximal group needs names, in a tuple, or None for all.")


def refuse_optimizer(optimizer: Any, run: Run, named: Mapping[str, nn.Parameter], model: nn.Module) -> None:
    """Refuse an optimiser that the run's certificate does not cover, or that would leave parameters out."""
    refuse_other_gradients(optimizer)
    _refuse_plain("optimizer", run)
    optimised = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if missing := [name for name, parameter in named.items() if id(parameter) not in optimised]:
        raise InputError(
            f"optimizer: {', '.join(missing[:3])} ({len(missing)} of {len(named)} trained parameters) are not among its own; "
            "they would never move.",
            remedy="give the optimiser model.parameters(), or set requires_grad of the others to False.",
        )
    if foreign := optimised - {id(parameter) for parameter in model.parameters()}:
        raise InputError(
            f"optimizer: {len(foreign)} of its parameters are not the model's; nothing clips their gradients.",
            remedy="make them part of the model, or leave them out.",
        )


def _refuse_plain(option: str, run: Run) -> None:
    """Refuse a run whose certificate counts with the steps of the plain recursion, and none besides."""
    if run.release == "last":
        raise HypothesisError(
            f"{option}: given, or a training loop of your own, with release: last; that needs the plain SGD steps that its theorem counts.",
            source=f"{option}, run.release",
            remedy="set release: all, or train by lethe.train.fit with run.regulariser alone.",
        )
    if run.regularisers or run.pass_weights is not None:
        raise InputError(
            f"{option}: given together with the run's own regulariser or pass_weights, which belong to the plain recursion.",
            source=f"{option}, run.regulariser, run.pass_weights",
            remedy="drop these two, and write the regularisers into proximal_groups.",
        )


def refuse_other_gradients(optimizer: object) -> None:
    """Refuse what is no optimiser, and LBFGS, whose line search asks for gradients that were never noised."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        remedy = 'give optimizer="adamw", or torch.optim.AdamW(model.parameters()).'
        raise InputError(f"optimizer: got {type(optimizer).__name__}; it needs a torch.optim.Optimizer.", remedy=remedy)
    if any(isinstance(part, torch.optim.LBFGS) for part in getattr(optimizer, "parts", (optimizer,))):
        raise InputError(
            "optimizer: LBFGS computes gradients of its own within a step; they are neither clipped nor noised.",
            source="torch.optim.LBFGS.step(closure)",
            remedy="use an optimiser that takes one gradient a step.",
        )
