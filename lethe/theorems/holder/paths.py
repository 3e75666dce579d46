r"""The shift engine under a concave growth of distances: tangents in place of the growth, and the touches of a record in a pass.

One step brings two runs z apart to at most $h_t(z)$, a minimum of concave functions. For any choice of tangents, one a step, the step is
$z \mapsto L_tz + e_t$: a Lipschitz constant, and something that is added to the distance whether or not the record is touched. The
record itself is touched once a pass. Where it is only known to lie in some stretch of the pass, it counts as touched at the end of the
stretch, by what a touch anywhere in it has grown to by then (docs/theory.md, Theorem 4 and section 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lethe.calculus.rounding import above
from lethe.run.losses import Holder
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.theorems.lipschitz import ridge_contraction
from lethe.theorems.shift import engine as shift
from lethe.theorems.steps import step_constants

# A window of at most this many last steps is looked at; on a bounded domain any start is sound, and longer ones seldom pay.
_LONGEST = 20_000
_UP = 1.0 + 2.0**-48
_EPS = float(np.finfo(np.float64).eps)
# A tangent so near 0 that its height there is this share of a touch: for paths that pay for each touch at once, as composition does.
_AT_ONCE = 1e-6


class PassStretch(NamedTuple):
    """Positions `first` to `last` of a pass, from 0, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """Where in its passes the record is touched: somewhere in `own` in the last pass, somewhere in `earlier` in those before."""

    own: PassStretch
    earlier: PassStretch


