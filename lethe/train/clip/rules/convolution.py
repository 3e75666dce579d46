"""Convolutions and transposed ones, in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from lethe.train.clip.grouping import Grouping
from lethe.train.clip.lengths import squares_of
from lethe.train.clip.memory import Memory, forming
from lethe.train.clip.parts import OuterProducts, Part, Rows, without
from lethe.train.clip.rules.rule import Call, Parts
from lethe.train.clip.weighted_sums import weighed
from lethe.train.core.tensors import on_cpu

# Numbers of windows at a time: 2^18 float32 stay in a core's cache; no fewer than the sum has that they are added to, up to 16 MiB.
_WINDOWS, _WINDOWS_AT_MOST, _WINDOWS_ON_GPU = 2**18, 2**22, 2**25


class Kernel(NamedTuple):
    """How a kernel moves: its lengths, steps between outputs, steps between its taps, and blocks of channels that do not meet."""

    lengths: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class Use(NamedTuple):
    """What a kernel moved over, (B, C, *space), once padded, and the gradient at each place, (B, p, *places)."""

    source: Tensor
    gradient: Tensor
    widths: Sequence[int]
    mode: str

    def some(self, rows: slice) -> Use:
        """Some records."""
        return self._replace(source=self.source[rows], gradient=self.gradient[rows])

    def padded(self) -> Tensor:
        """The source as the kernel moved over it."""
        return functional.pad(self.source, self.widths, mode=self.mode) if any(self.widths) else self.source

    @property
    def places(self) -> int:
        """T."""
        return prod(self.gradient.shape[2:])


def windows(use: Use, kernel: Kernel) -> Tensor:
    r"""$x[c, \text{stride}\cdot t+\text{dilation}\cdot k]$ in row (c, k) and column t, the order of the weight; shape (B, C taps, T)."""
    padded = use.padded()
    first, channels, *space = padded.stride()
    taps = [step * width for step, width in zip(kernel.dilation, space, strict=True)]
    moves = [step * width for step, width in zip(kernel.stride, space, strict=True)]
    seen = padded.as_strided((*padded.shape[:2], *kernel.lengths, *use.gradient.shape[2:]), (first, channels, *taps, *moves))
    return seen.reshape(len(padded), -1, use.places)


class Correlations(Part):
    r"""$G_i[p, c, k] = \sum_t g_i[p, t]\,x_i[c, \text{stride}\cdot t+\text{dilation}\cdot k]$: outer products with windows.

    Windows hold each number of the source many times: they are taken of some records at a time, and anew for the sum.

    Args:
        uses: one or more, of the same records.
        kernel: how it moves.
    """

    def __init__(self, uses: Sequence[Use], kernel: Kernel) -> None:
        self.uses, self.kernel = list(uses), kernel
        self._slack: Tensor | None = None

    def squares(self) -> Tensor:
        """See Part."""
        squares: list[Tensor] = []
        slacks: list[Tensor] = []
        for rows, products in self._products():
            squares.append(products.squares() if self.kernel.groups == 1 else squares_of(self._formed(rows)))
            slack = products.slack()
            if slack is not None:  # where channels come in groups both times are in the gradients' type
                slacks.append(slack if self.kernel.groups == 1 else 2 * slack)
        self._slack = torch.cat(slacks) if slacks else None
        return torch.cat(squares)

    def weighted(self, weights: Tensor) -> Tensor:
        """See Part."""
        if self.kernel.groups == 1:
            pieces = (products.weighted(weights[rows]) for rows, products in self._products())
        else:
            pieces = (weighed(weights[rows], self._formed(rows)) for rows in self._slices())
        total = next(pieces)
        for piece in pieces:
            total += piece
        return total

    def rows(self) -> Tensor:
        """See Part."""
        formed = self.uses[0].gradient.new_empty(len(self.uses[0].source), *self.shape)
        for rows in self._slices():
            formed[rows] = self._formed(rows)
        return formed

    def drop(self, records: Tensor) -> None:
        """See Part."""
        self.uses = [use._replace(source=without(use.source, records), gradient=without(use.gradient, records)) for use in self.uses]
        self._slack = None if self._slack is None else without(self._slack, records)

    def grouped(self, grouping: Grouping) -> Part:
        """See Part."""
        uses: list[Use] = []
        for use in self.uses:
            columns = zip(grouping(use.source).unbind(1), grouping(use.gradient).unbind(1), strict=True)
            uses += [use._replace(source=source, gradient=gradient) for source, gradient in columns]
        return Correlations(uses, self.kernel)

    def slack(self) -> Tensor | None:
        """See Part; of what was measured last."""
        return self._slack

    def joined(self, others: Sequence[Part]) -> Part | None:
        """See Part."""
        if not all(isinstance(other, Correlations) for other in others):
            return None
        return Correlations([use for part in (self, *others) for use in part.uses], self.kernel)  # pyright: ignore

    @property
    def shape(self) -> tuple[int, int]:
        """(p, C taps) of one record's gradient."""
        source, gradient = self.uses[0].source, self.uses[0].gradient
        return gradient.shape[1], source.shape[1] // self.kernel.groups * prod(self.kernel.lengths)

    def _slices(self) -> Iterator[slice]:
        """Some records at a time."""
        source = self.uses[0].source
        held = sum(use.places for use in self.uses) * source.shape[1] * prod(self.kernel.lengths)
        limit = min(max(_WINDOWS, prod(self.shape)), _WINDOWS_AT_MOST) if on_cpu(source) else _WINDOWS_ON_GPU
        size = max(1, limit // max(1, held))
        return (slice(first, first + size) for first in range(0, max(1, len(source)), size))

    def _products(self) -> Iterator[tuple[slice, OuterProducts]]:
        """Of some records at a time, channels not told apart by groups."""
        for rows in self._slices():
            uses = [use.some(rows) for use in self.uses]
            inputs, gradients = [windows(use, self.kernel).mT for use in uses], [use.gradient.flatten(2).mT for use in uses]
            if len(uses) == 1:
                yield rows, OuterProducts(inputs[0], gradients[0], Memory(0))
            else:
                yield rows, OuterProducts(torch.cat(inputs, 1), torch.cat(gradients, 1), Memory(0))

    def _formed(self, rows: slice) -> Tensor:
        uses, (outputs, width) = [use.some(rows) for use in self.uses], self.shape
        formed = [_depthwise(use, self.kernel) if self.kernel.groups == use.source.shape[1] > 1 else self._by_windows(use) for use in uses]
        total = formed[0] if len(formed) == 1 else torch.stack(formed).sum(0)
        return total.view(-1, outputs, width)

    def _by_windows(self, use: Use) -> Tensor:
        blocks, (outputs, width) = len(use.source) * self.kernel.groups, self.shape
        gradient = use.gradient.reshape(blocks, outputs // self.kernel.groups, use.places)
        return torch.bmm(gradient, windows(use, self.kernel).view(blocks, width, use.places).mT)


def convolution(call: Call) -> Parts:
    """nn.Conv1d, 2d and 3d: the kernel moves over the input."""
    module, given, gradient = call.module, _with_records(call), call.gradient
    if "weight" in call.names:
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        yield "weight", _correlated(call, Use(given, gradient, module._reversed_padding_repeated_twice, mode))
    if "bias" in call.names:
        yield "bias", Rows(gradient.flatten(2).sum(2))


def transposed_convolution(call: Call) -> Parts:
    """nn.ConvTranspose1d, 2d and 3d: the kernel moves over the output."""
    module, given, gradient = call.module, _with_records(call), call.gradient
    if "weight" in call.names:
        widths: list[int] = []
        for axis in reversed(range(len(module.kernel_size))):
            before = module.padding[axis]
            read = (given.shape[2 + axis] - 1) * module.stride[axis] + module.dilation[axis] * (module.kernel_size[axis] - 1) + 1
            widths += [before, read - before - gradient.shape[2 + axis]]
        yield "weight", _correlated(call, Use(gradient, given, widths, "constant"))
    if "bias" in call.names:
        yield "bias", Rows(gradient.flatten(2).sum(2))


def _correlated(call: Call, use: Use) -> Part:
    """Formed at once where that takes less memory than what they are formed of, or is faster and may be kept."""
    module: Any = call.module
    part = Correlations([use], Kernel(module.kernel_size, module.stride, module.dilation, module.groups))
    outputs, width = part.shape
    numbers = len(use.source) * outputs * width
    faster = module.groups > 1 or forming(use.places, width, outputs, use.source)[0]
    if numbers <= use.source.numel() + use.gradient.numel() or faster and call.memory.take(numbers * use.source.element_size()):
        return Rows(part.rows())
    return part


def _depthwise(use: Use, kernel: Kernel) -> Tensor:
    """All records become one, each with channels of its own."""
    source = use.padded()
    channels, outputs, zeros = source.shape[0] * source.shape[1], use.gradient.shape[0] * use.gradient.shape[1], [0] * len(kernel.lengths)
    weight = source.new_empty(()).expand(outputs, 1, *kernel.lengths)
    source, gradient = source.reshape(1, channels, *source.shape[2:]), use.gradient.reshape(1, outputs, *use.gradient.shape[2:])
    wanted = [False, True, False]
    return torch.ops.aten.convolution_backward(
        gradient, source, weight, None, kernel.stride, zeros, kernel.dilation, False, zeros, channels, wanted
    )[1]


def _with_records(call: Call) -> Tensor:
    given = call.given
    if given.dim() != len(call.module.kernel_size) + 2:
        raise NotImplementedError("an input without a dimension of records")
    return given
