"""Which module owns which trained parameter, and how it is handled."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # the only name torch has for all of them
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from lethe.errors import InputError
from lethe.train.clipping.behaviour import behaviour, hooks_everywhere
from lethe.train.clipping.rules.registry import COMPUTING, RULES, rule_for
from lethe.train.clipping.rules.rule import Rule
from lethe.train.model_state.named_parts import NamedParts, Parts
from lethe.train.model_state.shared_scales import may_share_a_scale, refuse_shared_scale


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """A model's trained parameters, and the module whose rule handles each.

    Args:
        names: each trained parameter's first name in the model.
        rules: layers with a rule -> the rule.
        covered: layers with a rule -> the trained parameters inside, by the layer's own names.
        bare: other modules -> their own trained parameters.
        paths: each module's name in the model.
        behaviour: what decides how the modules compute; see there.
    """

    names: Mapping[nn.Parameter, str]
    rules: Mapping[nn.Module, Rule]
    covered: Mapping[nn.Module, Mapping[str, nn.Parameter]]
    bare: Mapping[nn.Module, Mapping[str, nn.Parameter]]
    paths: Mapping[nn.Module, str]
    behaviour: Hashable

    def describe(self, module: nn.Module) -> str:
        """A module, for an error."""
        return f"{self.paths.get(module) or 'the model itself'} ({type(module).__name__})"


def survey(model: nn.Module, parts: Parts | None = None) -> Survey:
    """Walk the model; a layer with a rule answers for everything inside it.

    Args:
        model: any.
        parts: its parts as they are now, where they are at hand.
    Raises:
        InputError: nothing is trained, what is to be watched is a ScriptModule, a trained parameter is not float16, bfloat16, float32 or
            float64, parameters were made in inference mode or have no shape yet, a layer mixes the records, or writes what it saw of them
            into the model.
    """
    parts = NamedParts(model).now() if parts is None else parts
    modules, parameters = list(parts.modules.items()), list(parts.parameters.items())
    _refuse_batch_statistics(modules)
    if lazy := [name for name, parameter in parameters if isinstance(parameter, UninitializedParameter)]:
        raise InputError(
            f"parameter {lazy[0]} ({len(lazy)} in all) has no shape and no values yet.",
            source="a lazy layer, which is made by the first batch it is given",
            remedy="call the model once before training, on zeros or on public data of the records' shape.",
        )
    if made := [name for name, parameter in parameters if parameter.is_inference()]:
        raise InputError(
            f"parameter {made[0]} ({len(made)} in all) was made in inference mode, outside of which autograd takes no part in it.",
            source="torch.inference_mode() around the making of the model",
            remedy="make it outside, or give copy.deepcopy(model).",
        )
    names = {parameter: name for name, parameter in parameters if parameter.requires_grad}
    if not names:
        raise InputError(
            "the model has no parameter that requires grad: there is nothing to train.",
            source="model",
            remedy="parameter.requires_grad_() of those that are to be trained.",
        )
    for parameter, name in names.items():
        if not parameter.is_floating_point():
            raise InputError(f"parameter {name} has dtype {parameter.dtype}; it needs a real floating-point type.", source="model")
    paths = {module: path for path, module in modules}
    found = Survey(names=names, rules={}, covered={}, bare={}, paths=paths, behaviour=behaviour(model, modules))
    _walk(model, found, set())
    for module in (model, *found.covered, *found.bare):
        if isinstance(module, torch.jit.ScriptModule):
            raise InputError(
                f"{found.describe(module)} is a ScriptModule, inside which no layer can be watched.",
                source="torch.jit.script or torch.jit.trace",
                remedy="give the module that it was made from; script it again when it is trained.",
            )
    return found


class Surveys:
    """Surveys of one model, each made anew only where something that it rests on is another one.

    Args:
        model: any.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known: tuple[list[object], Survey] | None = None

    def of(self, parts: Parts) -> Survey:
        """The survey of the model as it is now.

        Args:
            parts: its parts as they are now; without a look at the modules' attributes the survey is made anew.
        Raises:
            InputError: see `survey`.
        """
        kinds = {*map(type, parts.modules.values())}
        if parts.look is None or any(map(may_share_a_scale, kinds)):
            return survey(self._model, parts)
        computing = [getattr(kind, name, None) for name in COMPUTING for kind in kinds]
        trained = [parameter.requires_grad for parameter in parts.parameters.values()]
        rests_on = [parts.look, trained, dict(RULES), computing, hooks_everywhere()]
        if self._known is None or self._known[0] != rests_on:
            self._known = rests_on, survey(self._model, parts)
        return self._known[1]


def _walk(module: nn.Module, found: Survey, seen: set[nn.Module]) -> None:
    if module in seen:
        return
    seen.add(module)
    if not module._modules and not _trained(module._parameters.items()):
        return  # whatever its rule
    rule = rule_for(module)
    if rule is not None:
        own = _trained(module.named_parameters(remove_duplicate=False))
        if own:
            found.rules[module] = rule  # pyright: ignore[reportIndexIssue]
            found.covered[module] = own  # pyright: ignore[reportIndexIssue]
        return
    own = _trained(module._parameters.items())
    if own:
        found.bare[module] = own  # pyright: ignore[reportIndexIssue]
    for child in module.children():
        _walk(child, found, seen)


def _trained(parameters: Iterable[tuple[str, nn.Parameter | None]]) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in parameters if parameter is not None and parameter.requires_grad}


def _iterates(module: nn.Module) -> bool:
    """Whether it is a spectral norm, as a parametrisation or as a hook; that of a vector takes no iteration."""
    hooked = any(isinstance(hook, SpectralNorm) for hook in module._forward_pre_hooks.values())
    return hooked or (isinstance(module, _SpectralNorm) and "_u" in module._buffers)


def _refuse_batch_statistics(modules: Iterable[tuple[str, nn.Module]]) -> None:
    for path, module in modules:
        if may_share_a_scale(type(module)):
            refuse_shared_scale(f"{path or 'the model itself'} ({type(module).__name__})", module)
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            raise InputError(
                f"{path or 'the model itself'} ({type(module).__name__}) has max_norm = {module.max_norm:g}: the forward pass rescales the "
                "rows that the records hold, without any noise.",
                source="the layer's max_norm",
                remedy="build the layer with max_norm=None, and bound the table after the noise if need be.",
            )
        if module.training and _iterates(module):
            raise InputError(
                f"{path or 'the model itself'} ({type(module).__name__}) takes a step of power iteration in each forward pass: it writes "
                "into the model, and makes something else of the same record each time.",
                source="spectral_norm, in training mode",
                remedy="put it in eval mode, and take the step in a hook of the optimiser, register_step_post_hook, with release: all; "
                "docs/train.md shows it (Spectral normalisation).",
            )
        if isinstance(module, _InstanceNorm) and module.track_running_stats and module.training:
            raise InputError(
                f"{path or 'the model itself'} ({type(module).__name__}) has track_running_stats = True: its running mean and variance "
                "pass on what records hold, without any noise.",
                source="the layer's track_running_stats",
                remedy="build the layer with track_running_stats=False, or put it in eval mode.",
            )
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            raise InputError(
                f"{path or 'the model itself'} ({type(module).__name__}) normalises a record by the others of its batch, "
                "so no record's influence can be bounded.",
                source="model",
                remedy="use nn.GroupNorm or nn.LayerNorm, or put the layer in eval mode (its running statistics must not be private).",
            )
