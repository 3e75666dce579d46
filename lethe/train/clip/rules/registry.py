"""The registry of layers: the rule of each type, which layers hold trained parameters, and which types mix records and are refused.
`RecordGradients` asks `layers_of` for the layers of a user's model and `refuse_model` before training; a user adds a rule by
`register_rule`. A rule computes all records' gradients in a layer's parameters from its input and the gradient in its output.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from glob import escape
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # the only name torch has for all of them
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from lethe.errors import InputError
from lethe.train.clip.groups import Group, checked_norm
from lethe.train.clip.rules.convolution import convolution
from lethe.train.clip.rules.experts import experts
from lethe.train.clip.rules.rule import Call, Parts, Rule
from lethe.train.clip.rules.sequence_layers import attention, cell, recurrent
from lethe.train.clip.rules.simple_layers import (
    any_layer,
    batch_norm,
    embedding,
    embedding_bag,
    group_norm,
    instance_norm,
    linear,
    over_features,
)

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: Rule(linear),
    nn.Embedding: Rule(embedding),
    nn.EmbeddingBag: Rule(embedding_bag),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), Rule(convolution)),
    **dict.fromkeys((nn.LayerNorm, nn.RMSNorm), Rule(over_features)),
    nn.GroupNorm: Rule(group_norm),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), Rule(instance_norm)),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), Rule(batch_norm)),
    nn.MultiheadAttention: Rule(forward=attention, whole=True),
    **dict.fromkeys((nn.RNN, nn.GRU, nn.LSTM), Rule(forward=recurrent)),
    **dict.fromkeys((nn.RNNCell, nn.GRUCell, nn.LSTMCell), Rule(forward=cell)),
}
"""Layer type -> rule."""

NAMED: dict[str, Rule] = {"transformers.pytorch_utils.Conv1D": Rule(partial(linear, transposed=True))}
"""Rules of types in packages that need not be there, by the types' full names."""


# What `use_experts_implementation` puts on experts of a mixture. The routers of transformers' own models look at one row at a time; that of
# another may have room for few rows of a batch, which only shows where there is too little: its records go alone.
_OF_EXPERTS = frozenset(("has_gate", "has_bias", "is_transposed", "is_concatenated", "_is_expert_parallel"))


def register_rule(kind: type[nn.Module], parts: Callable[[Call], Parts], *, whole: bool = False) -> None:
    """Let the gradients of a type of layer be computed by a rule of one's own; docs/layer_rules.md shows one.

    Args:
        kind: a class of modules; of subclasses too, if they inherit its `forward`.
        parts: (Call) -> (name of a parameter, Rows, OuterProducts or TokenRows) of each trained one.
        whole: whether it answers for the parameters of the modules within as well.
    Raises:
        InputError: it is no class of modules, or no function.
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise InputError(f"register_rule: got {kind!r}; it needs a subclass of torch.nn.Module.")
    if not callable(parts):
        raise InputError(f"register_rule: got {parts!r}; it needs a function of a Call to names and parts.")
    RULES[kind] = Rule(parts, whole=whole)


# A convolution's forward hands its work to a method of another name.
_COMPUTING = ("forward", "_conv_forward")


def rule_of(module: nn.Module) -> Rule | None:
    """The rule of the module's type, or of a base class whose `forward` it inherits unchanged; None: it has none."""
    if any(name in vars(module) for name in _COMPUTING) or module._forward_pre_hooks:
        return None
    kind = type(module)
    if _OF_EXPERTS.issubset(vars(module)) and kind.__module__.startswith("transformers.models."):
        return Rule(forward=experts)
    for base in kind.__mro__:
        rule = RULES.get(base) or NAMED.get(f"{base.__module__}.{base.__qualname__}")
        if rule is not None:
            return rule if all(getattr(kind, name, None) is getattr(base, name, None) for name in _COMPUTING) else None
    return None


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
    visited: set[nn.Module] = set()

    def walk(module: nn.Module) -> None:
        if module in visited:
            return
        visited.add(module)
        rule = rule_of(module)
        whole = rule is not None and rule.whole
        if whole:
            parameters = dict(module.named_parameters(remove_duplicate=False))
        else:
            parameters = {name: parameter for name, parameter in module._parameters.items() if parameter is not None}
            for name, child in module.named_children():
                if isinstance(child, _NEVER_CALLED) or name == "parametrizations":
                    parameters |= {f"{name}.{inner}": parameter for inner, parameter in child.named_parameters()}
                else:
                    walk(child)
        trained = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
        if trained:  # what is parametrised is not what its type's rule knows
            has_rule = "parametrizations" not in module._modules and all(whole or "." not in name for name in trained)
            has_rule = has_rule and not any("parametrizations." in name for name in trained)
            layers.append(Layer(module, trained, rule if rule is not None and has_rule else _ANY))

    walk(model)
    return layers


