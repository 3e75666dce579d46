r"""Normalising layers $\gamma\odot\hat x+\beta$ whose $\hat x$ depends on one record alone: $\sum_t\hat x_t\odot g_t$ and $\sum_tg_t$."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from lethe.train.clip.parts.part import Rows
from lethe.train.clip.rules.rule import Call, Parts


def layer_norm(call: Call) -> Parts:
    """nn.LayerNorm: scales lie on the last dimensions."""
    module = call.module
    return _scales(call, functional.layer_norm(call.given, module.normalized_shape, eps=module.eps), len(module.normalized_shape))


def rms_norm(call: Call) -> Parts:
    """nn.RMSNorm."""
    module = call.module
    return _scales(call, functional.rms_norm(call.given, module.normalized_shape, eps=module.eps), len(module.normalized_shape))


def group_norm(call: Call) -> Parts:
    """nn.GroupNorm: scales lie on dimension 1."""
    return _scales_of_channels(call, functional.group_norm(call.given, call.module.num_groups, eps=call.module.eps))


def instance_norm(call: Call) -> Parts:
    """nn.InstanceNorm1d, 2d and 3d, for records with a dimension of channels each."""
    given = call.given
    if given.dim() < 3 or len(given) != len(call.gradient):
        raise NotImplementedError("an input without a dimension of records")
    if call.module.track_running_stats and not call.module.training:
        return batch_norm(call)
    return _scales_of_channels(call, functional.instance_norm(given, eps=call.module.eps))


def batch_norm(call: Call) -> Parts:
    """nn.BatchNorm in eval mode, where it is an affine map of each channel."""
    module, given = call.module, call.given
    shape = (1, -1, *[1] * (given.dim() - 2))
    mean, scale = module.running_mean.view(shape), (module.running_var + module.eps).rsqrt().view(shape)
    return _scales_of_channels(call, (given - mean) * scale)


def _scales(call: Call, normalised: Tensor, trailing: int) -> Parts:
    gradient = call.gradient
    between = tuple(range(1, gradient.dim() - trailing))
    if "weight" in call.names:
        product = normalised * gradient
        yield "weight", Rows(product.sum(between) if between else product)
    if "bias" in call.names:
        yield "bias", Rows(gradient.sum(between) if between else gradient)


def _scales_of_channels(call: Call, normalised: Tensor) -> Parts:
    gradient = call.gradient
    if "weight" in call.names:
        product = normalised * gradient
        yield "weight", Rows(product.flatten(2).sum(2) if product.dim() > 2 else product)
    if "bias" in call.names:
        yield "bias", Rows(gradient.flatten(2).sum(2) if gradient.dim() > 2 else gradient)
