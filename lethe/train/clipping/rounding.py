"""Sums of terms that may cancel: what rounding can do to them, and the careful way for the records it could matter for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from lethe.train.clipping.parts import Part, silenced, squares_of

# Rounding of a matrix product, in units of eps times the terms' lengths: random errors of some hundred additions, with room.
_ROUNDINGS = 16

# Records for which rounding may be a larger share of the norm than this are summed by themselves in float64.
_SHARE = 1e-4

# The same of what rounding can do at the worst, to terms that were made for it; what is expected is some tenth of it or less.
_SHARE_PROVED = 1e-2

# The same where the formed tensor that is measured is the one that is added, so that only its agreement between batches is at stake.
_SHARE_FORMED = 1e-3

# Larger factors than these go with others so small that products with weights would vanish or lose digits.
_ROOM = {torch.float32: 1e15, torch.float64: 1e100}

# The same of terms that do not cancel, in units of eps times their sum's norm. Equal terms may all be rounded the same way: 47 were
# measured (384 terms), and half of what is here is in the allowance that all norms get, which such parts have no other use for.
_COHERENT = 32

# Numbers in float64 that may be held for such records at a time: 2^23 are 64 MiB.
_HELD = 2**23

_WITHIN: ContextVar[bool] = ContextVar("lethe_full_precision", default=False)


@contextmanager
def full_precision() -> Generator[None]:
    """Within: products of float32 numbers are float32 products, on every device; TF32 and bfloat16 are off."""
    if _WITHIN.get():  # the switches cost more than a small product
        yield
        return
    product, convolutions = torch.get_float32_matmul_precision(), _convolutions()
    owners = _owners()
    before = [owner.fp32_precision for owner in owners]
    token = _WITHIN.set(True)
    try:
        # The older switches first: torch refuses to answer where they disagree with the newer ones.
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        for owner in owners:
            owner.fp32_precision = "ieee"
        yield
    finally:
        _WITHIN.reset(token)
        torch.set_float32_matmul_precision(product)
        if convolutions is not None:
            torch.backends.cudnn.allow_tf32 = convolutions
        for owner, value in zip(owners, before, strict=True):
            owner.fp32_precision = value


def _owners() -> list[Any]:
    """The switches of torch 2.9 and later, in the order in which they are set back."""
    backends: Any = torch.backends
    if not hasattr(backends.cuda.matmul, "fp32_precision"):
        return []
    return [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.matmul, backends.mkldnn.conv]


def _convolutions() -> bool | None:
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # the newer switches were set apart
        return None


def lost(lengths: Tensor, dtype: torch.dtype) -> Tensor:
    r"""What rounding may take from a sum $\sum_t a_t$ of terms with $\sum_t \|a_t\|$ = `lengths`, in norm."""
    return _ROUNDINGS * torch.finfo(dtype).eps * lengths


def uncertain(lengths: Tensor, sums: Tensor) -> Tensor:
    """Which sums, shape (N, ...), of terms of these lengths, shape (N,), even float64 leaves in doubt, shape (N,), bool."""
    return lost(lengths, torch.float64) > _SHARE * squares_of(sums).sqrt()


class Cancelling(Part):
    r"""A part $G_i = \sum_t a_{it}$ that is measured from one record's terms, and summed from those of all records in one product.

    Rounding of that product is some eps times $L_i = \sum_t \|a_{it}\|$, which may be far above $\|G_i\|$. A record for which it is
    expected to be more than 1e-4 of the norm, or could be more than 1e-2, is taken out of the product: its $G_i$ is formed in float64,
    measured, and added as it was measured. Where float64 leaves as much in doubt, $G_i$ counts as 0.

    For the others, `slack` says what the product may add.
    """

    numbers: int
    """How many numbers the parameter has."""

    _known: tuple[Tensor, Tensor, Tensor] | None = None
    _kept: Tensor | None = None

    @abstractmethod
    def _squares(self) -> Tensor:
        """Squared norms, correct but for rounding, shape (B,). If all G_i were formed for them, they may be left in `_kept`."""

    @abstractmethod
    def _sum(self, weights: Tensor) -> Tensor:
        """The weighted sum, correct but for rounding."""

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

    def _measured(self) -> tuple[Tensor, Tensor, Tensor]:
        """Squared norms and slack, float64, and the records that are summed by themselves."""
        if self._known is None:
            with torch.no_grad(), full_precision():
                self._known = self._measure()
        return self._known

    def _measure(self) -> tuple[Tensor, Tensor, Tensor]:
        squares = self._squares().double().clamp(min=0)
        norms = squares.sqrt()
        lengths = self.lengths() if self._kept is None else self._rough_lengths()
        if self._kept is None:
            slack, expected = self._between(lengths, norms)
            doubtful = (expected > _SHARE * norms) | (slack > _SHARE_PROVED * norms)
        else:
            slack, doubtful = torch.zeros_like(norms), lost(lengths, self.dtype) > _SHARE_FORMED * norms
        if (largest := self._largest()) is not None:
            doubtful = doubtful | (largest > _ROOM[self.dtype])
        rows = doubtful.nonzero()[:, 0]
        if len(rows):
            lengths = self.lengths()
            slack[rows] = 0
            for chunk in rows.split(self._at_once()):
                squares[chunk] = squares_of(self._alone(chunk, lengths))
        return squares, slack.nan_to_num(nan=0.0, posinf=0.0), rows

    def _between(self, lengths: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """How far the added may lie from the measured, and how far it is expected to.

        What is proved is taken where it is known: terms can be chosen such that each addition is rounded up, by half an eps of one that
        came before them and cancels after them.
        """
        epsilon, proved, expected = torch.finfo(self.dtype).eps, self._roundings(), lost(lengths, self.dtype)
        if proved is None:
            return torch.maximum(expected, self._coherent() * epsilon * norms), expected
        slack = proved * epsilon * lengths
        return slack, torch.minimum(expected, slack)

    def _at_once(self) -> int:
        return max(1, _HELD // max(1, self.numbers))

    def _alone(self, rows: Tensor, lengths: Tensor) -> Tensor:
        formed = self.exactly(rows)
        return formed.masked_fill_(uncertain(lengths[rows], formed).view(-1, *[1] * (formed.dim() - 1)), 0)

    def squared_norms(self) -> Tensor:
        """See Part."""
        return self._measured()[0].clone()

    def slack(self) -> Tensor:
        """See Part."""
        return self._measured()[1]

    def _together(self, weights: Tensor) -> Tensor:
        if self._kept is None:
            return self._sum(weights)
        return torch.tensordot(weights.to(self._kept.dtype), silenced(self._kept, weights), dims=1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See Part."""
        rows = self._measured()[2]
        with full_precision():
            if not len(rows):
                return self._together(weights)
            total = self._together(weights.index_fill(0, rows, 0))
            lengths = self.lengths()
            for chunk in rows.split(self._at_once()):
                chosen = weights[chunk].double()
                formed = silenced(self._alone(chunk, lengths), chosen)
                total = total + torch.tensordot(chosen, formed, dims=1).to(total.dtype).view(total.shape)
            return total
