r"""Laws of the sum of touch costs, every rounding upward.

`reshuffled` calls it: where every pass has a fresh secret order, $\mu^2$ is random, and this bounds its law. A cost is what one touch (a
step whose batch holds the record) adds to $\mu^2$; a bucket is a range of positions in the pass, a path the positions in all passes.

**`SquaredLaw`:** the joint law of a position and of $\mu^2$ so far, on a grid. Mass below the window of the grid is moved up to its lowest
cell. Mass at or above the ceiling, which no path exceeds, is `beyond`; what lies above the window joins it there only if it is less than
10^-18 in all.

**`tail_law`:** a law that is stochastically larger than the sum of many costs, by Chernoff's bound at every value.

$$P\Big(\sum_e c_e \ge x\Big) \le \inf_{t > 0} \exp(M(t) - t x), \qquad M(t) = \log\mathbb{E}\exp\Big(t \sum_e c_e(j_e, j_{e+1})\Big)$$

The positions form a chain, so $M$ is a product of matrices, exact but for rounding. Where a run has many passes the sum is close to its
mean and little is lost, while the grid of `SquaredLaw` would have to be coarse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lethe.calculus.rounding import Counts, count_above
from lethe.theorems.shift.segments import Floats
from lethe.theorems.shuffled.passes import TouchCosts

# In all, over a run: moved up to `beyond`, and moved up to the lowest cell, where it weighs least.
_DROPPED_ABOVE = 1e-18
_RAISED_BELOW = 1e-10

# mu = 1000 hides nothing: what costs more is beyond, whatever the ceiling.
_HUGE = 1e6

# No value is more cells than this, which fits in 64 bits with room for sums; a step that would need more is made coarser.
_MOST_CELL = 2**60

# Cells of the window; where more are needed, two neighbours become one, at the upper end of both.
_MOST_CELLS = 2**16

# The grid step as a share of the mean cost of a move, the finest and the coarsest: on average half of it is lost by rounding.
_FINEST, _COARSEST = 1 / 500, 1 / 50
# Additions of cells that a run may take before the step is made coarser than the finest: a second or so.
_ADDITIONS = 5e8
# And before it is made coarser than the coarsest: some ten seconds.
_MOST_ADDITIONS = 1e10


def grid_share(moves: int, buckets: int) -> float:
    """The grid step as a share of the mean cost of a move, as fine as the time for so many moves allows."""
    # The window grows to about 1.5 times the mean of the sum, half that on average.
    work = 0.75 * (moves * buckets) ** 2
    return max(min(max(work / _ADDITIONS, _FINEST), _COARSEST), work / _MOST_ADDITIONS)


def grid_step(mean_cost: float, moves: int, buckets: int) -> float:
    """The grid step for a sum of costs, > 0."""
    if mean_cost == 0.0:
        return 1.0
    share = grid_share(moves, buckets)
    # A hair above a whole fraction, so that a constant cost is a whole number of steps.
    return min(mean_cost, _HUGE) * share * (1.0 + 1e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class SquaredLaw:
    """Mass by bucket of the current position and by cell of the sum: cell i is the value (lowest + i) * step."""

    mass: Floats
    lowest: int
    step: float
    ceiling: float
    beyond: Floats
    """By bucket, the mass that has reached the ceiling."""
    moves: int
    """Moves the whole run takes: each may drop and raise its share."""

    @classmethod
    def start(cls, weights: Floats, *, step: float, ceiling: float, moves: int) -> SquaredLaw:
        """The law before any move: the sum is 0, and each bucket has its weight.

        Weights have shape (buckets,). The step, > 0, is made so coarse that the ceiling, which no sum of the whole run exceeds, is no more
        than 2^60 of them.
        """
        step = max(step, min(ceiling, _HUGE) / _MOST_CELL)
        if not 0.0 < step < np.inf:  # a ceiling so low that a step does not show: all that costs anything reaches it
            step = 1.0
        return cls(mass=weights[:, np.newaxis].copy(), lowest=0, step=step, ceiling=ceiling, beyond=np.zeros(weights.size), moves=moves)

    def moved(self, costs: Floats, weights: Floats) -> SquaredLaw:
        """After a move to a bucket drawn by `weights` (their sum may be below 1: the rest stops here) at a cost of costs[from, to]."""
        law = self._fitting(costs)
        cells = law._cells(costs)
        lowest_shift = int(cells.min())
        buckets, width = law.mass.shape
        wide = law._reach(cells)
        # tail[b, n] is the mass of bucket b in cells n and up.
        tail = np.zeros((buckets, width + 1))
        tail[:, :width] = np.cumsum(law.mass[:, ::-1], axis=1)[:, ::-1]
        mass = np.zeros((weights.size, max(wide, 1)))
        beyond = np.full(weights.size, law.beyond.sum())
        for to, weight in enumerate(weights.tolist()):
            row = mass[to]
            lost = 0.0
            for origin, shift in enumerate((cells[:, to] - lowest_shift).tolist()):
                columns_kept = min(width, max(wide - shift, 0))
                row[shift : shift + columns_kept] += law.mass[origin, :columns_kept]
                lost += float(tail[origin, columns_kept])
            row *= weight
            beyond[to] = (beyond[to] + lost) * weight
        return law._trimmed(mass, law.lowest + lowest_shift, beyond)

    def ended(self, costs: Floats, caps: Floats) -> tuple[Floats, Floats]:
        """Values of the sum after a last cost by bucket, at most the bucket's cap (<= the ceiling), and their weights."""
        law = self._fitting(costs)
        cells = law._cells(costs)
        lowest_shift, width, wide = int(cells.min()), law.mass.shape[1], law._reach(cells)
        values = (float(law.lowest + lowest_shift) + np.arange(wide, dtype=np.float64)) * law.step
        together, capped = np.zeros(wide), law.beyond.copy()
        for bucket, shift in enumerate((cells - lowest_shift).tolist()):
            columns_kept = max(min(int(np.count_nonzero(values < caps[bucket])) - shift, width), 0)
            together[shift : shift + columns_kept] += law.mass[bucket, :columns_kept]
            capped[bucket] += law.mass[bucket, columns_kept:].sum()
        return np.concatenate((values, caps)), np.concatenate((together, capped))

    def _cells(self, costs: Floats) -> Counts:
        """Each cost in steps, upward; one that no path can have, or that is no number, reaches the ceiling."""
        with np.errstate(over="ignore", under="ignore"):
            quotients = costs / self.step
        # A quotient that underflowed is not 0.
        return count_above(np.maximum(quotients, np.minimum(costs, 1.0)), self._ceiling_cell())

    def _ceiling_cell(self) -> int:
        return int(count_above(min(self.ceiling, _HUGE) / self.step, 2 * _MOST_CELL))

    def _reach(self, cells: Counts) -> int:
        """The width of the window after a move by so many cells, without what reaches the ceiling; 0 if all does."""
        room = self._ceiling_cell() - self.lowest
        below = cells[cells < room]
        if below.size == 0:
            return 0
        lowest_shift = int(cells.min())
        return min(self.mass.shape[1] + int(below.max()), room) - lowest_shift

    def _fitting(self, costs: Floats) -> SquaredLaw:
        """This law with cells so coarse that the window after the move is not too wide."""
        law = self
        while law._reach(law._cells(costs)) > _MOST_CELLS:
            law = law._coarser()
        return law

    def _coarser(self) -> SquaredLaw:
        """Cells 2q - 1 and 2q become cell q of twice the step."""
        front = 1 - self.lowest % 2
        back = (self.mass.shape[1] + front) % 2
        padded = np.pad(self.mass, ((0, 0), (front, back)))
        return SquaredLaw(
            mass=padded[:, ::2] + padded[:, 1::2],
            lowest=(self.lowest - front + 1) // 2,
            step=2.0 * self.step,
            ceiling=self.ceiling,
            beyond=self.beyond,
            moves=self.moves,
        )

    def _trimmed(self, mass: Floats, lowest: int, beyond: Floats) -> SquaredLaw:
        by_cell = mass.sum(axis=0)
        above = np.cumsum(by_cell[::-1])[::-1]
        last = max(1, int(np.count_nonzero(above > _DROPPED_ABOVE / self.moves)))
        first = min(int(np.count_nonzero(np.cumsum(by_cell) <= _RAISED_BELOW / self.moves)), last - 1)
        beyond = beyond + mass[:, last:].sum(axis=1)
        trimmed = mass[:, first:last].copy()
        trimmed[:, 0] += mass[:, :first].sum(axis=1)
        return SquaredLaw(mass=trimmed, lowest=lowest + first, step=self.step, ceiling=self.ceiling, beyond=beyond, moves=self.moves)


