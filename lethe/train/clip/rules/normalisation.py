r"""Normalising layers $\gamma\odot\hat x+\beta$ whose $\hat x$ depends on one record alone: $\sum_t\hat x_t\odot g_t$ and $\sum_tg_t$."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor, nn
from torch.nn import functional

from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.rule import Call, Parts


def over_features(call: Call) -> Parts:
    """nn.LayerNorm and nn.RMSNorm: scales lie on the last dimensions."""
    shape, gradient = call.module.normalized_shape, call.gradient
    normalise = functional.layer_norm if isinstance(call.module, nn.LayerNorm) else functional.rms_norm
    return _scales(call, normalise(call.given, shape, eps=call.module.eps), range(gradient.dim() - len(shape), gradient.dim()))


def group_norm(call: Call) -> Parts:
    """nn.GroupNorm: scales lie on dimension 1."""
    return _scales(call, functional.group_norm(call.given, call.module.num_groups, eps=call.module.eps), [1])


def instance_norm(call: Call) -> Parts:
    """nn.InstanceNorm1d, 2d and 3d, for records with a dimension of channels each."""
    given = call.given
    if given.dim() < 3 or len(given) != len(call.gradient):
        raise NotImplementedError("an input without a dimension of records")
    if call.module.track_running_stats and not call.module.training:
        return batch_norm(call)
    return _scales(call, functional.instance_norm(given, eps=call.module.eps), [1])


def batch_norm(call: Call) -> Parts:
    """nn.BatchNorm in eval mode, where it is an affine map of each channel."""
    module, given = call.module, call.given
    shape = (1, -1, *[1] * (given.dim() - 2))
    mean, scale = module.running_mean.view(shape), (module.running_var + module.eps).rsqrt().view(shape)
    return _scales(call, (given - mean) * scale, [1])


def _scales(call: Call, normalised: Tensor, dims: Collection[int]) -> Parts:
    """Of parameters on some dimensions of the output."""
    gradient = call.gradient
    others = [dim for dim in range(1, gradient.dim()) if dim not in dims]
    for name, product in (("weight", lambda: normalised * gradient), ("bias", lambda: gradient)):
        if name in call.names:
            yield name, MaterialisedGradients(product().sum(others) if others else product())
