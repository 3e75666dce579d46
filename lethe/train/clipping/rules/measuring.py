"""How far rounding may put what is added from what was measured, and which records are therefore summed by themselves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.train.clipping.rules.parts import Part, places_of, squares_of
from lethe.train.clipping.rules.precision import full_precision
from lethe.train.core.tensors import on_cpu

# Rounding of a matrix product, in units of eps times the terms' lengths: random errors of some hundred additions, with room.
_ROUNDINGS = 16

# Records for which rounding may be a larger share of the norm than this are summed by themselves in float64.
_SHARE = 1e-4

# The same of what rounding can do at the worst, to terms that were made for it; what is expected is some tenth of it or less.
_SHARE_PROVED = 1e-2

# The same where the formed tensor that is measured is the one that is added, so that only its agreement between batches is at stake.
SHARE_FORMED = 1e-3

# Where rounding may add more than this share, a record is formed by itself and held to the norm that was measured: the slack for it would
# shrink the record by as much. On a GPU, where a product of its own for each record takes several times as long, more: what T terms of one
# length and any direction may be off by is $\frac T2\epsilon\sqrt T$ of their sum, up to 256 of them.
_SHARE_SHRUNK, _SHARE_SHRUNK_ON_GPU = 4e-6, 2.5e-4

# Products of positions, in float64, may put a squared norm off by so many eps of the squared lengths at the worst: by half as many as a
# position has numbers in both factors (up to 2^18 of them), and by their own sum. Where this may be a larger share of
# the squared norm than the second, a record is formed.
_PRODUCTS, _SHARE_PRODUCTS = 2**17, 1e-7

# Larger factors than these go with others so small that products with weights would vanish or lose digits.
ROOM = {torch.float32: 1e15, torch.float64: 1e100}

# Numbers that records summed by themselves in float64 may hold at a time: 2^23 are 64 MiB.
HELD = 2**23

# Numbers of the factors of parts that are measured as one: 2^25 float32 are 128 MiB, copied for it.
_AS_ONE = 2**25

Lengths = TypeVar("Lengths", Tensor, NDArray[np.float64])


def lost(lengths: Lengths, dtype: torch.dtype) -> Lengths:
    r"""The largest rounding error, in norm, of a sum $\sum_t a_t$ of terms with $\sum_t \|a_t\|$ = `lengths`."""
    return _ROUNDINGS * torch.finfo(dtype).eps * lengths


def uncertain(lengths: Tensor, sums: Tensor) -> Tensor:
    """Which sums, shape (N, ...), of terms of these lengths, shape (N,), even float64 leaves in doubt, shape (N,), bool."""
    return lost(lengths, torch.float64) > _SHARE * squares_of(sums).sqrt()


class Sizes(NamedTuple):
    """What a part tells of its records before anything is decided."""

    squares: Tensor
    """Squared norms as computed, float64, shape (B,)."""
    told: tuple[Tensor, ...]
    """What `Measurable._bounds` goes by, records first."""


class Measured(NamedTuple):
    """What is known of the records once they are measured."""

    squares: Tensor
    """Squared norms, float64, shape (B,)."""
    slack: Tensor | None
    """See Part, shape (B,)."""
    exact: Tensor
    """The records that are summed by themselves in float64."""
    held: Tensor
    """Those that are formed by themselves and held to the norm that was measured."""


class Measurable(Part):
    """A part of which is decided, once it is measured, which records are summed by themselves and what rounding may add to the others."""

    numbers: int
    """How many numbers the parameter has."""

    _sizes: Sizes | None = None
    _known: Measured | None = None
    _kept: Tensor | None = None

    @abstractmethod
    def _measure(self) -> None:
        """Set `_sizes`, or `_known` where nothing is left to decide; and `_kept`, if all gradients are formed and kept."""

    @abstractmethod
    def _bounds(self, told: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """`lengths`, or a bound of them where formed gradients are kept; and the size of each record's largest factor, if it matters.

        Args:
            told: of this part; or of parts that are alike, stacked in front.
        """

    @abstractmethod
    def _between(self, lengths: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """How far the added may lie from the measured, and how far it is expected to."""

    @abstractmethod
    def _alone(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """G_i of some records, summed in float64; 0 where even that leaves it in doubt."""

    @abstractmethod
    def _at_once(self, numbers: int) -> int:
        """How many records to form at once, if so many numbers may be held."""

    def _factors(self) -> Sequence[Tensor]:
        """What the gradients are formed of, for `settle`: between measuring and adding nobody may write to it."""
        return ()

    def _alike(self) -> Hashable:
        """What `_between` and `_bounds` go by: of parts of which it is equal is decided together; None: of this one by itself."""
        return None

    def _waits(self) -> Hashable:
        """Parts of which it is equal wait, and are measured as if their records were those of one; None: this one is measured at once."""
        return None

    def _measure_with(self, parts: Sequence[Measurable]) -> None:
        """Measure some parts of which `_waits` is equal, or this one by itself."""
        self._measure()


def measure(parts: Sequence[Measurable]) -> None:
    """Measure some parts, those that are alike at once: to decide of their records takes as many operations as to decide of one part's."""
    with torch.no_grad(), full_precision():
        for some in _as_one([part for part in parts if part._sizes is None and part._known is None]):
            some[0]._measure_with(some)
        groups: dict[Hashable, list[Measurable]] = {}
        for part in parts:
            if (sizes := part._sizes) is None:
                continue
            of = (*(one.shape for one in (sizes.squares, *sizes.told)), sizes.squares.device, part.dtype, part._kept is None)
            alike = part._alike()
            groups.setdefault(id(part) if alike is None else (alike, *of), []).append(part)
        for group in groups.values():
            _decide(group)