# Values of t, of x, and how far x goes, in standard deviations of the sum as if touches were independent.
_TILTS, _VALUES, _REACH = 64, 400, 16.0
# Costs that are all but equal: the tilts are bounded anyway.
_LEAST_SPREAD = 1e-9
# What the rounding of thousands of matrix products may have taken from M(t), many times over.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generating:
    """exp(t sum) given the bucket of the current touch, by t and bucket, as a positive matrix times exp(scale)."""

    tilts: Floats
    matrix: Floats
    scale: Floats

    @classmethod
    def start(cls, tilts: Floats, weights: Floats) -> _Generating:
        return cls(tilts=tilts, matrix=np.tile(weights, (tilts.size, 1)), scale=np.zeros(tilts.size))

    def moved(self, costs: Floats, weights: Floats, times: int = 1) -> _Generating:
        """After that many moves at costs[from, to] to buckets drawn by `weights`."""
        most = float(costs.max())
        kernel = np.exp(self.tilts[:, np.newaxis, np.newaxis] * (costs - most)) * weights
        matrix, scale = self.matrix, self.scale + times * self.tilts * most
        power, exponent = kernel, np.zeros(self.tilts.size)
        # Powers of two of the kernel, each scaled to a largest entry of 1, so that nothing under- or overflows.
        while times:
            if times % 2:
                matrix = np.matmul(matrix[:, np.newaxis, :], power)[:, 0, :]
                scale = scale + exponent
                largest = matrix.max(axis=1)
                matrix, scale = matrix / largest[:, np.newaxis], scale + np.log(largest)
            times //= 2
            if times:
                power = np.matmul(power, power)
                largest = power.max(axis=(1, 2))
                power, exponent = power / largest[:, np.newaxis, np.newaxis], 2.0 * exponent + np.log(largest)
        return _Generating(tilts=self.tilts, matrix=matrix, scale=scale)

    def ended(self, costs: Floats) -> Floats:
        """log E exp(t sum) after a last cost by bucket."""
        return self.scale + np.log(np.sum(self.matrix * np.exp(self.tilts[:, np.newaxis] * costs), axis=1))


