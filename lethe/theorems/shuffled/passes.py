r"""Runs in passes: what happens from one touch of a record to the next, for every step at once.

`positions` and `reshuffled` lay out a run with it. T is the number of steps, l the batches a pass, E the passes; a touch is a step whose
batch holds the record. R is what the touch has grown to, V the noise that arrived, P the product of Lipschitz constants (`shift.segments`).

A record in batch j is touched at t = j, j + l, j + 2l, ... The stretch from step t to the step before the next touch, t + l - 1, is a
suffix of one pass joined with a prefix of the next, so one scan of each gives all of them: O(T) for all l positions together.

**The cost of one touch** until the next, for each pair of positions in consecutive passes, is $R^2 / V$ of the stretch between. A touch at
j leaves R and V at the end of its pass; the steps before j' in the next pass multiply R by P and V by P^2 and add V'. So

$$\frac{1}{c} = \frac{V}{R^2} + \frac{V'}{P^2} \cdot \frac{1}{R^2}$$

and an untouched step more never raises c: the cost decreases in j', and of a bucket of next positions the first is the worst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.rounding import above, exp_above
from lethe.theorems.shift.engine import Path
from lethe.theorems.shift.segments import Floats, Scaled, Segments, Stretch, exclusive_prefix, exclusive_suffix, single_steps


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


# Positions are told apart up to this many; beyond, they lie in this many buckets.
_BUCKETS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchCosts:
    """Costs by bucket of the position of one touch and of the next; logarithms, because their terms may leave the range of doubles."""

    first: NDArray[np.intp]
    """The first position, from 0, of each bucket."""
    weights: Floats
    """The probability of each bucket."""
    rise: Floats
    """log R of a touch at each position and pass, at the end of that pass; shape (l, E)."""
    owed: Floats
    """log of V / R^2 there."""
    arriving: Floats
    """log of V' / P^2 of the steps of each pass before each position."""
    full: int
    """Passes of l steps."""
    partial_size: int
    """Steps of the pass after them; 0 if there is none."""
    partial: Floats
    """The probability that the pass after them touches the record in each bucket."""
    largest: float
    """The largest logarithm of all, in size: each is off by an eps of it at most, a few times over."""

    @classmethod
    def of(cls, passes: Passes) -> TouchCosts:
        """The costs of a run in passes."""
        size, count = passes.sensitivity.shape
        first = bucket_starts(size)
        ends = np.append(first[1:], size)
        partial_size = passes.last_size % size
        touched = passes.touches().then(passes.after)
        rise, noise = touched.rise.log(), touched.run.log()
        product, run = passes.before.product.log(), passes.before.run.log()
        logs = [np.abs(values[np.isfinite(values)]) for values in (rise, noise, product, run)]
        with np.errstate(invalid="ignore"):
            # A touch that is too weak to arrive owes nothing: its cost is 0, the exponential of minus inf.
            owed = np.where(np.isneginf(rise), np.inf, noise - 2.0 * rise)
            arriving = np.where(np.isneginf(product), np.inf, run - 2.0 * product)
        return cls(
            first=first,
            weights=(ends - first) / size,
            rise=rise,
            owed=owed,
            arriving=arriving,
            full=count if partial_size == 0 else count - 1,
            partial_size=partial_size,
            partial=np.maximum(np.minimum(ends, partial_size) - first, 0) / size,
            largest=max(float(values.max(initial=0.0)) for values in logs),
        )

    def matrices(self) -> Iterator[Floats]:
        """Costs [from, to] for each pair of consecutive full passes, computed once where nothing changes."""
        costs = np.zeros((0, 0))
        for e in range(self.full - 1):
            if e == 0 or not self._repeats(e):
                costs = self.between(e, self.first)
            yield costs

    def between(self, e: int, following: NDArray[np.intp]) -> Floats:
        """From each bucket of pass e to each of the given positions of the next."""
        with np.errstate(invalid="ignore"):
            later = self.arriving[following, e + 1][np.newaxis, :] - 2.0 * self.rise[:, e][:, np.newaxis]
        # Not a number only where no rise meets no noise; `owed` is inf there, and so is the sum.
        owed = np.logaddexp(self.owed[:, e][:, np.newaxis], np.where(np.isnan(later), np.inf, later))
        return self.worst_of_bucket(self._cost(owed))

    def to_the_end(self, e: int) -> Floats:
        """From each bucket of pass e to the end of that pass, if it is the last."""
        return self.worst_of_bucket(self._cost(self.owed[:, e]))

    @property
    def payable(self) -> bool:
        """Whether every touch can be paid, wherever it is."""
        last = self.rise.shape[1] - 1
        stretches = [self.to_the_end(last)]
        if self.partial_size > 0 and self.full > 0:
            stretches.append(self.between(self.full - 1, self.first))
            stretches.append(self.between(self.full - 1, np.array([self.partial_size])))
        return all(np.isfinite(costs).all() for costs in stretches) and all(np.isfinite(matrix).all() for matrix in self.matrices())

    def mean(self, ceiling: float) -> float:
        """The mean of what one touch costs, where it can be paid, each at most the ceiling."""

        def payable(costs: Floats) -> Floats:
            return np.where(np.isfinite(costs), np.minimum(costs, ceiling), 0.0)

        with np.errstate(over="ignore"):
            means = [float(self.weights @ payable(costs) @ self.weights) for costs in self.matrices()]
            means.append(float(self.weights @ payable(self.to_the_end(self.rise.shape[1] - 1))))
            if self.full > 0 and self.partial_size > 0:
                means.append(float((self.weights @ payable(self.between(self.full - 1, self.first))).mean()))
            return float(np.mean(means))

    def _cost(self, owed: Floats) -> Floats:
        """exp(-owed), raised by what the logarithms, of size at most m, may have lost: a few eps of m."""
        return exp_above(-owed, 1e-9 + 32.0 * float(np.finfo(np.float64).eps) * self.largest)

    def worst_of_bucket(self, by_position: Floats) -> Floats:
        """The largest value of each bucket, along the first axis."""
        return np.maximum.reduceat(by_position, self.first, axis=0)

    def _repeats(self, e: int) -> bool:
        return (
            np.array_equal(self.rise[:, e], self.rise[:, e - 1])
            and np.array_equal(self.owed[:, e], self.owed[:, e - 1])
            and np.array_equal(self.arriving[:, e + 1], self.arriving[:, e])
        )


def bucket_starts(size: int) -> NDArray[np.intp]:
    """Every position, or the first of each of at most 96 buckets that grow geometrically from both ends to the middle."""
    if size <= _BUCKETS:
        return np.arange(size)
    half = _BUCKETS // 2
    low, high = 1.0, 2.0
    while _grown(half, high)[-1] < size / 2.0:
        high *= 2.0
    for _ in range(60):
        growth = (low + high) / 2.0
        low, high = (growth, high) if _grown(half, growth)[-1] < size / 2.0 else (low, growth)
    edges = np.minimum(np.floor(_grown(half, high) + 0.5), size // 2).astype(np.intp)
    return np.unique(np.concatenate((edges, size - edges[1:])))


def _grown(count: int, growth: float) -> Floats:
    """Sums of the first powers of the growth: 0, 1, 1 + g, ..."""
    return np.concatenate(([0.0], np.cumsum(growth ** np.arange(count))))
