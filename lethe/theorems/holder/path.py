r"""The last steps of a run of losses with a Hölder gradient, and what any tangents to the growth of distances prove of them.

`holder_shift` builds a `HolderPath` of a run and keeps the smallest $\mu$ it finds. A path is the distance of two runs on neighbouring data
after each step, from what it may be at the start down to 0; what a step's noise takes off the distance costs privacy.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np

from lethe.calculus.rounding import above
from lethe.run.losses import Holder
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems.holder.convex_growth import ConvexGrowth
from lethe.theorems.lipschitz import ridge_contraction
from lethe.theorems.shift import engine as shift
from lethe.theorems.steps import step_constants

# A window of at most this many last steps is looked at; on a bounded domain any start is sound, and longer ones seldom pay.
_LONGEST = 20_000
_UP = 1.0 + 2.0**-48
_EPS = float(np.finfo(np.float64).eps)
# A tangent so near 0 that its height there is this share of a touch: for paths that pay for each touch at once, as composition does.
_AT_ONCE = 1e-6
# The growth of convex losses is looked at from this share of the largest distance on.
_NEAREST = 1e-12


class PassStretch(NamedTuple):
    """Positions `first` to `last` of a pass, from 0, both included."""

    first: int
    last: int


class Touched(NamedTuple):
    """Where in its passes the record is touched: somewhere in `own` in the last pass, somewhere in `earlier` in those before."""

    own: PassStretch
    earlier: PassStretch


class Followed(NamedTuple):
    """What a path proves, and at what distances its steps begin, shape (steps,)."""

    mu: float
    begins: Array


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
        self._convex: ConvexGrowth | None = None
        if constants is None:
            assert isinstance(run.loss, Holder)  # examine has refused the rest
            with np.errstate(over="ignore"):
                self._exponent, self._growth = run.loss.exponent, run.step_sizes[last] * run.loss.constant
            if run.loss.convex and not run.clips:  # what is clipped is the gradient of no convex function
                self._convex = ConvexGrowth(self._growth * _UP, self._flat, self._exponent)
            if self._exponent == 0.0:  # gradients differ by H at most, at any distance: no other line
                self._exponent, self._growth, self._flat = 1.0, np.full(steps, np.inf), np.minimum(self._flat, self._growth * _UP)

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

    @property
    def convex(self) -> bool:
        """Whether the growth is that of convex losses, which tangents do not bound."""
        return self._convex is not None

    def follow(self, at: Array, touched: Touched | None) -> Followed:
        """The best path if the growth is replaced by its tangents at these distances, and what is proved of it."""
        solved = self.solve(at, touched)
        if solved.mu in (0.0, np.inf):
            return Followed(solved.mu, at)
        ends = np.array(solved.shifts[-self.steps :])
        if self._convex is None:
            begins = self._before * np.concatenate(([self._start], ends[:-1]))
            return Followed(solved.mu, np.maximum(begins, self.nearest * self.widest))
        if self._first == 0:  # up to a start at the diameter nothing is paid
            ends[: solved.window] = self._diameter[: solved.window]
        return self._paid(self._convex, ends, touched)

    def at_once(self, touched: Touched | None) -> Followed:
        """The path that pays for each touch as it comes, as composition does."""
        return Followed(np.inf, self._before) if self._convex is None else self._paid(self._convex, np.zeros(self.steps), touched)

    def halfway(self, at: Array, begins: Array, touched: Touched | None) -> Followed:
        """The path between two: tangents that are no bounds hold nearby only."""
        assert self._convex is not None
        return self._paid(self._convex, np.append(0.5 * (at + begins)[1:] / self._before[1:], 0.0), touched)

    def _paid(self, growth: ConvexGrowth, ends: Array, touched: Touched | None) -> Followed:
        r"""What is paid to have each step end at a distance of at most `ends`, shape (steps,), of which the last is 0."""
        end, hidden, squares = (0.0 if self._first == 0 else self._start), 0.0, 0.0
        begins: list[float] = []
        columns = (self._before, self._rounding * _UP, self._touch, self._noise, self._diameter, ends)
        rows: list[list[float]] = np.stack(columns, axis=1).tolist()
        widest = np.inf
        for step, (before, rounding, touch, noise, diameter, target_end) in enumerate(rows):
            begins.append(before * end * _UP)
            arrived = _grown(growth, step, begins[-1], rounding)
            if touched is None:
                arrived += touch
            else:
                turn, position = divmod(self._first + step, self.batches)
                stretch = touched.own if turn == self.passes[-1] else touched.earlier
                if stretch.first <= position <= stretch.last:
                    # How much further apart the runs are if the record was touched in this stretch already, or is now.
                    further = before * min(end + hidden, widest) * _UP
                    hidden = max(_grown(growth, step, further, rounding) * _UP - arrived, touch)
                    if position == stretch.last or step == self.steps - 1:
                        arrived, hidden = arrived + hidden, 0.0
            end = min(arrived if noise == 0.0 else target_end, arrived, diameter)
            if end < diameter and noise > 0.0:  # the projection lets the runs be no further apart than the diameter
                squares += ((arrived - end) / noise) ** 2
            widest = diameter
        mu = float(above(sqrt(squares), (self.steps + 8) * _EPS)) if squares < np.inf and end == 0.0 else np.inf
        return Followed(mu, np.array(begins))

    def solve(self, at: Array, touched: Touched | None) -> shift.Shift:
        """The engine with the tangents at these distances; at infinity the line z + 2 lambda G.

        `at` has shape (steps,); the record is touched where `touched` says; None: at every step.
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
            return shift.solve([1.0], [1.0], [0.0])
        return shift.solve(lipschitz, added, noise, diameter)

    def _tangents(self, at: Array) -> tuple[Array, Array]:
        """Slope, proximal step before included, and height at 0."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            if self._convex is not None:
                slope, height = self._convex.tangents(np.clip(at, _NEAREST * self.widest, self.widest))
                return slope * self._before, height
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
            touched_turns = arrived != 0.0  # what is no number is touched, and cannot be paid
            ends = np.minimum(turns * self.batches + stretch.last - self._first, self.steps - 1)[touched_turns]
            touch[ends] = above(arrived[touched_turns], (stretch.last - stretch.first + 4) * _EPS)
        return touch, begins


def _grown(growth: ConvexGrowth, step: int, begin: float, rounding: float) -> float:
    """How far apart two iterates are after a step, both of them rounded before it or after; where they are one, they stay one."""
    return max(growth.apart(step, begin + rounding), growth.apart(step, begin) + rounding) if begin > 0.0 else 0.0
