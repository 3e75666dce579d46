r"""After which step to set the shift to the diameter of a bounded domain: a search over few candidates.

Noise before such a reset is of no use, so where the diameter does not bind at $\tau$ for any position, a reset there is never better
than none. Tried are the ends of all passes where these are few, numbers of remaining steps on a geometric grid, and then the middles
between the best and its neighbours, until there are none. Where a step expands faster than the diameter grows, only the geometric grid:
the accounting knows no other resets there.
"""

from __future__ import annotations

import numpy as np

from lethe.noise_allocation.joint.inputs import JointProblem
from lethe.run.schedules.base import Array

_FEW_PASSES = 40
# As in the accounting of positions: resets common to all positions, spread geometrically, fewer when there are many positions.
_MOST, _FEWEST, _IN_ALL = 40, 4, 200_000


def tracked_shifts(problem: JointProblem, window: int) -> Array:
    r"""$\min(D_\tau, f^j_\tau)$ for each position j, shape (l,): the largest distance after step `window` that nothing was paid for."""
    shifts = np.zeros(problem.batches)
    if problem.diameter is not None:
        for t in range(window):
            factor = float(problem.lipschitz[t])
            shifts *= factor
            shifts[t % problem.batches] += problem.sensitivity[t]
            np.minimum(shifts, problem.diameter[t], out=shifts)
    return shifts


class Windows:
    """The candidates, one by one; the best so far decides which come next."""

    def __init__(self, problem: JointProblem) -> None:
        steps, size = problem.steps, problem.batches
        expands = False
        self._binds = np.zeros(steps, dtype=np.bool_)
        if problem.diameter is not None:
            self._binds = _binding(problem, problem.diameter)
            expands = bool(np.any(problem.lipschitz[1:] * problem.diameter[:-1] > problem.diameter[1:] * (1.0 + 1e-12)))
        positions = min(size, steps)
        count = min(_MOST, max(_FEWEST, _IN_ALL // positions)) if expands and size > 1 else int(np.ceil(np.log2(steps))) + 1
        remaining = {round(float(length)) for length in np.geomspace(1, max(1, steps - 1), count)}
        chosen = {steps - length for length in remaining}
        self._refine = size == 1 or not expands
        if self._refine and steps <= _FEW_PASSES * size:
            chosen |= set(range(size, steps, size))
        self._waiting = sorted(tried for tried in chosen if 0 < tried < steps and self._binds[tried - 1])
        self._tried = {0, steps, *self._waiting}

    def next(self, best: int) -> int | None:
        """The next candidate, given the best so far; None at the end."""
        if self._waiting:
            return self._waiting.pop()
        if not self._refine or best == 0:
            return None
        below = max(tried for tried in self._tried if tried < best)
        above = min(tried for tried in self._tried if tried > best)
        for middle in ((below + best) // 2, (best + above + 1) // 2):
            if middle not in self._tried:
                self._tried.add(middle)
                if self._binds[middle - 1]:
                    return middle
                return self.next(best)
        return None


def _binding(problem: JointProblem, diameter: Array) -> np.ndarray:
    """After which steps some position's distance is at the diameter."""
    shifts, binds = np.zeros(problem.batches), np.zeros(problem.steps, dtype=np.bool_)
    for t in range(problem.steps):
        shifts *= float(problem.lipschitz[t])
        shifts[t % problem.batches] += problem.sensitivity[t]
        np.minimum(shifts, diameter[t], out=shifts)
        binds[t] = bool(np.any(shifts == diameter[t]))
    return binds
