"""Gradients of convolutions and transposed convolutions, in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd  # the only name torch has for all of them

from lethe.train.clipping.rules.convolution.correlations import Correlated, Correlations
from lethe.train.clipping.rules.convolution.windows import Geometry
from lethe.train.clipping.rules.parts import Part, PartedGradients, Rows
from lethe.train.clipping.rules.rule import Use, argument, as_computed, wide
from lethe.train.clipping.unfollowed import UnfollowedError


class ConvGradients(PartedGradients):
    """nn.Conv1d, nn.Conv2d, nn.Conv3d, with groups, dilation, strides and every padding.

    Raises:
        InputError: an input without a dimension of records.
    """

    def make_parts(self) -> Mapping[str, Part]:
        """See PartedGradients."""
        module = cast("_ConvNd", self.module)
        calls = [_call(use, module) for use in self.uses]
        sums = [gradients.flatten(2).sum(2) for _, gradients in calls]
        parts: dict[str, Part] = {"bias": Rows(sums[0] if len(sums) == 1 else torch.stack(sums).sum(0))}
        if "weight" in self.names:
            parts["weight"] = self.correlations(module, calls)
        return parts

    def correlations(self, module: _ConvNd, calls: list[tuple[Tensor, Tensor]]) -> Correlations:
        """The weight's part, from each use's input and gradient of the output."""
        before, after = _padding(module)
        symmetric = module.padding_mode == "zeros" and before == after
        padding = before if symmetric else (0,) * len(before)
        uses = [Correlated(given if symmetric else _padded(given, module), gradients) for given, gradients in calls]
        return Correlations(uses, _geometry(module, padding))


class TransposedConvGradients(ConvGradients):
    """nn.ConvTranspose1d, 2d, 3d: a convolution from output to input, so the two change places."""

    def correlations(self, module: _ConvNd, calls: list[tuple[Tensor, Tensor]]) -> Correlations:
        """See ConvGradients."""
        padding = cast("tuple[int, ...]", module.padding)
        if all(extra < step for extra, step in zip(module.output_padding, module.stride, strict=True)):
            return Correlations([Correlated(gradients, given) for given, gradients in calls], _geometry(module, padding))
        # More output than a convolution with this padding would have read: pad to what is read, and cut off the rest.
        uses = [Correlated(_read(gradients, given.shape[2:], module), given) for given, gradients in calls]
        return Correlations(uses, _geometry(module, (0,) * len(padding)))


def _read(gradients: Tensor, places: torch.Size, module: _ConvNd) -> Tensor:
    widths: list[int] = []
    for axis in reversed(range(len(places))):
        before = cast("tuple[int, ...]", module.padding)[axis]
        read = (places[axis] - 1) * module.stride[axis] + module.dilation[axis] * (module.kernel_size[axis] - 1) + 1
        widths += [before, read - before - gradients.shape[2 + axis]]
    return functional.pad(gradients, widths)


def _call(use: Use, module: _ConvNd) -> tuple[Tensor, Tensor]:
    given, dimensions = cast("Tensor", argument(use, 0, "input")), len(module.kernel_size)
    if given.dim() != dimensions + 2:
        raise UnfollowedError(
            f"{type(module).__name__} got an input of {given.dim()} dimensions; it needs {dimensions + 2}: records, channels, space.",
            source="the layer's input",
            remedy="unsqueeze the dimension of records.",
        )
    given, gradients = wide(as_computed(given, use.grad_output)), wide(use.grad_output)
    dtype = torch.promote_types(given.dtype, gradients.dtype)
    return given.to(dtype), gradients.to(dtype)


def _geometry(module: _ConvNd, padding: tuple[int, ...]) -> Geometry:
    return Geometry(kernel=module.kernel_size, stride=module.stride, padding=padding, dilation=module.dilation, groups=module.groups)


def _padding(module: _ConvNd) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Zeros before and after the input, in each dimension."""
    if isinstance(module.padding, str):
        totals = [
            0 if module.padding == "valid" else step * (length - 1)
            for step, length in zip(module.dilation, module.kernel_size, strict=True)
        ]
        return tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return module.padding, module.padding


def _padded(given: Tensor, module: _ConvNd) -> Tensor:
    before, after = _padding(module)
    # torch counts from the last dimension.
    widths = [width for pair in zip(reversed(before), reversed(after), strict=True) for width in pair]
    return functional.pad(given, widths, mode="constant" if module.padding_mode == "zeros" else module.padding_mode)
