"""The layers of a model that own trained parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from glob import escape

from torch import nn

from lethe.errors import InputError
from lethe.train.clip.groups import Group, checked_norm
from lethe.train.clip.rules.any_layer import any_layer
from lethe.train.clip.rules.registry import rule_of
from lethe.train.clip.rules.rule import Rule

_NEVER_CALLED = (nn.ParameterList, nn.ParameterDict)
_ANY = Rule(any_layer)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A module whose calls are recorded, its trained parameters by their names within it, and the rule that makes their parts."""

    module: nn.Module
    parameters: Mapping[str, nn.Parameter]
    rule: Rule


def layers_of(model: nn.Module) -> list[Layer]:
    """The layers of a model: each trained parameter is in those that own it, or in the module around a list that does."""
    layers: list[Layer] = []
    seen: set[nn.Module] = set()

    def walk(module: nn.Module) -> None:
        if module in seen:
            return
        seen.add(module)
        rule = rule_of(module)
        whole = rule is not None and rule.whole
        if whole:
            own = dict(module.named_parameters(remove_duplicate=False))
        else:
            own = {name: parameter for name, parameter in module._parameters.items() if parameter is not None}
            for name, child in module.named_children():
                if isinstance(child, _NEVER_CALLED) or name == "parametrizations":
                    own |= {f"{name}.{inner}": parameter for inner, parameter in child.named_parameters()}
                else:
                    walk(child)
        trained = {name: parameter for name, parameter in own.items() if parameter.requires_grad}
        if trained:  # what is parametrised is not what its type's rule knows
            known = "parametrizations" not in module._modules and all(whole or "." not in name for name in trained)
            known = known and not any("parametrizations." in name for name in trained)
            layers.append(Layer(module, trained, rule if rule is not None and known else _ANY))

    walk(model)
    return layers


def per_layer(model: nn.Module, clip_norm: float) -> tuple[Group, ...]:
    r"""A group for each of the L layers that own trained parameters, with the norm $C/\sqrt L$; layers that share a parameter are one.

    Args:
        model: whose parameters that require grad are trained.
        clip_norm: C > 0, of all layers together.
    Raises:
        InputError: it is no such number, or the model is none.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model: got {type(model).__name__}; it needs a torch.nn.Module.")
    names = {parameter: name for name, parameter in model.named_parameters()}
    layers: list[set[str]] = []
    for layer in layers_of(model):
        own = {names[parameter] for parameter in layer.parameters.values()}
        apart = [other for other in layers if other.isdisjoint(own)]
        layers = [*apart, own.union(*(other for other in layers if not other.isdisjoint(own)))]
    norm = checked_norm("clip_norm", clip_norm) / max(1, len(layers)) ** 0.5
    return tuple(Group(parameters=tuple(map(escape, sorted(layer))), clip_norm=norm) for layer in layers)
