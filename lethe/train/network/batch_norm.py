"""fix_batch_norm: group normalisation in the place of batch normalisation, which mixes the records of a batch."""

from __future__ import annotations

from typing import TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

_MOST_GROUPS = 32

Module = TypeVar("Module", bound=nn.Module)


def fix_batch_norm(model: Module) -> Module:
    """The model with group normalisation in the place of each batch normalisation, in place; call it before the optimiser is made.

    At most 32 groups, each of at least 2 channels, of BatchNorm1d 8: of vectors a group has no other numbers, and one alone, as where
    Opacus' ModuleValidator.fix takes 32 groups of 32 channels, becomes 0. Scale and shift are kept; running statistics, which the records
    of a batch share, are gone.

    Args:
        model: any module; one that is itself a batch normalisation comes back as another module.
    """
    if isinstance(model, _BatchNorm):
        return _group_norm(model)  # pyright: ignore[reportReturnType]
    for name, child in model.named_children():
        if (fixed := fix_batch_norm(child)) is not child:
            setattr(model, name, fixed)
    return model


def _group_norm(layer: _BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    most = min(_MOST_GROUPS, channels // (8 if isinstance(layer, nn.BatchNorm1d) else 2))
    groups = next((number for number in range(most, 1, -1) if channels % number == 0), 1)
    norm = nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    return norm.train(layer.training)
