"""A weight applied to many positions of a record: its gradient is a sum of outer products, and need not be formed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.train.clipping.rules.measuring import Measurable, Sizes
from lethe.train.clipping.rules.parts import Rows, added, lengths_at_most, lengths_of, squares_of, taken
from lethe.train.clipping.rules.rounding import Cancelling
from lethe.train.clipping.workspace import at_once, borrowed, freed, scratch
from lethe.train.core.tensors import has_fast_doubles, on_cpu
from lethe.train.core.together.weighing import FORMED_FOR_SUM, added_up, products_added

# Numbers of formed gradients that are kept of few positions, at most: 2^24 float32 are 64 MiB.
_HELD = 2**24

# Numbers that may be held besides the activations, at most, while norms are taken by products of positions: 2^22 float32 are 16 MiB. On a
# GPU, where many parts are measured as one, 128 MiB.
_PAIRED, _PAIRED_ON_GPU = 2**22, 2**25

# Numbers formed at once where they are not kept: memory that is fresh from the operating system costs more than the arithmetic.
_FRESH = 2**20

# From so many positions on, records whose gradients are not kept are formed once more for the sum, see `Cancelling`.
_FEW = 16

# A matrix product on a CPU is summed in blocks of no more products than this; in ours, 384.
_BLOCK = 512

# Where a factor is one number wide it is not: its products are added one after another, so that they are given in pieces of this many.
_PIECE = 256


class Shares(NamedTuple):
    """Bounds of the multiplications that products of positions need, over those of forming the gradients."""

    formed: float
    """From here on, gradients that can be held are formed: they serve the sum as well."""
    products: float
    """And from here on they are formed although they cannot: twice."""


# Products are taken in float64, where each is worth two on a CPU and about one on a GPU made for it; others take 32 times as long.
_ON_CPU, _ON_GPU, _ON_OTHER_GPU = Shares(0.1, 0.5), Shares(2.0, 2.0), Shares(1 / 32, 1 / 32)


def shares_at(like: Tensor) -> Shares:
    """What is fastest on the device of a tensor."""
    if on_cpu(like):
        return _ON_CPU
    return _ON_GPU if has_fast_doubles(like.device) else _ON_OTHER_GPU


class Applied(NamedTuple):
    """The inputs of an affine map in one use of a layer, and the gradients of its results, shapes (B, T, d) and (B, T, p)."""

    inputs: Tensor
    gradients: Tensor


def weight_part(uses: Sequence[Applied]) -> OuterProducts:
    """The gradients in the weight of an affine map, over all its uses."""
    if len(uses) == 1:
        return OuterProducts(uses[0].inputs.contiguous(), uses[0].gradients.contiguous())
    return OuterProducts(torch.cat([use.inputs for use in uses], dim=1), torch.cat([use.gradients for use in uses], dim=1))


def shift_part(uses: Sequence[Applied]) -> Rows:
    """The gradients in the bias of an affine map, over all its uses."""
    return Rows(added([use.gradients.sum(1) for use in uses]))


class OuterProducts(Cancelling):
    r"""$G_i = \sum_t g_{it} x_{it}^\top$, for a weight $W$ used as $s_{it} = W x_{it}$.

    $$\|G_i\|^2 = \langle x_i x_i^\top,\, g_i g_i^\top \rangle = \sum_{t,s} (x_{it} \cdot x_{is})(g_{it} \cdot g_{is})$$

    costs $T^2(p+d)$ multiplications a record, forming $G_i$ costs $Tpd$: the faster is done. The products are taken in float64: their
    rounding is multiplied by $(\sum_t \|x_{it}\| \|g_{it}\|)^2 / \|G_i\|^2$, and their range is the square of the factors'.

    Args:
        inputs: $x$, shape (B, T, d).
        gradients: $g$, shape (B, T, p), of the same dtype, float32 or float64.

    Attributes:
        turned: whether gradients are formed as $x_i^\top g_i$, with the longer rows, which is faster: three times for eight inputs.

    Reference: Goodfellow 2015, arXiv:1510.01799 (T = 1); Bu et al. 2022, arXiv:2205.10683 (the choice).
    """

    def __init__(self, inputs: Tensor, gradients: Tensor) -> None:
        self.inputs = inputs
        self.gradients = gradients
        self.dtype = gradients.dtype
        self.numbers = inputs.shape[2] * gradients.shape[2]
        self.turned = gradients.shape[2] > inputs.shape[2]
        self._lengths: tuple[Tensor, Tensor] | None = None
        self._formed_in_turn = False

    def _squares(self) -> Tensor:
        self._leave_out_silent()
        positions, wide_in, wide_out = self.inputs.shape[1], self.inputs.shape[2], self.gradients.shape[2]
        if positions == 1:
            return self.lengths().square()
        self._kept = self.formed_to_keep()
        if self._kept is not None:
            return squares_of(self._kept)
        if self._share() > shares_at(self.inputs).products:
            self._formed_in_turn = True
            size = max(1, at_once(_FRESH, self.inputs) // max(1, self.numbers))
            formed = scratch(self._shape(min(size, len(self.inputs))), self.inputs)
            pairs = zip(self.inputs.split(size), self.gradients.split(size), strict=True)
            return torch.cat([squares_of(self._form(x, g, out=formed[: len(x)])) for x, g in pairs])
        # Copies in float64 of a chunk count twice.
        pairs = self._chunks(4 * positions * positions + 2 * positions * (wide_in + wide_out))
        return torch.cat([_inner(x.double(), g.double()) for x, g in pairs])

    def _waits(self) -> Hashable:
        """See Measurable: on a GPU, which takes longer to be asked than to compute."""
        if on_cpu(self.inputs) or not len(self.inputs) or type(self) is not OuterProducts:
            return None
        return self.inputs.shape, self.gradients.shape, self.dtype, self.inputs.device, self.turned

    def _measure_with(self, parts: Sequence[Measurable]) -> None:
        """See Measurable."""
        some = [part for part in parts if isinstance(part, OuterProducts)]
        for part in some:
            part._require_unwritten()
        if len(some) == 1:
            self._measure()
            return
        one = OuterProducts(torch.cat([part.inputs for part in some]), torch.cat([part.gradients for part in some]))
        one.turned = self.turned
        squares, records = one._squares().double(), len(self.inputs)
        kept = [None] * len(some) if one._kept is None else one._kept.split(records)
        told = zip(*(lengths.split(records) for lengths in one._norms()), strict=True)
        for part, own, formed, lengths in zip(some, squares.split(records), kept, told, strict=True):
            part._lengths, part._kept, part._formed_in_turn = lengths, formed, one._formed_in_turn
            part._sizes = Sizes(own, lengths)

    def _is_kept(self) -> bool:
        """See Cancelling."""
        return super()._is_kept() or (self._known is None and self._sizes is None and self._worth_keeping())

    def _share(self) -> float:
        """The multiplications of products of positions, of those of forming the gradients."""
        return self.inputs.shape[1] * (self.inputs.shape[2] + self.gradients.shape[2]) / max(1, self.numbers)

    def formed_to_keep(self) -> Tensor | None:
        """All gradients, as `_raw` gives them, in memory that serves for the sum, too; None: it is not worth it, or there is none."""
        memory = borrowed(self._shape(len(self.inputs)), self.inputs) if self._worth_keeping() else None
        return None if memory is None else self._form(self.inputs, self.gradients, out=memory)

    def _worth_keeping(self) -> bool:
        batch, positions = self.inputs.shape[:2]
        return self._share() > shares_at(self.inputs).formed and not (positions <= _FEW and batch * self.numbers > _HELD)

    def _shape(self, records: int) -> tuple[int, int, int]:
        """Of formed gradients of so many records."""
        wide_in, wide_out = self.inputs.shape[2], self.gradients.shape[2]
        return (records, wide_in, wide_out) if self.turned else (records, wide_out, wide_in)

    def _form(self, inputs: Tensor, gradients: Tensor, *, out: Tensor | None = None) -> Tensor:
        return _formed(inputs, gradients, out=out) if self.turned else _formed(gradients, inputs, out=out)

    def _ordered(self, raw: Tensor) -> Tensor:
        """See Cancelling."""
        return raw.mT if self.turned else raw

    def _leave_out_silent(self) -> None:
        """Drop the positions where no record has a gradient, as all but one are above the last attention of a classifier.

        Not where an input is not finite: a record's 0 times it must count alike, whatever the other records hold. On a GPU it would take
        longer to ask than it saves.
        """
        if not on_cpu(self.inputs) or not self.inputs.numel() or _heard(self.gradients):
            return
        silent = ((self.gradients.amax(2) == 0) & (self.gradients.amin(2) == 0)).all(0)
        silent[:1] = False  # one is left
        heard = (~silent).nonzero()[:, 0]
        if 2 * len(heard) > len(silent) or not all(math.isfinite(end) for end in self.inputs.aminmax()):
            return
        before = self.inputs, self.gradients
        self.inputs, self.gradients = self.inputs[:, heard], self.gradients[:, heard]
        freed(*before, kept=self.inputs.nbytes + self.gradients.nbytes)

    def lengths(self) -> Tensor:
        """See Part."""
        return torch.linalg.vecdot(*self._norms())

    def _roundings(self) -> float:
        """See Cancelling; a record's gradient that is not kept is formed twice, once by itself and once in the sum."""
        positions = self.inputs.shape[1]
        in_turn = positions / 2
        blocked = (min(positions, _BLOCK) + -(-positions // _BLOCK)) / 2 if on_cpu(self.gradients) else in_turn
        twice = (in_turn if self._thin() else blocked) if self._formed_in_turn else 0
        return 1 + blocked + twice

    def _alike(self) -> Hashable:
        """See Measurable."""
        return type(self), self._roundings()

    def _told(self) -> tuple[Tensor, ...]:
        """See Cancelling."""
        return self._norms()

    def _bounds(self, told: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """See Measurable."""
        x, g = told
        return torch.linalg.vecdot(x, g), torch.maximum(x, g).amax(-1) if x.shape[-1] else None

    def _at_most(self) -> tuple[NDArray[np.float64], float] | None:
        """See Cancelling."""
        return lengths_at_most(self.inputs, self.gradients)

    def _silent(self, rows: NDArray[np.bool_]) -> bool:
        """See Cancelling; such as padding."""
        return not bool(self.gradients[torch.from_numpy(rows)].any())

    def _thin(self) -> bool:
        return min(self.inputs.shape[2], self.gradients.shape[2]) <= 1

    def _largest(self) -> Tensor | None:
        return self._bounds(self._norms())[1]

    def _norms(self) -> tuple[Tensor, Tensor]:
        """Of x and g at each position, shapes (B, T), float64."""
        if self._lengths is None:
            x, g = (lengths_of(factor.flatten(0, 1)).view(factor.shape[:2]) for factor in (self.inputs, self.gradients))
            self._lengths = x, g
        return self._lengths

    def _factors(self) -> tuple[Tensor, Tensor]:
        """See Measurable."""
        return self.inputs, self.gradients

    def _let_go(self) -> bool:
        """See Cancelling."""
        freed(self.inputs, self.gradients)
        self.inputs, self.gradients = (factor.new_empty((len(factor), 0, factor.shape[2])) for factor in (self.inputs, self.gradients))
        return True

    def _raw(self, rows: Tensor, dtype: torch.dtype, *, brief: bool = False) -> Tensor:
        inputs, gradients = (taken(factor, rows).to(dtype) for factor in (self.inputs, self.gradients))
        return self._form(inputs, gradients, out=scratch(self._shape(len(rows)), gradients) if brief else None)

    def _chunks(self, held: int) -> Iterator[tuple[Tensor, Tensor]]:
        size = max(1, (_PAIRED if on_cpu(self.inputs) else _PAIRED_ON_GPU) // max(1, held))
        return zip(self.inputs.split(size), self.gradients.split(size), strict=True)

    def _sum(self, weights: Tensor) -> Tensor:
        positions, wide_in, wide_out = self.inputs.shape[1], self.inputs.shape[2], self.gradients.shape[2]
        # Terms of float64 may cancel further than float64 could add those of several records.
        if positions >= FORMED_FOR_SUM or (positions > 1 and self.dtype == torch.float64):
            return self._ordered(added_up(self._in_turn(weights))).contiguous()
        size = max(1, at_once(_FRESH, self.inputs) // max(1, positions * (wide_in + wide_out)))
        return products_added(zip(weights.split(size), self.gradients.split(size), self.inputs.split(size), strict=True))

    def _in_turn(self, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Weights and formed gradients, a few records at a time; each lot is to be used before the next."""
        size = max(1, at_once(_FRESH, self.inputs) // max(1, self.numbers))
        memory = scratch(self._shape(min(size, len(self.inputs))), self.gradients)
        for x, g, chosen in zip(self.inputs.split(size), self.gradients.split(size), weights.split(size), strict=True):
            yield chosen, self._form(x, g, out=memory[: len(x)])

    def per_record(self) -> Tensor:
        """See Part."""
        return self._ordered(self._form(self.inputs, self.gradients))


def _heard(gradients: Tensor) -> bool:
    """Whether the first position, one in the middle and the last have gradients: then it is unlikely that most have none."""
    if not gradients.numel():
        return True
    numbers, last = gradients.detach().numpy(), gradients.shape[1] - 1
    return all(numbers[0, place, 0] or bool(numbers[:, place].any()) for place in (0, last // 2, last))


def _formed(gradients: Tensor, inputs: Tensor, *, out: Tensor | None = None) -> Tensor:
    """$G_i$ of every record, shape (B, p, d); where a factor is one number wide, in pieces whose sums are added in float64."""
    positions = inputs.shape[1]
    if min(inputs.shape[2], gradients.shape[2]) > 1 or positions <= _PIECE:
        return torch.bmm(gradients.mT, inputs, out=out)
    whole = positions - positions % _PIECE
    columns, rows = (factor[:, :whole].unflatten(1, (-1, _PIECE)).flatten(0, 1) for factor in (gradients, inputs))
    summed = torch.bmm(columns.mT, rows).unflatten(0, (len(inputs), -1)).sum(1, dtype=torch.float64)
    summed += torch.bmm(gradients[:, whole:].mT, inputs[:, whole:])
    return summed.to(gradients.dtype) if out is None else out.copy_(summed)


def _inner(inputs: Tensor, gradients: Tensor) -> Tensor:
    return (torch.bmm(inputs, inputs.mT) * torch.bmm(gradients, gradients.mT)).sum((1, 2))
