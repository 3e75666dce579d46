"""Per-record gradients of convolutions and transposed ones, in one, two and three dimensions; the registry names `convolution` as their
rule. Its `Correlations` are measured without unfolding the input where that saves memory. B records, c inputs, p outputs, T output
positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from math import prod
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional

from lethe.train.clip.float64_sums import squares_of
from lethe.train.clip.parts.outer_products import Memory, OuterProducts, forming
from lethe.train.clip.parts.part import Grouping, MaterialisedGradients, ParameterGradients, no_longer
from lethe.train.clip.rules.rule import Call, Parts

# Numbers of windows at a time: 2^18 float32 stay in a core's cache; no fewer than the sum has that they are added to, up to 16 MiB.
_WINDOWS, _WINDOWS_AT_MOST, _WINDOWS_ON_GPU = 2**18, 2**22, 2**25


class Use(NamedTuple):
    """One use of a kernel: what it moves over, (B, C, *space), its padding, the gradient in the output, (B, p, *places), the layer."""

    source: Tensor
    gradient: Tensor
    widths: Sequence[int]
    layer: Any

    @property
    def places(self) -> int:
        """T, the number of positions of the output."""
        return prod(self.gradient.shape[2:])

    @property
    def reached(self) -> int:
        """S, the number of positions of the padded source."""
        before, after = self.widths[::2], self.widths[1::2]  # of the last axis first
        return prod(sum(sizes) for sizes in zip(reversed(self.source.shape[2:]), before, after, strict=True))

    def padded(self) -> Tensor:
        """The source as the kernel moved over it."""
        mode = self.layer.padding_mode
        return functional.pad(self.source, self.widths, mode="constant" if mode == "zeros" else mode) if any(self.widths) else self.source

    def windows(self) -> Tensor:
        r"""$x[c, \text{stride}\cdot t+\text{dilation}\cdot k]$ in row (c, k), as in the weight, and column t; shape (B, C taps, T)."""
        padded, layer = self.padded(), self.layer
        first, channels, *space = padded.stride()
        taps = [step * width for step, width in zip(layer.dilation, space, strict=True)]
        moves = [step * width for step, width in zip(layer.stride, space, strict=True)]
        shape = (*padded.shape[:2], *layer.kernel_size, *self.gradient.shape[2:])
        return padded.as_strided(shape, (first, channels, *taps, *moves)).reshape(len(padded), -1, self.places)

    def pairs(self) -> Tensor:
        """The inner products of windows with one another, shape (B, T, T), float64: sums over the kernel's taps of those of S places."""
        source, layer, dimensions = self.padded().double(), self.layer, self.source.dim() - 2
        flat = source.flatten(2)
        pairs = torch.bmm(flat.mT, flat).view(len(source), *source.shape[2:], *source.shape[2:])
        for axis, count in enumerate(self.gradient.shape[2:]):
            reached = layer.stride[axis] * (count - 1) + 1
            summed: Tensor | None = None
            for tap in range(layer.kernel_size[axis]):
                first = tap * layer.dilation[axis]
                moved = [slice(None)] * pairs.dim()
                moved[1 + axis] = moved[1 + dimensions + axis] = slice(first, first + reached, layer.stride[axis])
                summed = pairs[tuple(moved)].clone() if summed is None else summed.add_(pairs[tuple(moved)])
            assert summed is not None
            pairs = summed
        return pairs.reshape(len(source), self.places, self.places)

    def depthwise(self) -> Tensor:
        """The gradients where each channel is a group: all records become one, each with channels of its own."""
        source, layer, zeros = self.padded(), self.layer, [0] * (self.source.dim() - 2)
        source, gradient = (tensor.reshape(1, -1, *tensor.shape[2:]) for tensor in (source, self.gradient))
        weight = source.new_empty(()).expand(gradient.shape[1], 1, *layer.kernel_size)
        return torch.ops.aten.convolution_backward(
            gradient, source, weight, None, layer.stride, zeros, layer.dilation, False, zeros, source.shape[1], [False, True, False]
        )[1]


