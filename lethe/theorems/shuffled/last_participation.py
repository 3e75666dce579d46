r"""A fresh secret order in every pass, seen from the last touch only.

Wherever the record sat in the earlier passes, the shift at the end of each is at most that of a run with one virtual touch at the
last step of each pass, of size $\max_j s_j \prod_{j<k\le e} L_k$. So the optimum of the run with virtual touches before and the true
touch at j in the last pass bounds every path that ends with j, and the privacy profile is the mean over the uniform j alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.theorems.shift.inputs import Path
from lethe.theorems.shift.participations import Touches, optimal_mus
from lethe.theorems.shift.scaled import Floats, Scaled
from lethe.theorems.shift.segments import Stretch
from lethe.theorems.shuffled.passes import Passes


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTouch:
    """mu by position of the last touch, rounded up."""

    in_full_pass: Floats
    """For a last touch in the last full pass; shape (l,). All 0 if no pass is full: the record was never touched."""
    in_partial_pass: Floats
    """For a touch in the r < l steps after it; shape (r,); empty if there are none."""

    @classmethod
    def of(cls, run: Path, passes: Passes, bound: Floats | None) -> LastTouch:
        """The mus of both kinds of end of a run: after a full pass, and within one.

        Args:
            run: all steps.
            passes: the same steps, laid out as passes.
            bound: on the distance after each step, shape (T,), parameter units; None: none.
        """
        size, count = passes.sensitivity.shape
        partial = passes.last_size % size
        full = count if partial == 0 else count - 1
        in_full, in_partial = np.zeros(size), np.zeros(0)
        if full > 0:
            tail = passes.after.map(lambda a: a[:, full - 1])
            if partial > 0:
                tail = tail.join(passes.before.map(lambda a: a[partial, full : full + 1]))
            in_full = _mus(run, passes, full - 1, tail, bound)
        if partial > 0:
            in_partial = _mus(run, passes, full, passes.after.map(lambda a: a[:partial, full]), bound)
        return cls(in_full_pass=in_full, in_partial_pass=in_partial)

    def mixture(self) -> tuple[Floats, Floats]:
        """The mus and their probabilities."""
        size, touched = self.in_full_pass.size, self.in_partial_pass.size
        if touched == 0:
            return self.in_full_pass, np.full(size, 1.0 / size)
        missed = np.full(size, (size - touched) / size / size)
        return np.concatenate((self.in_full_pass, self.in_partial_pass)), np.concatenate((missed, np.full(touched, 1.0 / size)))


def _mus(run: Path, passes: Passes, last: int, tail: Stretch, bound: Floats | None) -> Floats:
    """Virtual touches at the ends of the passes before `last`, a true touch at each position of it, `tail` after that."""
    size, positions = passes.sensitivity.shape[0], tail.run.mantissa.size
    virtual = passes.largest_arrivals()[:last]
    if not np.isfinite(virtual).all():
        return np.full(positions, np.inf)

    def rows(*columns: NDArray[Any]) -> NDArray[Any]:
        """One row a position, flat: what all have in common, then each one's own."""
        return np.column_stack([np.broadcast_to(column, (positions, *column.shape[-1:])) for column in columns]).ravel()

    def gaps(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
        # After a virtual touch comes the next pass but for its last step; after the last of them, what is before the true touch.
        own = before[:positions, last : last + 1] if last > 0 else before[:positions, :0]
        return rows(before[-1, 1:last] if last > 0 else before[-1, :0], own, after[:, np.newaxis])

    touches = Touches(
        time=rows(np.arange(1, last + 1) * size - 1, (last * size + np.arange(positions))[:, np.newaxis]),
        size=rows(virtual, passes.sensitivity[:positions, last : last + 1]),
        gap=Stretch(
            product=Scaled(
                mantissa=gaps(passes.before.product.mantissa, tail.product.mantissa),
                exponent=gaps(passes.before.product.exponent, tail.product.exponent),
            ),
            run=Scaled(
                mantissa=gaps(passes.before.run.mantissa, tail.run.mantissa),
                exponent=gaps(passes.before.run.exponent, tail.run.exponent),
            ),
        ),
        path=np.repeat(np.arange(positions), last + 1),
    )
    return optimal_mus(run, touches, bound)
