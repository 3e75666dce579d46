"""What no way of training can bound a record's influence in: refused at once, without a batch."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # the only name torch has for all of them
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from lethe.errors import InputError

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
        "put it in eval mode, and take the step in a hook of the optimiser, register_step_post_hook, with release: all; docs/train.md "
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
    """Refuse a model that mixes records by what its modules are.

    Raises:
        InputError: nothing is trained, what is trained has no shape yet or is complex, or a layer mixes records or keeps what it saw.
    """
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