class Correlations(ParameterGradients):
    r"""$G_i[p, c, k] = \sum_t g_i[p, t]\,x_i[c, \text{stride}\cdot t+\text{dilation}\cdot k]$: outer products with windows.

    Windows hold each number of the source many times: they are taken of some records at a time, and anew for the sum. The uses are of the
    same records, in all channels come in as many groups.
    """

    def __init__(self, uses: Sequence[Use]) -> None:
        self.uses, self.groups, self.dtype = list(uses), uses[0].layer.groups, uses[0].gradient.dtype
        self._measured: Tensor | None = None
        (outputs, width), positions, source = self.shape, sum(use.places for use in uses), uses[0].source
        self._of_none = OuterProducts(source.new_empty(0, positions, width), source.new_empty(0, positions, outputs), Memory(0))

    def squares(self) -> Tensor:
        """The squared norm of each record's gradient, shape (B,), float64."""
        self._measured = torch.cat([part._squares() for _, part in self._pieces()])
        return self._measured

    def _squares(self) -> Tensor:
        use, formed = self.uses[0], self._of_none.forming[1]
        if self.groups > 1:
            return squares_of(self._formed())
        if len(self.uses) == 1 and not formed and 1 < use.reached**2 <= use.places**2 * prod(use.layer.kernel_size):
            pairs, gradient = use.pairs(), use.gradient.flatten(2).double()
            gradient_products = torch.bmm(gradient.mT, gradient)
            lengths = (pairs.diagonal(dim1=1, dim2=2).clamp(min=0) * gradient_products.diagonal(dim1=1, dim2=2)).sqrt().sum(1)
            return self._of_none.counting(pairs.mul_(gradient_products).sum((1, 2)).clamp(min=0), lengths)
        return self._products(not formed).squares()

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum of the records' gradients times `weights`, of the parameter's shape."""
        total: Tensor | None = None
        for rows, part in self._pieces():
            if self.groups == 1:
                added = part._products(not self._of_none.formed_for_sum).weighted(weights[rows])
            else:
                added = no_longer(weights[rows], part._measured, part._formed())
            total = added if total is None else total.add_(added)
        assert total is not None
        return total

    def rows(self) -> Tensor:
        """The gradient of each record, shape (B, *parameter)."""
        formed = self.uses[0].gradient.new_empty(len(self.uses[0].source), *self.shape)
        for rows, part in self._pieces():
            formed[rows] = part._formed()
        return formed

    def replace(self, replaced: Callable[[Tensor], Tensor]) -> None:
        """Replace the tensors of these gradients in place."""
        self.uses = [use._replace(source=replaced(use.source), gradient=replaced(use.gradient)) for use in self.uses]
        self._measured = None if self._measured is None else replaced(self._measured)

    def scaled(self, factors: Tensor) -> Self:
        """These gradients, each record's times its factor."""
        part = copy(self)
        typed_factors = factors.to(self.dtype)
        part.uses = [use._replace(gradient=use.gradient * typed_factors.view(-1, *[1] * (use.gradient.dim() - 1))) for use in self.uses]
        part._measured = None
        return part

    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """The gradients of units, each the sum or mean of its rows."""
        uses: list[Use] = []
        for use in self.uses:
            columns = zip(grouping(use.source).unbind(1), grouping(use.gradient).unbind(1), strict=True)
            uses += [use._replace(source=source, gradient=gradient) for source, gradient in columns]
        return Correlations(uses)

    def joined(self, later_calls: Sequence[ParameterGradients]) -> ParameterGradients | None:
        """The gradients of several calls of one layer as one, or None where they cannot be joined."""
        alike = [part for part in (self, *later_calls) if isinstance(part, Correlations) and part.groups == self.groups]
        return Correlations([use for part in alike for use in part.uses]) if len(alike) == 1 + len(later_calls) else None

    @property
    def shape(self) -> tuple[int, int]:
        """(p, C taps) of one record's gradient."""
        source, gradient = self.uses[0].source, self.uses[0].gradient
        return gradient.shape[1], source.shape[1] // self.groups * prod(self.uses[0].layer.kernel_size)

    def _pieces(self) -> Iterator[tuple[slice, Correlations]]:
        """Some records at a time."""
        source = self.uses[0].source
        entries = sum(use.places for use in self.uses) * source.shape[1] * prod(self.uses[0].layer.kernel_size)
        limit = min(max(_WINDOWS, prod(self.shape)), _WINDOWS_AT_MOST) if source.is_cpu else _WINDOWS_ON_GPU
        size = max(1, limit // max(1, entries))
        for first in range(0, max(1, len(source)), size):
            rows = slice(first, first + size)
            yield rows, self.some(rows)

    def _products(self, wide: bool) -> OuterProducts:
        """The same, of channels not told apart by groups; where nothing is formed of windows, they are taken in float64."""
        uses = [use._replace(source=use.source.double(), gradient=use.gradient.double()) for use in self.uses] if wide else self.uses
        inputs, gradients = [use.windows().mT for use in uses], [use.gradient.flatten(2).mT for use in uses]
        if len(inputs) == 1:
            return OuterProducts(inputs[0], gradients[0], Memory(0), self._measured, self.dtype)
        return OuterProducts(torch.cat(inputs, 1), torch.cat(gradients, 1), Memory(0), self._measured, self.dtype)

    def _formed(self) -> Tensor:
        formed = [use.depthwise() if self.groups == use.source.shape[1] > 1 else self._by_windows(use) for use in self.uses]
        total = formed[0] if len(formed) == 1 else torch.stack(formed).sum(0)
        return total.view(-1, *self.shape)

    def _by_windows(self, use: Use) -> Tensor:
        blocks, (outputs, width) = len(use.source) * self.groups, self.shape
        gradient = use.gradient.reshape(blocks, outputs // self.groups, use.places)
        return torch.bmm(gradient, use.windows().view(blocks, width, use.places).mT)


def convolution(call: Call) -> Parts:
    """The kernel moves over the input; that of a transposed convolution over the output."""
    layer, layer_input, gradient = call.module, call.given, call.gradient
    if layer_input.dim() != len(layer.kernel_size) + 2:
        raise NotImplementedError("an input without a dimension of records")
    if "weight" in call.names:
        if layer.transposed:
            use = Use(gradient, layer_input, _read(layer, layer_input.shape[2:], gradient.shape[2:]), layer)
        else:
            use = Use(layer_input, gradient, layer._reversed_padding_repeated_twice, layer)
        yield "weight", _correlated(use, call.memory)
    if "bias" in call.names:
        yield "bias", MaterialisedGradients(gradient.flatten(2).sum(2))


def _correlated(use: Use, memory: Memory) -> ParameterGradients:
    """Formed at once where that takes less memory than what they are formed of, or is faster and may be kept."""
    part = Correlations([use])
    outputs, width = part.shape
    numbers = len(use.source) * outputs * width
    faster = part.groups > 1 or forming(use.places, width, outputs, use.source)[0]
    if numbers <= use.source.numel() + use.gradient.numel() or (
        faster and memory.take_for(numbers * use.source.element_size(), use.source.nbytes + use.gradient.nbytes)
    ):
        return MaterialisedGradients(part.rows())
    return part


def _read(layer: Any, shape: Sequence[int], space: Sequence[int]) -> list[int]:
    """How much wider than the output is what a transposed convolution would have read of it: before and after, the last axis first."""
    widths: list[int] = []
    for axis in reversed(range(len(shape))):
        read = (shape[axis] - 1) * layer.stride[axis] + layer.dilation[axis] * (layer.kernel_size[axis] - 1) + 1
        widths += [layer.padding[axis], read - layer.padding[axis] - space[axis]]
    return widths
