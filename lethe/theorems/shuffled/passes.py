r"""Runs in passes: what happens from one touch of a record to the next, for every step at once.

A record in batch j is touched at t = j, j + l, j + 2l, ... The stretch from step t to the step before the next touch, t + l - 1, is a
suffix of one pass joined with a prefix of the next, so one scan of each gives all of them: O(T) for all l positions together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.rounding import above
from lethe.theorems.shift.inputs import Path
from lethe.theorems.shift.scaled import Floats, Scaled
from lethe.theorems.shift.segments import Segments, Stretch, exclusive_prefix, exclusive_suffix, single_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """A run laid out as (l, E): row j - 1 holds position j, column e a pass; missing steps of the last pass do nothing."""

    sensitivity: Floats
    steps: Stretch
    before: Stretch
    """The steps of the pass before each step."""
    after: Stretch
    """The steps of the pass after each step."""
    last_size: int
    """Steps in the last pass, 1..l."""

    @classmethod
    def of(cls, path: Path, batches_per_pass: int) -> Passes:
        """Lay out a checked path."""
        passes = -(-path.steps // batches_per_pass)
        missing = passes * batches_per_pass - path.steps

        def grid(values: Floats, filler: float) -> Floats:
            padded = np.concatenate((values, np.full(missing, filler)))
            return np.ascontiguousarray(padded.reshape(passes, batches_per_pass).T)

        steps = single_steps(grid(path.lipschitz, 1.0), grid(path.noise_std, 0.0))
        return cls(
            sensitivity=grid(path.sensitivity, 0.0),
            steps=steps,
            before=exclusive_prefix(steps),
            after=exclusive_suffix(steps),
            last_size=batches_per_pass - missing,
        )

    @property
    def real(self) -> NDArray[np.bool_]:
        """Which cells of the layout are steps of the run."""
        size, count = self.sensitivity.shape
        real = np.ones((size, count), dtype=np.bool_)
        real[self.last_size :, -1] = False
        return real

    def touches(self) -> Segments:
        """A segment for each step as if it touched the record: that step alone."""
        return Segments(product=self.steps.product, rise=Scaled.of(self.sensitivity), run=self.steps.run)

    def until_next_touch(self) -> Stretch:
        """The untouched steps between each step and the same position in the next pass."""
        following = self.before.map(lambda a: np.roll(a, -1, axis=1))
        for part, nothing in ((following.product, 1.0), (following.run, 0.0)):
            empty = Scaled.full((1,), nothing)
            part.mantissa[:, -1] = empty.mantissa
            part.exponent[:, -1] = empty.exponent
        return self.after.join(following)

    def largest_arrivals(self) -> Floats:
        r"""For each pass $\max_j s_j \prod_{j<k\le e} L_k$, rounded up: what a touch somewhere in it amounts to at its last step e."""
        size = self.sensitivity.shape[0]
        arriving: Floats = (self.after.product * Scaled.of(self.sensitivity)).to_float().max(axis=0)
        # Half an eps for each factor of the product and for the sensitivity; `above` for what is too small to carry an eps.
        raised = above(arriving, (size + 2) * float(np.finfo(np.float64).eps))
        return np.where(self.sensitivity.any(axis=0), raised, 0.0)