def _as_one(parts: Sequence[Measurable]) -> Iterator[list[Measurable]]:
    """Parts that are measured as if their records were those of one, as many together as are not too much to copy."""
    groups: dict[Hashable, list[Measurable]] = {}
    for part in parts:
        groups.setdefault(id(part) if (kind := part._waits()) is None else kind, []).append(part)
    for group in groups.values():
        numbers = sum(factor.numel() for factor in group[0]._factors())
        size = max(1, _AS_ONE // max(1, numbers))
        yield from (group[first : first + size] for first in range(0, len(group), size))


def _decide(parts: Sequence[Measurable]) -> None:
    """What is known of the records of parts that are alike."""
    first, sizes = parts[0], [part._sizes for part in parts if part._sizes is not None]
    squares = _stacked([one.squares for one in sizes]).clamp(min=0)
    lengths, largest = first._bounds([_stacked(told) for told in zip(*(one.told for one in sizes), strict=True)])
    norms, slack, held = squares.sqrt(), None, None
    if first._kept is None:
        slack, expected = first._between(lengths, norms)
        doubtful = (expected > _SHARE * norms) | (slack > _SHARE_PROVED * norms)
        doubtful |= _PRODUCTS * torch.finfo(torch.float64).eps * lengths.square() > _SHARE_PRODUCTS * squares
    else:
        doubtful = lost(lengths, first.dtype) > SHARE_FORMED * norms
    if largest is not None:
        doubtful = doubtful | (largest > ROOM[first.dtype])
    if slack is not None:
        held = (slack > (_SHARE_SHRUNK if on_cpu(norms) else _SHARE_SHRUNK_ON_GPU) * norms) & ~doubtful
        slack = slack.masked_fill(doubtful | held, 0).nan_to_num(nan=0.0, posinf=0.0)
    exact, formed = places_of([doubtful] if held is None else [doubtful, held], len(parts))
    slacks = [None] * len(parts) if slack is None else slack.view(len(parts), squares.shape[-1]).unbind()
    rows = squares.view(len(parts), squares.shape[-1]).unbind()
    for part, own, loose, chosen, longer in zip(parts, rows, slacks, exact, formed, strict=True):
        if len(chosen):
            terms = part.lengths()
            for chunk in chosen.split(part._at_once(HELD)):
                own[chunk] = squares_of(part._alone(chunk, terms))
        part._known, part._sizes = Measured(own, loose, chosen, longer), None


def _stacked(told: Sequence[Tensor]) -> Tensor:
    return told[0] if len(told) == 1 else torch.stack(tuple(told))
