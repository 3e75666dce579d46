"""Rounding error of sums with cancellation, and a careful summation for the records it could matter for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.train.clipping.rules.measuring import HELD, ROOM, SHARE_FORMED, Measurable, Measured, Sizes, lost, measure, uncertain
from lethe.train.clipping.rules.parts import squares_of
from lethe.train.clipping.rules.precision import full_precision
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.clipping.workspace import at_once
from lethe.train.core.tensors import on_cpu
from lethe.train.core.together.weighing import added_up, none_is_zero, weighed

# The same of terms that do not cancel, in units of eps times their sum's norm. Equal terms may all be rounded the same way: 47 were
# measured (384 terms), and half of what is here is in the allowance that all norms get, which such parts have no other use for.
_COHERENT = 32

# Numbers of records that are held to what was measured, at a time: 2^20 float32 are 4 MiB.
_REUSED = 2**20

_NOBODY = torch.empty(0, dtype=torch.int64)


class Cancelling(Measurable):
    r"""A part $G_i = \sum_t a_{it}$ that is measured from one record's terms, and summed from those of all records in one product.

    Rounding of that product is some eps times $L_i = \sum_t \|a_{it}\|$, which may be far above $\|G_i\|$. A record for which it is
    expected to be more than 1e-4 of the norm, or could be more than 1e-2, or whose norm products of positions could miss, is taken out of
    the product: its $G_i$ is formed in float64, measured, and added as it was measured. Where float64 leaves as much in doubt, $G_i$
    counts as 0.

    For the others, `slack` says what the product may add. A record that this would shrink by more than 4e-6 of its norm (on a GPU by more
    than 2.5e-4) is taken out as well: its $G_i$ is formed, and made shorter if it came out longer than it was measured.
    """

    _versions: tuple[int, ...] | None = None

    @abstractmethod
    def _squares(self) -> Tensor:
        """Squared norms, correct but for rounding, shape (B,). If all G_i were formed for them, they may be left in `_kept`."""

    @abstractmethod
    def _sum(self, weights: Tensor) -> Tensor:
        """The weighted sum, float64, correct but for what rounding does to each record by itself."""

    @abstractmethod
    def _raw(self, rows: Tensor, dtype: torch.dtype, *, brief: bool = False) -> Tensor:
        """G_i of some records, summed in an arithmetic, shape (len(rows), ...), in the order that is cheap.

        If `brief`, the memory may be used again by the next call.
        """

    def _ordered(self, raw: Tensor) -> Tensor:
        """What `_raw` gives, or a sum of it, in the parameter's order."""
        return raw

    def formed(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See Part."""
        return self._ordered(self._raw(rows, dtype))

    def _rough_lengths(self) -> Tensor:
        """An upper bound of `lengths`, where it is cheaper."""
        return self.lengths()

    def _roundings(self) -> float | None:
        r"""What rounding may put between the measured and the added, in units of eps times `lengths`, where that is proved; or None.

        A sum of T products is right to $\frac T2\epsilon\sum_t|a_t|$ in any order (Higham 2002, section 3.1).
        """
        return None

    def _coherent(self) -> float:
        """The same where all terms point one way, in units of eps times their sum's norm, as measured of products summed in blocks."""
        return _COHERENT

    def _largest(self) -> Tensor | None:
        """The size of each record's largest factor, which must leave room for the smallest, shape (B,); None: no factors."""
        return None

    def _at_most(self) -> tuple[NDArray[np.float64], float] | None:
        """A bound of `lengths` that is quick to take on a CPU, shape (B,), and one of all of `_largest`; None: there is none."""
        return None

    def _silent(self, rows: NDArray[np.bool_]) -> bool:
        """Whether some records, whose norm is 0, have terms of 0 only; False: it is not known."""
        return False

    def _beyond_doubt(self, norms: NDArray[np.float64]) -> bool:
        """Whether quick bounds clear all records, where formed gradients are kept on a CPU; else each is asked. Norms have shape (B,)."""
        if not (bounds := self._at_most()):
            return False
        clear = (lost(bounds[0], self.dtype) <= SHARE_FORMED * norms) & (bounds[1] <= ROOM[self.dtype])  # not where one is no number
        return bool(clear.all()) or not (norms[~clear].any() or not self._silent(~clear))

    def _told(self) -> tuple[Tensor, ...]:
        """What `_bounds` goes by; of parts that are alike it is stacked in front."""
        lengths, largest = self.lengths() if self._kept is None else self._rough_lengths(), self._largest()
        return (lengths,) if largest is None else (lengths, largest)

    def _bounds(self, told: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """See Measurable."""
        return told[0], told[1] if len(told) > 1 else None

    def _measured(self) -> Measured:
        if self._known is None:
            measure([self])
        assert self._known is not None
        return self._known

    def _measure(self) -> None:
        """See Measurable."""
        squares = self._squares().double()
        clear = self._kept is not None and on_cpu(squares) and self._beyond_doubt(np.sqrt(squares.detach().numpy()))
        self._known = Measured(squares, None, _NOBODY, _NOBODY) if clear else None
        self._sizes = None if clear else Sizes(squares, self._told())

    def _between(self, lengths: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """See Measurable.

        What is proved is taken where it is known: terms can be chosen such that each addition is rounded up, by half an eps of one that
        came before them and cancels after them.
        """
        epsilon, proved, expected = torch.finfo(self.dtype).eps, self._roundings(), lost(lengths, self.dtype)
        if proved is None:
            return torch.maximum(expected, self._coherent() * epsilon * norms), expected
        slack = proved * epsilon * lengths
        return slack, torch.minimum(expected, slack)

    def _at_once(self, numbers: int) -> int:
        """See Measurable."""
        return max(1, numbers // max(1, self.numbers))

    def _alone(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """See Measurable."""
        formed = self._raw(rows, torch.float64)
        return formed.masked_fill_(uncertain(lengths[rows], formed).view(-1, *[1] * (formed.dim() - 1)), 0)

    @property
    def decided(self) -> bool:
        """Whether nothing is left for `settle` to decide."""
        return self._known is not None

    def begin(self) -> int:
        """Form and measure now, unless it waits for others, before `settle` decides of it, alone or with others.

        Returns:
            How many bytes are held until then that `settle` may let go of.
        """
        if self._waits() is None:
            with torch.no_grad(), full_precision():
                self._measure()
        factors = self._factors()
        self._versions = tuple(factor._version for factor in factors)
        return sum(factor.nbytes for factor in factors) if self._is_kept() else 0

    def _is_kept(self) -> bool:
        """Whether all gradients are formed and kept, or may be once they are measured."""
        return self._kept is not None

    def settle(self) -> None:
        """See Part."""
        if self._versions is None:
            self.begin()
        found = self._measured()
        if self._kept is not None and not len(found.exact) and not len(found.held) and self._let_go():
            self.whole, self._versions = False, None

    def _let_go(self) -> bool:
        """Drop the factors, where `_kept` and what was measured are all that is asked for from now on; whether that was done."""
        return False

    def squared_norms(self) -> Tensor:
        """See Part."""
        return self._measured().squares

    def slack(self) -> Tensor | None:
        """See Part."""
        return self._measured().slack

    def _together(self, weights: Tensor) -> Tensor:
        if self._kept is None:
            return self._sum(weights)
        # As where a check asks of a few.
        if not none_is_zero(weights) and on_cpu(weights) and 2 * len(used := weights.nonzero()[:, 0]) <= len(weights):
            return self._ordered(weighed(weights[used], self._kept[used])).contiguous()
        return self._ordered(weighed(weights, self._kept)).contiguous()

    def _require_unwritten(self) -> None:
        """Refuse factors that were written to since `begin`.

        Raises:
            UnfollowedError: one was.
        """
        if self._versions is not None and self._versions != tuple(factor._version for factor in self._factors()):
            raise UnfollowedError(
                "a layer's input, or the gradient of its output, was changed in place within the backward pass.",
                source="a hook on a tensor, or the backward of a torch.autograd.Function, that writes to what it is given",
                remedy="give back a new tensor (gradient * 2 instead of gradient.mul_(2)).",
            )

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See Part.

        Raises:
            UnfollowedError: what was measured within the backward pass was changed after it.
        """
        found = self._measured()
        self._require_unwritten()
        with full_precision():
            if not len(found.exact) + len(found.held):
                return self._together(weights)
            by_themselves = torch.cat([found.exact, found.held])
            rest = weights.index_fill(0, by_themselves, 0)
            found = found._replace(exact=_weighing(found.exact, weights), held=_weighing(found.held, weights))
            if not len(found.exact) + len(found.held):
                return self._together(rest)
            total = self._ordered(added_up(chain(self._exact(found, weights), self._held(found, weights)))).contiguous()
            # A product of all records for none of them would be for nothing.
            return total.add_(self._together(rest)) if len(by_themselves) < len(weights) and bool(rest.any()) else total

    def _exact(self, found: Measured, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        if len(found.exact):
            lengths = self.lengths()
            for rows in found.exact.split(self._at_once(HELD)):
                yield weights[rows], self._alone(rows, lengths)

    def _held(self, found: Measured, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        # An empty tensor would be split in one piece of none.
        for rows in found.held.split(self._at_once(at_once(_REUSED, weights))) if len(found.held) else ():
            formed = self._raw(rows, self.dtype, brief=True)
            shortened = (found.squares[rows] / squares_of(formed)).sqrt().clamp(max=1).nan_to_num(nan=0.0)
            yield weights[rows] * shortened, formed


def _weighing(rows: Tensor, weights: Tensor) -> Tensor:
    """Those of the records that do not have the weight 0; on a GPU all, which is no more work than to ask."""
    return rows[weights[rows] != 0] if on_cpu(weights) else rows
