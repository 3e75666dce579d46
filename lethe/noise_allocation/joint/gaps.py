r"""What a record's shift does between its touches: the small convex program that a run of cyclic batches comes down to.

`cyclic` builds it from a run, `interior` solves it, `energy` evaluates it. A touch is a step whose batch holds the record, a chain the gaps
of one position; $w_t$ is the noise variance of a step, $L_t$ its Lipschitz constant, $q_t$ what a unit of noise costs, f the least allowed.

A record in batch j is touched at $e_1 < e_2 < \dots$. Between two touches nothing is added to its shift, so all payments of the gap
$[e_k, e_{k+1})$ are proportional to the noise that arrives at the gap's end, and only three numbers of a gap matter there: the noise
$N$ that arrived, the rise $\rho$ (the touch carried to the end) and the factor $A$ by which an older shift was carried. With $z_k \ge 0$
the shift left after gap k,

$$E_j(w) = \min_{z \ge 0,\ z_{\text{last}} = 0} \sum_k \frac{b_k^2}{N_k},\qquad b_k = A_k z_{k-1} + \rho_k - z_k,\qquad
N_k = \sum_{t \in \text{gap}} \Big(\prod_{t < i \le \text{end}} L_i\Big)^2 w_t$$

Products of Lipschitz constants are taken inside one gap only, as differences of summed logarithms, and each gap has a unit of length of
its own in which its largest factor is 1. A touch of size 0 begins no gap, a gap without a noisy step joins the next one, and a
Lipschitz constant 0 forgets whatever lies before it.

The joint problem is then a sparse cone program. Unknown are the arrived noise $P$ at the noisy steps (from the beginning of a block of
steps), the shift $z$ left after each gap but a chain's last, and the cost $r$ of each gap:

$$\min \sum_t q_t w_t \quad\text{s.t.}\quad w_t = P_t - \kappa_t^2 P_{t-1} \ge f_t,\quad z \ge 0,\quad
\sum_{k \in j} r_k \le 1,\quad r_k N_k \ge b_k^2$$

N of a gap is a combination of at most three or four P, and b of at most two z: with sums from the beginning of a block the program
has as many nonzeros as steps, where the windows N as sums of w would have T times l. Blocks are at most a pass long, and so short that
factors differ by at most $e^3$ in one, so that differences of P keep their digits.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lethe.errors import InputError
from lethe.run.schedules.shapes import Array

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Matrix = sparse.csr_array
Entries = tuple[Integers, Integers, Array]

# Beyond e^300 a factor, its square or a product of two of them leaves the range of doubles.
_LARGEST_LOG = 300.0
_FORGOTTEN = 5e-10
_LARGEST_GROWTH = 3.0
# Noise that arrives with less than this (squared) factor is not worth an entry: leaving it out only overestimates the energy.
_NEGLIGIBLE = 1e-18
# Where an unpaid shift grows by more than this in the next gap, it is all paid; the lower bound would show it if that were wrong.
_ALL_PAID = 1e8
_RANGE = "the Lipschitz constants of the steps between two touches of one record multiply to more than doubles hold"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """The gaps of all positions, position by position, in time; steps are counted from 0."""

    noisy: Booleans
    """Which steps may have noise, shape (T,)."""
    growth: NDArray[np.longdouble]
    """log of the product of the Lipschitz constants up to each step, shape (T,); zeros are left out, they begin the run."""
    positions: Integers
    """The position, from 0, of each chain: those that are touched at all."""
    chain: Integers
    """Which chain each gap belongs to: 0, 1, ..., ascending."""
    first: Integers
    last: Integers
    unit: NDArray[np.longdouble]
    """log of the gap's unit of length: of its largest factor from a noisy step to its end."""
    rise: Array
    """In the gap's unit."""
    carry: Array
    """From the unit of the gap before to this gap's; 0 at the first gap of a chain."""

    @property
    def count(self) -> int:
        """Number of gaps."""
        return self.chain.size

    @property
    def starts(self) -> Integers:
        """Index of the first gap of each chain, and the number of gaps."""
        return np.append(np.flatnonzero(np.diff(self.chain, prepend=-1)), self.chain.size)

    def chains(self) -> Iterator[tuple[slice, int, Integers, Array]]:
        """Chain by chain: its gaps, its first step, where its gaps begin after that step, and from there on each step's squared factor.

        The squared factor of a step that may not have noise is 0.
        """
        starts = self.starts.tolist()
        for begin, end in pairwise(starts):
            gaps = slice(begin, end)
            start = int(self.first[begin])
            lengths = self.last[gaps] - self.first[gaps] + 1
            at_end = np.repeat(self.growth[self.last[gaps]] - self.unit[gaps], lengths)
            factor = np.exp(2.0 * (at_end - self.growth[start:]).astype(np.float64)) * self.noisy[start:]
            yield gaps, start, self.first[gaps] - start, factor