def tail_law(costs: TouchCosts, ceiling: float) -> tuple[Floats, Floats]:
    r"""Values of $\mu^2$, ascending and at most the ceiling, and their weights, which sum to 1.

    The costs are finite, of a run with at least one full pass; no path exceeds the ceiling of $\mu^2$, which may be inf.
    """
    mean, spread, highest, largest = _moments(costs)
    if largest == 0.0:
        return np.zeros(1), np.ones(1)
    if not np.isfinite(largest):
        return np.array([np.inf]), np.ones(1)
    # In units of the largest cost, so that no cost is too small or too large to be squared. Beyond t = 150 in these units the products
    # of kernel entries could underflow, and the largest cost decides alone.
    tilts = np.minimum(np.geomspace(0.05, 50.0, _TILTS) / max(spread, _LEAST_SPREAD), 150.0)
    law = _Generating.start(tilts, costs.weights)
    for matrix, times in _grouped(costs):
        law = law.moved(matrix / largest, costs.weights, times)
    if costs.partial_size == 0:
        generated = law.ended(costs.to_the_end(costs.full - 1) / largest)
    else:
        # The pass after the last full one touches the record or not.
        untouched = law.ended(costs.between(costs.full - 1, np.array([costs.partial_size]))[:, 0] / largest)
        touched = law.moved(costs.between(costs.full - 1, costs.first) / largest, costs.partial)
        generated = np.logaddexp(untouched + np.log1p(-costs.partial.sum()), touched.ended(costs.to_the_end(costs.full) / largest))
    near = mean + spread * np.linspace(0.0, _REACH, _VALUES)
    far: Floats = np.geomspace(float(near[-1]), max(highest, float(near[-1])), _VALUES // 4)
    values = np.concatenate((near, far[1:]))
    exponents = np.min(generated[:, np.newaxis] * (1.0 + _ROUNDING) + _ROUNDING - tilts[:, np.newaxis] * values, axis=0)
    above = np.minimum(np.exp(np.minimum(exponents, 0.0)), 1.0)
    # Mass between two values sits at the upper one; nothing exceeds the last, the sum of all largest costs.
    above = np.append(1.0, np.minimum.accumulate(above[:-1]))
    weights = above - np.append(above[1:], 0.0)
    with np.errstate(over="ignore"):
        return np.minimum(values * largest * (1.0 + 1e-12), ceiling), weights


def _grouped(costs: TouchCosts) -> Iterator[tuple[Floats, int]]:
    """The costs between full passes, and how many times in a row each matrix occurs."""
    current: Floats | None = None
    times = 0
    for matrix in costs.matrices():
        if current is not None and matrix is not current:
            yield current, times
            times = 0
        current, times = matrix, times + 1
    if current is not None:
        yield current, times


def _moments(costs: TouchCosts) -> tuple[float, float, float, float]:
    """Of the sum its mean, its standard deviation as if touches were independent (it only places the grid) and its largest value, in units
    of the largest single cost; and that cost."""
    weights, last = costs.weights, costs.full - 1
    tails = (
        [costs.to_the_end(last)] if costs.partial_size == 0 else [costs.between(last, costs.first).max(axis=1), costs.to_the_end(last + 1)]
    )
    largest = max([float(matrix.max()) for matrix, _ in _grouped(costs)] + [float(tail.max()) for tail in tails])
    if largest == 0.0 or not np.isfinite(largest):
        return 0.0, 0.0, 0.0, largest
    mean = variance = highest = 0.0
    for matrix, times in _grouped(costs):
        shares = matrix / largest
        first = float(weights @ shares @ weights)
        mean += times * first
        variance += times * max(float(weights @ np.square(shares) @ weights) - first**2, 0.0)
        highest += times * float(shares.max())
    for tail in tails:
        shares = tail / largest
        mean += float(weights @ shares)
        variance += float(weights @ np.square(shares))
        highest += float(shares.max())
    return mean, float(np.sqrt(variance)), highest, largest
