r"""The joint problem as a sparse cone program.

Unknown are the arrived noise $P$ at the noisy steps (from the beginning of a block of steps), the shift $z$ left after each gap but a
chain's last, and the cost $r$ of each gap:

$$\min \sum_t q_t w_t \quad\text{s.t.}\quad w_t = P_t - \kappa_t^2 P_{t-1} \ge f_t,\quad z \ge 0,\quad
\sum_{k \in j} r_k \le 1,\quad r_k N_k \ge b_k^2$$

N of a gap is a combination of at most three or four P, and b of at most two z: with sums from the beginning of a block the program
has as many nonzeros as steps, where the windows N as sums of w would have T times l. Blocks are at most a pass long, and so short that
factors differ by at most $e^3$ in one, so that differences of P keep their digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from lethe.noise_allocation.joint.gaps import Booleans, Gaps, Integers
from lethe.run.schedules.shapes import Array

_LARGEST_GROWTH = 3.0
# Noise that arrives with less than this (squared) factor is not worth an entry: leaving it out only overestimates the energy.
_NEGLIGIBLE = 1e-18
# Where an unpaid shift grows by more than this in the next gap, it is all paid; the lower bound would show it if that were wrong.
_ALL_PAID = 1e8

Matrix = sparse.csr_array
Entries = tuple[Integers, Integers, Array]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """Matrices in the unknowns (P, z)."""

    steps: Integers
    """The noisy steps that some gap covers, ascending, shape (m,)."""
    variances: Matrix
    """(P, z) -> w at those steps, shape (m, m + free)."""
    noise: Matrix
    """(P, z) -> N of each gap, shape (gaps, m + free)."""
    paid: Matrix
    """(P, z) -> b less the rise, of each gap, shape (gaps, m + free)."""
    left: Integers
    """The gaps that may leave a shift, shape (free,)."""
    through: Array
    r"""$\kappa^2$ from each noisy step to the next; 0 where a block begins."""

    def arrived(self, variances: Array) -> Array:
        """P of a given w."""
        result, total = np.empty(variances.size), 0.0
        for i, (through, added) in enumerate(zip(self.through.tolist(), variances.tolist(), strict=True)):
            total = through * total + added
            result[i] = total
        return result


def program_of(gaps: Gaps, size: int) -> Program:
    """The program of a run's gaps; at least one gap."""
    begin = int(gaps.first.min())
    steps = np.flatnonzero(gaps.noisy[begin:]) + begin
    growth = gaps.growth[steps]
    block = _blocks(steps, growth.astype(np.float64), begin, size)
    fresh = np.concatenate(([True], block[1:] != block[:-1]))
    within = np.flatnonzero(~fresh)
    left = np.flatnonzero(np.append((gaps.chain[1:] == gaps.chain[:-1]) & (gaps.carry[1:] < _ALL_PAID), False))
    m, columns = steps.size, steps.size + left.size
    kappa = np.exp(2.0 * (growth[within] - growth[within - 1]).astype(np.float64))
    variances = _matrix(
        [(np.arange(m), np.arange(m), np.ones(m)), (within, within - 1, -kappa)],
        (m, columns),
    )
    unit = m + np.arange(left.size)
    paid = _matrix([(left, unit, -np.ones(left.size)), (left + 1, unit, gaps.carry[left + 1])], (gaps.count, columns))
    through = np.zeros(m)
    through[within] = kappa
    noise = _noise(gaps, steps, block, fresh, columns)
    return Program(steps=steps, variances=variances, noise=noise, paid=paid, left=left, through=through)


def _noise(gaps: Gaps, steps: Integers, block: Integers, fresh: Booleans, columns: int) -> Matrix:
    at_end = gaps.growth[gaps.last] - gaps.unit
    earliest = np.searchsorted(steps, gaps.first)
    latest = np.searchsorted(steps, gaps.last, side="right") - 1
    every = np.arange(gaps.count)
    ends = np.append(np.flatnonzero(fresh[1:]), steps.size - 1)

    def entries(rows: Integers, where: Integers, sign: float, least: float) -> Entries:
        factor = np.exp(2.0 * (at_end[rows] - gaps.growth[steps[where]]).astype(np.float64))
        kept = factor > least
        return rows[kept], where[kept], sign * factor[kept]

    # The blocks that end inside the gap, the part of a block at the gap's end, less what had arrived before the gap in its first block.
    whole = block[latest] - block[earliest]
    rows = np.repeat(every, whole)
    passed = block[earliest][rows] + np.arange(rows.size) - np.repeat(np.cumsum(whole) - whole, whole)
    before = every[~fresh[earliest]]
    return _matrix(
        [
            entries(every, latest, 1.0, 0.0),
            entries(rows, ends[passed], 1.0, _NEGLIGIBLE),
            entries(before, earliest[before] - 1, -1.0, _NEGLIGIBLE * math.exp(2.0 * _LARGEST_GROWTH)),
        ],
        (gaps.count, columns),
    )


def _blocks(steps: Integers, growth: Array, begin: int, size: int) -> Integers:
    """The block of each step: at most a pass, counted from `begin`, and at most so much growth."""
    result = np.empty(steps.size, dtype=np.int64)
    current, turn, low, high = -1, -1, 0.0, 0.0
    for i, (own, level) in enumerate(zip(((steps - begin) // size).tolist(), growth.tolist(), strict=True)):
        low, high = min(low, level), max(high, level)
        if own != turn or high - low > _LARGEST_GROWTH:
            current, turn, low, high = current + 1, own, level, level
        result[i] = current
    return result


def _matrix(entries: list[Entries], shape: tuple[int, int]) -> Matrix:
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return sparse.csr_array((values, (rows, columns)), shape=shape)