def gaps_of(lipschitz: Array, sensitivity: Array, size: int, noisy: Booleans, initial: tuple[int, Array] | None = None) -> Gaps:
    r"""The gaps of a run of $\ell$ batches a pass; arrays of shape (T,), sensitivities in parameter units.

    `initial`: the step $\tau$ after which the run is taken to begin, and the shift $z_\tau$ of each position there, shape (l,).

    Raises:
        InputError: a touch has no noisy step after it; a product of Lipschitz constants in a gap leaves the range of doubles.
    """
    steps = lipschitz.size
    begin, shifts = (0, np.zeros(size)) if initial is None else initial
    forgets = np.flatnonzero(lipschitz[begin:] == 0.0)
    if forgets.size:
        begin, shifts = begin + int(forgets[-1]), np.zeros(size)
    logs = np.zeros(steps, dtype=np.longdouble)
    np.log(lipschitz.astype(np.longdouble), out=logs, where=lipschitz > 0.0)
    logs[: begin + 1] = 0.0
    growth = np.cumsum(logs)
    rows: list[tuple[NDArray[Any], ...]] = []
    positions: list[int] = []
    for j in range(size):
        times, sizes = _touches(lipschitz, sensitivity, size, begin, j, float(shifts[j]))
        if times.size:
            rows.append(_chain(growth, noisy, times, sizes))
            positions.append(j)
    joined = [np.concatenate(columns) for columns in zip(*rows, strict=True)] if rows else [np.zeros(0)] * 5
    first, last, unit, rise, carry = joined
    return Gaps(
        noisy=noisy,
        growth=growth,
        positions=np.array(positions, dtype=np.int64),
        chain=np.repeat(np.arange(len(rows)), [row[0].size for row in rows]),
        first=first.astype(np.int64),
        last=last.astype(np.int64),
        unit=unit.astype(np.longdouble),
        rise=rise.astype(np.float64),
        carry=carry.astype(np.float64),
    )


def without_the_forgotten(gaps: Gaps) -> Gaps:
    """Without the gaps whose shift, all left unpaid, adds next to nothing to a later gap, where it is added.

    Energies are never smaller than before, and larger by a relative 1e-9 at most.
    """
    needed = np.ones(gaps.count, dtype=np.bool_)
    rise, carry = gaps.rise.copy(), gaps.carry.copy()
    unpaid, begin = 0.0, 0
    for k, (gap_rise, factor) in enumerate(zip(gaps.rise.tolist(), gaps.carry.tolist(), strict=True)):
        arriving = factor * unpaid
        if factor == 0.0:
            begin = k
        elif arriving <= _FORGOTTEN * gap_rise:
            needed[begin:k] = False
            rise[k], carry[k], begin = gap_rise + arriving, 0.0, k
        unpaid = gap_rise + arriving
    columns = {"chain": gaps.chain, "first": gaps.first, "last": gaps.last, "unit": gaps.unit, "rise": rise, "carry": carry}
    return replace(gaps, **{name: column[needed] for name, column in columns.items()})


def _touches(lipschitz: Array, sensitivity: Array, size: int, begin: int, position: int, shift: float) -> tuple[Integers, Array]:
    """When, and by how much, the shift of one position is moved, from step `begin` on; a shift already there comes as a touch."""
    times = np.arange(begin + (position - begin) % size, lipschitz.size, size)
    sizes = sensitivity[times]
    arriving = float(lipschitz[begin]) * shift if begin < lipschitz.size else 0.0
    if arriving > 0.0:
        if times.size and int(times[0]) == begin:
            sizes = np.concatenate(([sizes[0] + arriving], sizes[1:]))
        else:
            times, sizes = np.concatenate(([begin], times)), np.concatenate(([arriving], sizes))
    return times[sizes > 0.0], sizes[sizes > 0.0]


