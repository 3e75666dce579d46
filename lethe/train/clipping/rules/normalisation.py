"""Gradients of the scales and shifts of normalising layers: small enough to be formed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import InputError
from lethe.train.clipping.rules.parts import Part, PartedGradients, Rows, added
from lethe.train.clipping.rules.rule import argument, wide
from lethe.train.clipping.unfollowed import UnfollowedError


class NormalisationGradients(PartedGradients):
    r"""A layer $s = \gamma \odot \hat x + \beta$ whose $\hat x$ depends on one record alone.

    $$G_i^\gamma = \sum_t \hat x_{it} \odot g_{it}, \qquad G_i^\beta = \sum_t g_{it}$$

    with t over the positions that share a scale.
    """

    def make_parts(self) -> Mapping[str, Part]:
        """See PartedGradients."""
        self.refuse()
        scale, shift = [], []
        for use in self.uses:
            given = cast("Tensor", argument(use, 0, "input"))
            self.require_records(given)
            gradient = wide(use.grad_output)
            if "weight" in self.names:
                scale.append(self.reduced(self.normalised(given) * gradient))
            if "bias" in self.names:
                shift.append(self.reduced(gradient))
        sums = {"weight": scale, "bias": shift}
        return {name: Rows(added(terms)) for name, terms in sums.items() if terms}

    def refuse(self) -> None:
        """Raise InputError if the layer mixes records."""

    @abstractmethod
    def require_records(self, given: Tensor) -> None:
        """Raise InputError if the input has no dimension of records."""

    @abstractmethod
    def normalised(self, given: Tensor) -> Tensor:
        r"""$\hat x$, of the input's shape, in float32 or better."""

    @abstractmethod
    def reduced(self, terms: Tensor) -> Tensor:
        """The sum over the positions that share a scale, shape (B, *shape)."""


class _OverLastDimensions(NormalisationGradients):
    """Scales lie on the last dimensions, `normalized_shape`; positions in between."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the scale."""
        return tuple(cast("nn.LayerNorm | nn.RMSNorm", self.module).normalized_shape)

    def require_records(self, given: Tensor) -> None:
        """See NormalisationGradients."""
        if given.dim() <= len(self.shape):
            raise _no_records(self.module, given, len(self.shape) + 1)

    def reduced(self, terms: Tensor) -> Tensor:
        """See NormalisationGradients."""
        between = tuple(range(1, terms.dim() - len(self.shape)))
        return terms.sum(between) if between else terms


class LayerNormGradients(_OverLastDimensions):
    """nn.LayerNorm, for inputs of shape (B, ..., *normalized_shape)."""

    def normalised(self, given: Tensor) -> Tensor:
        """See NormalisationGradients."""
        return functional.layer_norm(wide(given), self.shape, eps=cast("nn.LayerNorm", self.module).eps)


class RMSNormGradients(_OverLastDimensions):
    """nn.RMSNorm, for inputs of shape (B, ..., *normalized_shape)."""

    def normalised(self, given: Tensor) -> Tensor:
        """See NormalisationGradients."""
        # Without an eps of its own the layer takes that of the type it computes in: float32 for half precision.
        return functional.rms_norm(wide(given), self.shape, eps=cast("nn.RMSNorm", self.module).eps)


class _OverChannels(NormalisationGradients):
    """Scales lie on dimension 1; positions behind it."""

    groups: int

    def normalised(self, given: Tensor) -> Tensor:
        """See NormalisationGradients."""
        epsilon = cast("nn.GroupNorm | nn.InstanceNorm1d", self.module).eps
        # Not functional.group_norm: it refuses some shapes that the layer itself took.
        return torch.group_norm(wide(given), self.groups_of(given), eps=epsilon)

    @abstractmethod
    def groups_of(self, given: Tensor) -> int:
        """Of how many groups of channels each is normalised by itself."""

    def reduced(self, terms: Tensor) -> Tensor:
        """See NormalisationGradients."""
        return terms.flatten(2).sum(2) if terms.dim() > 2 else terms


class GroupNormGradients(_OverChannels):
    """nn.GroupNorm, for inputs of shape (B, C, ...)."""

    def require_records(self, given: Tensor) -> None:
        """See NormalisationGradients."""
        if given.dim() < 2:
            raise _no_records(self.module, given, 2)

    def groups_of(self, given: Tensor) -> int:
        """See _OverChannels."""
        return cast("nn.GroupNorm", self.module).num_groups


class InstanceNormGradients(_OverChannels):
    """nn.InstanceNorm1d, 2d and 3d, for inputs of shape (B, C, ...).

    Raises:
        InputError: `track_running_stats=True`, or an input without a dimension of records.
    """

    def refuse(self) -> None:
        """See NormalisationGradients."""
        if cast("nn.InstanceNorm1d", self.module).track_running_stats:
            raise InputError(
                f"{type(self.module).__name__} has track_running_stats = True: its running mean and variance pass on what records hold, "
                "without any noise.",
                source="the layer's track_running_stats",
                remedy="build the layer with track_running_stats=False.",
            )

    def require_records(self, given: Tensor) -> None:
        """See NormalisationGradients."""
        needed = next(size for kind, size in _INSTANCE_DIMENSIONS.items() if isinstance(self.module, kind))
        if given.dim() != needed:
            raise _no_records(self.module, given, needed)

    def groups_of(self, given: Tensor) -> int:
        """See _OverChannels."""
        return given.shape[1]


_INSTANCE_DIMENSIONS: dict[type[nn.Module], int] = {nn.InstanceNorm1d: 3, nn.InstanceNorm2d: 4, nn.InstanceNorm3d: 5}


def _no_records(module: nn.Module, given: Tensor, needed: int) -> UnfollowedError:
    return UnfollowedError(
        f"{type(module).__name__} got an input of {given.dim()} dimensions; it needs {needed} or more, records first.",
        source="the layer's input",
        remedy="keep the dimension of records: unsqueeze(0) for a single one.",
    )
