"""The weight of a convolution: its gradient correlates the input with the gradient of the output, and need not be formed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from math import prod
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from lethe.train.clipping.rules.convolution.windows import Geometry, windows
from lethe.train.clipping.rules.parts import lengths_of, squares_of
from lethe.train.clipping.rules.rounding import Cancelling
from lethe.train.clipping.workspace import borrowed, freed, scratch
from lethe.train.core.together.weighing import FORMED_FOR_SUM, added_up, products_added

# Numbers that may be held besides the activations, at most: 2^25 float32 are 128 MiB.
_HELD = 2**25

# Numbers formed at once: memory that is fresh from the operating system costs more than the arithmetic, 2^19 float32 are 2 MiB.
_FRESH = 2**19

# Formed gradients are kept for the weighted sum if it would otherwise cost more than this many products for each of their numbers, or
# if they are formed at once anyway.
_PLACES = 8

# Gram matrices must be this many times as cheap in multiplications: in float64 and in smaller products each costs some 3.5 times as
# much, and formed gradients that can be kept serve the sum as well.
_KEEPING, _TURNING = 4, 2

# Inputs are unfolded in pieces of this many numbers. For one thread they stay in its core's cache; several threads are woken anew for
# each piece, which where they share their cores with others costs more than what leaves the cache: 2^22 float32 are 16 MiB.
_UNFOLDED, _UNFOLDED_TOGETHER = 2**18, 2**22

# Windows that are multiplied in float64 at a time: 2^21 numbers are 16 MiB. Each lot reads and writes the whole sum.
_TOGETHER = 2**21

# What equal terms may lose in a matrix product, in eps: it is summed in blocks, and 47 were measured.
_BLOCKED = 48

# Gram matrices are worked on in pieces that stay in a core's cache: 2^18 float32 are 1 MiB.
_CACHED = 2**18

# An addition of strided tensors costs about as much as this many multiplications inside a matrix product.
_ADDITION = 16


class Correlated(NamedTuple):
    """The two factors of a correlation in one use: input (B, C, *space) and gradient of the output (B, P, *places)."""

    inputs: Tensor
    gradients: Tensor


class Correlations(Cancelling):
    r"""$G_i[p, c, k] = \sum_t g_i[p, t]\, x_i[c, \mathrm{stride}\cdot t + \mathrm{dilation}\cdot k - \mathrm{padding}]$.

    Either the gradient is formed: by one product a record with the unfolded input; where channels come in groups, for all records at
    once as the weight gradient of one convolution with as many more groups. Or its
    norm is taken from two Gram matrices of positions, the unfolded input's being a sum over the kernel's taps of shifts of the input's own:

    $$\|G_i\|^2 = \sum_{t,s} (g_{it}\cdot g_{is}) \sum_k (x_{i,t+k}\cdot x_{i,s+k})$$

    so that no input is unfolded. The second wins for few positions and many channels, and is done in float64, see OuterProducts.

    Args:
        uses: one entry or more, float32 or float64.
        geometry: of the kernel.

    Reference: Rochette et al. 2019, arXiv:1912.06015 (one convolution for all records); Bu et al. 2022, arXiv:2205.10683 (Gram matrices).
    """

    def __init__(self, uses: Sequence[Correlated], geometry: Geometry) -> None:
        self.uses = tuple(uses)
        self.geometry = geometry
        self._lengths: list[tuple[Tensor, Tensor]] | None = None
        self.dtype = self.uses[0].gradients.dtype
        self.numbers = self.uses[0].gradients.shape[1] * (self.uses[0].inputs.shape[1] // geometry.groups) * prod(geometry.kernel)

    def _squares(self) -> Tensor:
        if self._uses_gram():
            return self._norms_by_gram(self.uses[0])
        if self._keeps():
            inputs, gradients = self.uses[0]
            self._kept = borrowed(self._shape(len(inputs)), gradients)
            if self._kept is not None:
                self._form(self._kept, self.uses)
                return squares_of(self._kept)
        return self._squares_in_turn()

    def _squares_in_turn(self) -> Tensor:
        return torch.cat([squares_of(formed) for formed in self._formed_in_turn(max(1, _FRESH // max(1, self.numbers)))])

    def _formed_in_turn(self, size: int) -> Iterator[Tensor]:
        """Formed gradients, so many records at a time; each lot is to be used before the next."""
        memory = scratch(self._shape(min(size, len(self.uses[0].inputs))), self.uses[0].gradients)
        for chunk in _chunks(self.uses, size):
            formed = memory[: len(chunk[0].inputs)]
            self._form(formed, chunk)
            yield formed

    def lengths(self) -> Tensor:
        """See Part."""
        return torch.stack([self._length(*use) for use in self.uses]).sum(0)

    def _length(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        r"""$\sum_t \|x_{i,t+\cdot}\| \|g_{it}\|$, from the windows' norms, groups of channels not told apart."""
        geometry = self.geometry
        slide = (functional.conv1d, functional.conv2d, functional.conv3d)[len(geometry.kernel) - 1]
        at, towards = inputs.square().sum(1, keepdim=True), gradients.square().sum(1)
        window = at.new_ones(1, 1, *geometry.kernel)
        reads = slide(at, window, None, geometry.stride, geometry.padding, geometry.dilation)[:, 0].clamp(min=0)  # pyright: ignore
        for axis, places in enumerate(towards.shape[1:], start=1):
            reads = reads.narrow(axis, 0, places)
        found = torch.linalg.vecdot(reads.flatten(1).sqrt(), towards.flatten(1).sqrt()).double()
        # Squares that vanished were below the smallest number, and there are no more of them than numbers.
        vanished = (torch.finfo(at.dtype).tiny * prod(geometry.kernel) * (inputs.numel() + gradients.numel())) ** 0.5
        return found + vanished * (squares_of(inputs).sqrt() + squares_of(gradients).sqrt())

    def _rough_lengths(self) -> Tensor:
        # By the inequality of Cauchy and Schwarz: no number is read by more windows than the kernel has taps.
        norms = self._norms()
        return prod(self.geometry.kernel) ** 0.5 * torch.stack([x * g for x, g in norms]).sum(0)

    def _roundings(self) -> float | None:
        """See Cancelling."""
        if self.uses[0].gradients.device.type != "cpu":
            return None  # another device may convolve by transforms
        once = 1 + sum(use.gradients.shape[2:].numel() for use in self.uses) / 2
        return once if self._uses_gram() else 2 * once  # formed by themselves, and again for the sum

    def _coherent(self) -> float:
        """See Cancelling; a convolution adds place after place, and equal terms lose up to a quarter of an eps at each."""
        once = sum(use.gradients.shape[2:].numel() for use in self.uses) / 4
        return max(super()._coherent(), once if self._uses_gram() else once + min(once, _BLOCKED))

    def _alike(self) -> Hashable:
        """See Measurable."""
        return type(self), self._roundings(), self._coherent()

    def _largest(self) -> Tensor | None:
        return torch.stack([norm for pair in self._norms() for norm in pair]).amax(0)

    def _norms(self) -> list[tuple[Tensor, Tensor]]:
        """Of each use's input and gradient, shapes (B,), float64."""
        if self._lengths is None:
            self._lengths = [(lengths_of(use.inputs), lengths_of(use.gradients)) for use in self.uses]
        return self._lengths

    def _factors(self) -> tuple[Tensor, ...]:
        """See Measurable."""
        return tuple(factor for use in self.uses for factor in use)

    def _let_go(self) -> bool:
        """See Cancelling."""
        for inputs, gradients in self.uses:
            freed(inputs, gradients)
        self.uses = tuple(Correlated(_without_places(use.inputs), _without_places(use.gradients)) for use in self.uses)
        return True

    def _raw(self, rows: Tensor, dtype: torch.dtype, *, brief: bool = False) -> Tensor:
        uses = [Correlated(use.inputs[rows].to(dtype), use.gradients[rows].to(dtype)) for use in self.uses]
        shape = self._shape(len(rows))
        formed = scratch(shape, uses[0].gradients) if brief else uses[0].gradients.new_empty(shape)
        self._form(formed, uses)
        return formed

    def _sum(self, weights: Tensor) -> Tensor:
        places = sum(use.gradients.shape[2:].numel() for use in self.uses)
        # Terms of float64 may cancel further than float64 could add those of several records.
        if self.geometry.groups == 1 and places < FORMED_FOR_SUM and (places == 1 or self.dtype == torch.float32):
            return self._ordered(products_added(self._unfolded(weights))).contiguous()
        size = max(1, _FRESH // max(1, self.numbers))
        return self._ordered(added_up(zip(weights.split(size), self._formed_in_turn(size), strict=True))).contiguous()

    def _unfolded(self, weights: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Weights, gradients and windows of inputs, some records of one use at a time."""
        for inputs, gradients in self.uses:
            places = gradients.shape[2:]
            size = max(1, _TOGETHER // max(1, places.numel() * self._shape(1)[2]))
            for chosen, g, x in zip(weights.split(size), gradients.split(size), inputs.split(size), strict=True):
                yield chosen, g.flatten(2).mT, windows(x, self.geometry, places)

    def per_record(self) -> Tensor:
        """See Part."""
        formed = self.uses[0].gradients.new_empty(self._shape(len(self.uses[0].inputs)))
        self._form(formed, self.uses)
        return self._ordered(formed)

    def _shape(self, records: int) -> tuple[int, int, int]:
        """Of formed gradients of so many records."""
        wide_out = self.uses[0].gradients.shape[1]
        return records, wide_out, self.numbers // max(1, wide_out)

    def _ordered(self, raw: Tensor) -> Tensor:
        """What was formed, shape (..., P, taps * channels), as the parameter has it."""
        kernel, channels = self.geometry.kernel, self.uses[0].inputs.shape[1] // self.geometry.groups
        if self.geometry.groups > 1:
            return raw.unflatten(-1, (channels, *kernel))
        return raw.unflatten(-1, (*kernel, channels)).movedim(-1, -1 - len(kernel))

    def _keeps(self) -> bool:
        inputs, gradients = self.uses[0]
        return len(inputs) * self.numbers <= (_HELD if gradients.shape[2:].numel() > _PLACES else _FRESH)

    def _uses_gram(self) -> bool:
        return len(self.uses[0].inputs) > 0 and len(self.uses) == 1 and self._gram_is_cheaper()

    def _gram_is_cheaper(self) -> bool:
        inputs, gradients = self.uses[0]
        space, places, groups = inputs.shape[2:].numel(), gradients.shape[2:].numel(), self.geometry.groups
        gram = space * space * inputs.shape[1] + places * places * gradients.shape[1]
        additions = sum(self.geometry.kernel) * space * max(space, places) * groups
        times = _KEEPING if self._keeps() else _TURNING
        return times * (gram + _ADDITION * additions) < places * self.numbers and groups * space * space <= _HELD

    def _form(self, formed: Tensor, uses: Sequence[Correlated]) -> None:
        """The gradients of all records of these uses, written in `formed`, shape (B, P, taps * channels)."""
        windowed = self.geometry.groups == 1
        held = uses[0].gradients.shape[2:].numel() * formed.shape[2] if windowed else self.numbers
        limit = _HELD if formed.device.type != "cpu" else _pieces() if windowed else _FRESH
        size = max(1, limit // max(1, held))
        for rows, chunk in zip(formed.split(size), _chunks(uses, size), strict=True):
            if windowed:
                self._form_by_windows(rows, chunk)
            else:
                self._form_by_groups(rows, chunk)

    def _form_by_windows(self, formed: Tensor, uses: Sequence[Correlated]) -> None:
        for number, (inputs, gradients) in enumerate(uses):
            columns, rows = gradients.flatten(2), windows(inputs, self.geometry, gradients.shape[2:])
            if number:
                formed.baddbmm_(columns, rows)
            else:
                torch.bmm(columns, rows, out=formed)

    def _form_by_groups(self, formed: Tensor, uses: Sequence[Correlated]) -> None:
        for number, (inputs, gradients) in enumerate(uses):
            # All records become one, each with channel groups of its own.
            joined, cotangents = inputs.reshape(1, -1, *inputs.shape[2:]), gradients.reshape(1, -1, *gradients.shape[2:])
            found = self._gradient(joined, cotangents, len(inputs) * self.geometry.groups).view_as(formed)
            if number:
                formed.add_(found)
            else:
                formed.copy_(found)

    def _gradient(self, inputs: Tensor, gradients: Tensor, groups: int) -> Tensor:
        shape = self.geometry
        weight = inputs.new_empty(()).expand(gradients.shape[1], inputs.shape[1] // groups, *shape.kernel)
        mask = [False, True, False]
        zeros = [0] * len(shape.kernel)
        _, gradient, _ = torch.ops.aten.convolution_backward(
            gradients, inputs, weight, None, shape.stride, shape.padding, shape.dilation, False, zeros, groups, mask
        )
        return gradient

    def _norms_by_gram(self, use: Correlated) -> Tensor:
        pairs = self.geometry.groups * use.inputs.shape[2:].numel() ** 2
        return torch.cat([self._chunk_by_gram(*chunk[0]) for chunk in _chunks((use,), max(1, _CACHED // pairs))])

    def _chunk_by_gram(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        groups, space = self.geometry.groups, inputs.shape[2:]
        rows = inputs.double().reshape(len(inputs) * groups, -1, space.numel())
        columns = gradients.double().reshape(len(rows), -1, gradients.shape[2:].numel())
        pairs = torch.bmm(rows.mT, rows).view(len(rows), *space, *space)
        for dimension in range(len(space)):
            pairs = self._summed_over_taps(pairs, dimension, gradients.shape[2 + dimension])
        pairs = pairs.reshape(len(rows), columns.shape[2], -1)
        others = torch.bmm(columns.mT, columns)
        return torch.bmm(pairs.flatten(1).unsqueeze(1), others.flatten(1).unsqueeze(2)).view(len(inputs), groups).sum(1)

    def _summed_over_taps(self, pairs: Tensor, dimension: int, places: int) -> Tensor:
        """Products of positions (B, ..., s, ..., s', ...) to products of windows along one dimension, summed over the kernel's taps."""
        shape, dimensions = self.geometry, len(self.geometry.kernel)
        axes = (1 + dimension, 1 + dimension + dimensions)
        padding, stride = shape.padding[dimension], shape.stride[dimension]
        if padding:
            widths = [padding if pairs.dim() - 1 - place // 2 in axes else 0 for place in range(2 * pairs.dim())]
            pairs = functional.pad(pairs, widths)
        total: Tensor | None = None
        for tap in range(shape.kernel[dimension]):
            chosen = [slice(None)] * pairs.dim()
            start = tap * shape.dilation[dimension]
            for axis in axes:
                chosen[axis] = slice(start, start + (places - 1) * stride + 1, stride)
            term = pairs[tuple(chosen)]
            total = term.clone() if total is None else total.add_(term)
        return cast("Tensor", total)


def _pieces() -> int:
    return _UNFOLDED if torch.get_num_threads() == 1 else _UNFOLDED_TOGETHER


def _without_places(factor: Tensor) -> Tensor:
    return factor.new_empty((*factor.shape[:2], *[0] * (factor.dim() - 2)))


def _chunks(uses: Sequence[Correlated], size: int) -> Iterator[list[Correlated]]:
    for start in range(0, max(1, len(uses[0].inputs)), size):
        rows = slice(start, start + size)
        yield [Correlated(use.inputs[rows], use.gradients[rows]) for use in uses]