def _chain(growth: NDArray[np.longdouble], noisy: Booleans, times: Integers, sizes: Array) -> tuple[NDArray[Any], ...]:
    """First and last step, unit, rise and carry of each gap of one position, touched at least once."""
    ends = np.append(times[1:], growth.size) - 1
    has_noise = np.add.reduceat(noisy.astype(np.int64), times) > 0
    if not has_noise[-1]:
        raise InputError(
            f"the record touched at step {int(times[-1]) + 1} meets no noise from there to the end of the run; it needs some.",
            source="the steps that may have noise, and the steps that touch",
            remedy="allow noise at the last step: no noise of this shape makes the run private.",
        )
    # A gap without noise joins the ones after it up to the first with noise.
    opens = np.flatnonzero(np.concatenate(([True], has_noise[:-1])))
    first, last = times[opens], ends[has_noise]
    at_end = growth[last]
    lowest = np.minimum.reduceat(np.where(noisy, growth, np.inf), first)
    unit = at_end - lowest
    members = np.diff(np.append(opens, times.size))
    log_rise = np.log(sizes.astype(np.longdouble)) + np.repeat(at_end - unit, members) - growth[times]
    # The step before the gap: its shift has been through no step of the gap. Chains begin where nothing is carried.
    log_carry = at_end[1:] - growth[first[1:] - 1] + unit[:-1] - unit[1:]
    if bool(np.any(log_rise > _LARGEST_LOG)) or bool(np.any(log_carry > _LARGEST_LOG)):
        raise InputError(f"{_RANGE}.", source="lipschitz and noisy", remedy="allow noise more often, or check the constants.")
    # What would vanish is rounded up: a larger shift is never less costly.
    rise = np.add.reduceat(_exp(log_rise), opens)
    return first, last, unit, rise, np.concatenate(([0.0], _exp(log_carry)))


def _exp(logs: NDArray[np.longdouble]) -> Array:
    """Exponentials that do not underflow to 0."""
    return np.exp(np.maximum(logs, -_LARGEST_LOG).astype(np.float64))


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
    unpaid = np.flatnonzero(np.append((gaps.chain[1:] == gaps.chain[:-1]) & (gaps.carry[1:] < _ALL_PAID), False))
    m, columns = steps.size, steps.size + unpaid.size
    kappa = np.exp(2.0 * (growth[within] - growth[within - 1]).astype(np.float64))
    variances = _matrix(
        [(np.arange(m), np.arange(m), np.ones(m)), (within, within - 1, -kappa)],
        (m, columns),
    )
    unit = m + np.arange(unpaid.size)
    paid = _matrix([(unpaid, unit, -np.ones(unpaid.size)), (unpaid + 1, unit, gaps.carry[unpaid + 1])], (gaps.count, columns))
    through = np.zeros(m)
    through[within] = kappa
    noise = _noise(gaps, steps, block, fresh, columns)
    return Program(steps=steps, variances=variances, noise=noise, paid=paid, left=unpaid, through=through)


def _noise(gaps: Gaps, steps: Integers, block: Integers, fresh: Booleans, columns: int) -> Matrix:
    """N of each gap as a combination of the unknowns P."""
    at_end = gaps.growth[gaps.last] - gaps.unit
    earliest = np.searchsorted(steps, gaps.first)
    latest = np.searchsorted(steps, gaps.last, side="right") - 1
    every = np.arange(gaps.count)
    ends = np.append(np.flatnonzero(fresh[1:]), steps.size - 1)

    def entries(rows: Integers, where: Integers, sign: float, smallest: float) -> Entries:
        factor = np.exp(2.0 * (at_end[rows] - gaps.growth[steps[where]]).astype(np.float64))
        significant = factor > smallest
        return rows[significant], where[significant], sign * factor[significant]

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
    for i, (pass_index, level) in enumerate(zip(((steps - begin) // size).tolist(), growth.tolist(), strict=True)):
        low, high = min(low, level), max(high, level)
        if pass_index != turn or high - low > _LARGEST_GROWTH:
            current, turn, low, high = current + 1, pass_index, level, level
        result[i] = current
    return result


def _matrix(entries: list[Entries], shape: tuple[int, int]) -> Matrix:
    """A sparse matrix from (rows, columns, values)."""
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return sparse.csr_array((values, (rows, columns)), shape=shape)