def per_layer(model: nn.Module, clip_norm: float) -> tuple[Group, ...]:
    r"""A group for each of the L layers that own trained parameters, with the norm $C/\sqrt L$; layers that share a parameter are one."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model: got {type(model).__name__}; it needs a torch.nn.Module.")
    names = {parameter: name for name, parameter in model.named_parameters()}
    layers: list[set[str]] = []
    for layer in layers_of(model):
        names_of_layer = {names[parameter] for parameter in layer.parameters.values()}
        apart = [names_of_group for names_of_group in layers if names_of_group.isdisjoint(names_of_layer)]
        layers = [
            *apart,
            names_of_layer.union(*(names_of_group for names_of_group in layers if not names_of_group.isdisjoint(names_of_layer))),
        ]
    norm = checked_norm("clip_norm", clip_norm) / max(1, len(layers)) ** 0.5
    return tuple(Group(parameters=tuple(map(escape, sorted(layer))), clip_norm=norm) for layer in layers)


_DYNAMIC = ("torch.ao.nn.quantized.dynamic", "torch.ao.nn.intrinsic.quantized.dynamic")
_TABLES = nn.Embedding | nn.EmbeddingBag


_REFUSALS: tuple[tuple[Callable[[nn.Module], bool], str, str, str], ...] = (
    (
        lambda module: isinstance(module, _BatchNorm) and (module.training or module.running_mean is None),
        "normalises a record by the others of its batch, so no record's influence can be bounded.",
        "model",
        "model = fix_batch_norm(model) puts group normalisation there; or put it in eval mode, with public running statistics.",
    ),
    (
        lambda module: isinstance(module, _InstanceNorm) and module.track_running_stats and module.training,
        "has track_running_stats = True: its running mean and variance pass on what records hold, without any noise.",
        "the layer's track_running_stats",
        "build the layer with track_running_stats=False, or put it in eval mode.",
    ),
    (
        lambda module: isinstance(module, _TABLES) and module.max_norm is not None,
        "has a max_norm: the forward pass rescales the rows that the records hold, without any noise.",
        "the layer's max_norm",
        "build the layer with max_norm=None, and bound the table after the noise if need be.",
    ),
    (
        lambda module: isinstance(module, _TABLES) and module.scale_grad_by_freq,
        "has scale_grad_by_freq = True: a record's gradient is divided by how often the others hold its tokens.",
        "the layer's scale_grad_by_freq",
        "build the layer with scale_grad_by_freq=False.",
    ),
    (
        lambda module: module.training and _iterates(module),
        "takes a step of power iteration in each forward pass: it writes into the model, and makes something else of the same record each "
        "time.",
        "spectral_norm, in training mode",
        "put it in eval mode, and take the step in a hook of the optimiser, register_step_post_hook, with release: all; docs/loop.md "
        "shows it (Spectral normalisation).",
    ),
    (
        lambda module: type(module).__module__.startswith(_DYNAMIC),
        "rounds what it is given to one scale for the whole batch, so that a record's outputs depend on the others.",
        "dynamic quantisation by torch.ao.quantization",
        "quantise the weights alone, or give each row a scale of its own.",
    ),
    (
        lambda module: _leaves_columns(module),
        "has a threshold: where one record has a number above it, the column is rounded in another way for all records.",
        "LLM.int8() of bitsandbytes",
        "load the model with BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0).",
    ),
)
"""Which modules are meant, what they do, where that comes from, and what to do instead."""


def refuse_model(model: nn.Module) -> None:
    """Refuse a model that mixes records by what its modules are."""
    parameters = dict(model.named_parameters())
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise InputError(
            "the model has no parameter that requires grad: there is nothing to train.",
            source="model",
            remedy="parameter.requires_grad_() of those that are to be trained.",
        )
    for name, parameter in parameters.items():
        if isinstance(parameter, UninitializedParameter):
            raise InputError(
                f"parameter {name} has no shape and no values yet.",
                source="a lazy layer, which is made by the first batch it is given",
                remedy="call the model once before training, on zeros or on public data of the records' shape.",
            )
        if parameter.is_inference():
            raise InputError(
                f"parameter {name} was made in inference mode, outside of which autograd takes no part in it.",
                source="torch.inference_mode() around the making of the model",
                remedy="make it outside, or give copy.deepcopy(model).",
            )
        if parameter.requires_grad and not parameter.is_floating_point():
            raise InputError(
                f"parameter {name} has dtype {parameter.dtype}; it needs a real floating-point type.",
                source="model",
                remedy=f"convert it, as by model.float(), or freeze it: {name}.requires_grad_(False).",
            )
    for name, module in model.named_modules():
        for holds, what, source, remedy in _REFUSALS:
            if holds(module):
                described = f"{name or 'the model itself'} ({type(module).__name__})"
                raise InputError(f"{described} {what}", source=source, remedy=remedy)


def _iterates(module: nn.Module) -> bool:
    """Whether it is a spectral norm, as a parametrisation or as a hook; that of a vector takes no iteration."""
    hooked = any(isinstance(hook, SpectralNorm) for hook in module._forward_pre_hooks.values())
    return hooked or (isinstance(module, _SpectralNorm) and "_u" in module._buffers)


def _leaves_columns(module: nn.Module) -> bool:
    """By its class's name, so that bitsandbytes need not be there; PEFT calls its adapter by the same name, which is no nn.Linear."""
    named = any(kind.__name__ == "Linear8bitLt" for kind in type(module).__mro__)
    return named and isinstance(module, nn.Linear) and getattr(getattr(module, "state", None), "threshold", None) != 0