class HolderPath:
    """The last steps of a run, from a start at the diameter unless all of it fits."""

    def __init__(self, run: Run) -> None:
        steps = min(run.total_steps, _LONGEST)
        self._first = run.total_steps - steps
        self.batches = run.steps_per_pass
        last = slice(self._first, None)
        contraction = np.asarray(ridge_contraction(run.step_sizes, run.strong_convexity))
        self._before = np.concatenate(([1.0], contraction))[:-1][last]
        with np.errstate(over="ignore"):
            self._diameter = (run.diameter / contraction)[last]
        # How far apart the runs can be when the window begins, before the proximal step of the step before it.
        self._start = run.diameter / float(self._before[0])
        self._touch, self._noise = run.sensitivities[last], run.noise_stds[last]
        self._rounding = np.zeros(steps) if run.rounding_errors is None else run.rounding_errors[last]
        # A difference of two records' gradients may be smaller than what one record's gradient moves by.
        with np.errstate(over="ignore"):
            flat = 2.0 * run.step_sizes[last] * run.record_bound * _UP
        self._flat = np.full(steps, np.inf) if run.bounds_differences_only else flat
        constants = step_constants(run)
        self._straight = None if constants is None else constants.lipschitz[last]
        self._exponent, self._growth = 1.0, np.zeros(steps)
        if constants is None:
            assert isinstance(run.loss, Holder)  # examine has refused the rest
            with np.errstate(over="ignore"):
                self._exponent, self._growth = run.loss.exponent, run.step_sizes[last] * run.loss.constant

    @property
    def steps(self) -> int:
        """How many steps are looked at."""
        return self._touch.size

    @property
    def passes(self) -> range:
        """The passes, from 0, with a step among them."""
        return range(self._first // self.batches, -(-(self._first + self.steps) // self.batches))

    @property
    def widest(self) -> float:
        """The largest distance there can be."""
        return float(self._diameter.max())

    @property
    def straight(self) -> bool:
        """Whether the growth is a straight line, as for smooth losses, before it is flat."""
        return self._straight is not None

    @property
    def nearest(self) -> float:
        """The nearest tangent to 0, in the largest distance."""
        if self._exponent == 1.0 or not self._growth.max() > 0.0:
            return 1.0
        # It only says which tangents are tried.
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            height = np.float64(_AT_ONCE * float(self._touch.min())) / ((1.0 - self._exponent) * float(self._growth.max()))
            return min(1.0, max(float(height ** (1.0 / self._exponent)) / self.widest, 1e-290))

    def along(self, solved: shift.Shift) -> Array:
        """The distances at which each step begins, on the path that was found."""
        shifts = solved.shifts[-self.steps :]
        begun = self._before * np.concatenate(([self._start], shifts[:-1]))
        return np.maximum(begun, self.nearest * self.widest)

    def solve(self, at: Array, touched: Touched | None) -> shift.Shift:
        """The engine with the tangents at these distances; at infinity the line z + 2 lambda G.

        Args:
            at: distances, shape (steps,).
            touched: where the record is touched; None: at every step.
        """
        lipschitz, height = self._tangents(at)
        with np.errstate(over="ignore", invalid="ignore"):  # what the step before was rounded by goes through this one
            height = height + np.maximum(lipschitz / self._before, 1.0) * self._rounding * _UP
        touch, begins = (self._touch, 0) if touched is None else self._touches(lipschitz, touched)
        noise, diameter = self._noise, self._diameter
        if self._first == 0:
            height = np.where(np.arange(self.steps) < begins, 0.0, height)  # until the record is touched, the runs are one
            added = touch + height
        else:  # a start at the diameter, as a touch before the first step
            lipschitz, noise = np.concatenate(([1.0], lipschitz)), np.concatenate(([0.0], noise))
            added, diameter = np.concatenate(([self._start], touch + height)), np.concatenate(([self._start], diameter))
        if not (np.isfinite(added).all() and np.isfinite(lipschitz).all()):  # beyond the range of numbers: these tangents bound nothing
            one = np.ones(1)
            return shift.Shift(mu=np.inf, lipschitz=one, sensitivity=one, noise_std=one, diameter=None, window=0)
        return shift.solve(lipschitz, added, noise, diameter)

    def _tangents(self, at: Array) -> tuple[Array, Array]:
        """Slope, proximal step before included, and height at 0."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            if self._straight is not None:
                flat = np.isfinite(self._flat) & (~(self._straight * at <= self._before * at + self._flat) | np.isinf(at))
                return np.where(flat, self._before, self._straight), np.where(flat, self._flat, 0.0)
            slope = 1.0 + self._growth * self._exponent * at ** (self._exponent - 1.0)
            height = (1.0 - self._exponent) * self._growth * at**self._exponent
            # The flat line where it is the lower one, and where the tangent is too steep for numbers.
            flat = ~(slope < 1e300) | ~(slope * at + height <= at + self._flat) | np.isinf(at)
        return np.where(flat, 1.0, slope * _UP) * self._before, np.where(flat, self._flat, height * _UP)

    def _touches(self, lipschitz: Array, touched: Touched) -> tuple[Array, int]:
        """One touch a pass, at the end of its stretch; and the first step at which the record may be touched at all."""
        touch = np.zeros(self.steps)
        passes = np.array(self.passes)
        begins = self.steps
        for stretch, turns in ((touched.earlier, passes[:-1]), (touched.own, passes[-1:])):
            if turns.size == 0:
                continue
            arrived = np.zeros(turns.size)
            for position in range(stretch.first, stretch.last + 1):
                step = turns * self.batches + position - self._first
                inside = (step >= 0) & (step < self.steps)
                if inside.any():
                    begins = min(begins, int(step[inside].min()))
                step = np.where(inside, step, 0)
                with np.errstate(over="ignore"):
                    # What was there before this step is no larger than the domain; what this step adds is paid before it is projected.
                    carried = np.minimum(arrived, self._diameter[step - 1]) * lipschitz[step]
                arrived = np.where(inside, np.maximum(carried, self._touch[step]), arrived)
            found = arrived != 0.0  # what is no number is touched, and cannot be paid
            ends = np.minimum(turns * self.batches + stretch.last - self._first, self.steps - 1)[found]
            touch[ends] = above(arrived[found], (stretch.last - stretch.first + 4) * _EPS)
        return touch, begins
