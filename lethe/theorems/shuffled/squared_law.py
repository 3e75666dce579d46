r"""The joint law of a position and of $\mu^2$ so far, on a grid, every rounding upward.

Mass below the window of the grid is moved up to its lowest cell. Mass at or above the ceiling, which no path exceeds, is `beyond`;
what lies above the window joins it there only if it is less than 10^-18 in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.calculus.rounding import Counts, count_above
from lethe.theorems.shift.scaled import Floats

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
    """The grid step for a sum of costs, > 0.

    Args:
        mean_cost: of a move, >= 0; infinity allowed.
        moves: the number of costs.
        buckets: the number of positions they are kept for.
    """
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

        Args:
            weights: the mass of each bucket, shape (buckets,).
            step: of the grid, > 0; made so coarse that the ceiling is no more than 2^60 of them.
            ceiling: what no sum exceeds, >= 0; infinity allowed.
            moves: of the whole run.
        """
        step = max(step, min(ceiling, _HUGE) / _MOST_CELL)
        if not 0.0 < step < np.inf:  # a ceiling so low that a step does not show: all that costs anything reaches it
            step = 1.0
        return cls(mass=weights[:, np.newaxis].copy(), lowest=0, step=step, ceiling=ceiling, beyond=np.zeros(weights.size), moves=moves)

    def moved(self, costs: Floats, weights: Floats) -> SquaredLaw:
        """After a move to a bucket drawn by `weights` (their sum may be below 1: the rest stops here) at a cost of costs[from, to]."""
        law = self._fitting(costs)
        cells = law._cells(costs)
        least = int(cells.min())
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
            for origin, shift in enumerate((cells[:, to] - least).tolist()):
                kept = min(width, max(wide - shift, 0))
                row[shift : shift + kept] += law.mass[origin, :kept]
                lost += float(tail[origin, kept])
            row *= weight
            beyond[to] = (beyond[to] + lost) * weight
        return law._trimmed(mass, law.lowest + least, beyond)

    def ended(self, costs: Floats, caps: Floats) -> tuple[Floats, Floats]:
        """Values of the sum after a last cost by bucket, at most the bucket's cap (<= the ceiling), and their weights."""
        law = self._fitting(costs)
        cells = law._cells(costs)
        least, width, wide = int(cells.min()), law.mass.shape[1], law._reach(cells)
        values = (float(law.lowest + least) + np.arange(wide, dtype=np.float64)) * law.step
        together, capped = np.zeros(wide), law.beyond.copy()
        for bucket, shift in enumerate((cells - least).tolist()):
            kept = max(min(int(np.count_nonzero(values < caps[bucket])) - shift, width), 0)
            together[shift : shift + kept] += law.mass[bucket, :kept]
            capped[bucket] += law.mass[bucket, kept:].sum()
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
        least = int(cells.min())
        return min(self.mass.shape[1] + int(below.max()), room) - least

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
        kept = mass[:, first:last].copy()
        kept[:, 0] += mass[:, :first].sum(axis=1)
        return SquaredLaw(mass=kept, lowest=lowest + first, step=self.step, ceiling=self.ceiling, beyond=beyond, moves=self.moves)