def quantised(model: nn.Module) -> list[Any]:
    """The layers of bitsandbytes."""
    return [module for module in model.modules() if type(module._parameters.get("weight")).__name__ in ("Int8Params", "Params4bit")]


def settle(layers: Iterable[Any]) -> None:
    """Let layers of bitsandbytes hold their weights as training has them: the first call of one of 8 bits moves them, which the check would
    take for a memory; an evaluation on a CPU packs those of 4 bits, and then no gradient comes through: no adapter below would learn.
    """
    for layer in layers:
        if getattr(layer.weight, "CB", None) is not None:
            layer.init_8bit_state()
        if getattr(getattr(layer.weight, "quant_state", None), "packing_format_for_cpu", False):
            layer.state_dict()  # which unpacks them


_MOST_GROUPS = 32

Module = TypeVar("Module", bound=nn.Module)


def fix_batch_norm(model: Module) -> Module:
    """The model with group normalisation in the place of each batch normalisation, in place; call it before the optimiser is made.

    At most 32 groups, each of at least 2 channels, of BatchNorm1d 8: of vectors a group has no other numbers, and one alone, as where
    Opacus' ModuleValidator.fix takes 32 groups of 32 channels, becomes 0. Scale and shift are kept; running statistics, which the records
    of a batch share, are gone.

    Args:
        model: any module; one that is itself a batch normalisation comes back as another module.

    Examples:
        >>> import torch
        >>> from lethe.train import fix_batch_norm
        >>> fix_batch_norm(torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16)))[1]
        GroupNorm(8, 16, eps=1e-05, affine=True, bias=True)
    """
    if isinstance(model, _BatchNorm):
        return _group_norm(model)  # pyright: ignore[reportReturnType]
    for name, child in model.named_children():
        if (fixed := fix_batch_norm(child)) is not child:
            setattr(model, name, fixed)
    return model


def _group_norm(layer: _BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    largest = min(_MOST_GROUPS, channels // (8 if isinstance(layer, nn.BatchNorm1d) else 2))
    groups = next((number for number in range(largest, 1, -1) if channels % number == 0), 1)
    norm = nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    return norm.train(layer.training)
