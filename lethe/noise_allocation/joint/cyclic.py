r"""The cheapest noise that makes the last iterate of a run in cyclic batches private: schedule and accounting solved together.

`noise_shapes` calls it for `allocate`. $L_t$ is a step's Lipschitz constant, $\mu$ the target, f the least noise allowed; a touch is a step
whose batch holds the record, and a record in batch j is touched once a pass; $\ell$ is the batches a pass.

With $w_t = \tau_t^2$ the noise variance of step t, $q_t$ what a unit of it costs, and $E_j(w)$ the optimal shift of a record in batch j,

$$\min_{w \ge f} \sum_t q_t w_t \quad\text{s.t.}\quad E_j(w) \le \mu^2,\ j = 1..\ell$$

is a convex program. It is solved by an interior-point method on a sparse form with 2T unknowns (`gaps`, `interior`);
the result is scaled by an evaluation of its own to be feasible, and comes with a lower bound that is proved apart from the solver
(`energy`). Where an optimum without noise inside the passes is as cheap, it is preferred.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.rounding import root_above
from lethe.errors import InputError
from lethe.noise_allocation.joint.energy import energies, feasible, lower_bound, transferred
from lethe.noise_allocation.joint.gaps import Booleans, Gaps, gaps_of, program_of, without_the_forgotten
from lethe.noise_allocation.joint.interior import Interior
from lethe.run.schedules.shapes import Array

# Weights below this fraction of the largest are raised to it inside the solver, never in what is returned or proved.
_LEAST_WEIGHT = 1e-16
# The solver's share of the tolerance; the rest is for rounding to zeros.
_SHARE = 0.1
_FEW_PASSES = 40
# As in the accounting of positions: resets common to all positions, spread geometrically, fewer when there are many positions.
_MOST, _FEWEST, _IN_ALL = 40, 4, 200_000
_SMALLEST_UNIT = 1e-200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointProblem:
    """What `joint_problem` makes: arrays of one length T >= 1, the floor 0 where no noise is allowed."""

    weights: Array
    lipschitz: Array
    sensitivity: Array
    batches: int
    mu: float
    noisy: Booleans
    floor: Array
    diameter: Array | None
    tolerance: float

    @property
    def steps(self) -> int:
        """T."""
        return self.weights.size

    @property
    def variance_unit(self) -> float:
        r"""$(\max_t s_t / \mu)^2$; 1 if nothing is touched."""
        largest = float(np.max(self.sensitivity))
        try:
            return (largest / self.mu) ** 2 if largest > 0.0 else 1.0
        except OverflowError:
            return math.inf

    def in_own_units(self) -> JointProblem:
        r"""The same problem with $\mu = 1$, $\max s_t = 1$ and $\max q_t = 1$; variances are to be multiplied by `variance_unit`."""
        largest, unit = float(np.max(self.sensitivity)) or 1.0, self.variance_unit
        with np.errstate(all="ignore"):
            floor = self.floor / unit
            diameter = None if self.diameter is None else self.diameter / largest
        if not (_SMALLEST_UNIT < unit < 1.0 / _SMALLEST_UNIT and bool(np.all(floor < 1.0 / _SMALLEST_UNIT))):
            raise InputError(
                f"(sensitivity / mu)^2 = ({largest:g} / {self.mu:g})^2 is beyond what doubles hold, alone or beside the floor.",
                source="the arguments sensitivity, mu and floor",
                remedy="choose another unit of length.",
            )
        return replace(
            self,
            weights=self.weights / np.max(self.weights),
            sensitivity=self.sensitivity / largest,
            mu=1.0,
            floor=floor,
            diameter=diameter,
        )


def joint_problem(
    weights: ArrayLike,
    lipschitz: ArrayLike,
    sensitivity: ArrayLike,
    batches_per_pass: int,
    *,
    mu: float = 1.0,
    noisy: ArrayLike | None = None,
    floor: ArrayLike = 0.0,
    diameter: ArrayLike | None = None,
    tolerance: float = 1e-7,
) -> JointProblem:
    r"""The problem that `joint_cyclic` solves.

    Args:
        weights: $q_t > 0$, shape (T,), cost of a unit of noise variance at each step; only ratios matter for the schedule.
        lipschitz: $L_t \ge 0$, shape (T,), Lipschitz constant of each step before its noise.
        sensitivity: $s_t \ge 0$, shape (T,), parameter units: how far step t moves the iterate when a record of its batch changes.
        batches_per_pass: $\ell \ge 1$; 1 for full batches.
        mu: $\mu > 0$, the privacy to meet.
        noisy: shape (T,), truth values: which steps may have noise. All, if left out.
        floor: $f_t \ge 0$, a number or shape (T,), parameter units squared: least noise variance of the steps that may have noise.
        diameter: $D_t \ge 0$, a number or shape (T,), parameter units: the two runs are never further apart after step t. The shift may
            then be set to it once, after the best of several steps; the noise before is at its floor.
        tolerance: relative distance to the optimum to reach, 1e-9 to 1e-2. The result says what was reached.
    """
    q, factors, touches = (np.asarray(column, dtype=np.float64) for column in (weights, lipschitz, sensitivity))
    allowed = np.ones(q.size, dtype=np.bool_) if noisy is None else np.asarray(noisy, dtype=np.bool_)
    return JointProblem(
        weights=q,
        lipschitz=factors,
        sensitivity=touches,
        batches=min(batches_per_pass, q.size),  # with more batches than steps each position is touched once at most, as with as many
        mu=mu,
        noisy=allowed,
        floor=np.broadcast_to(np.asarray(floor, dtype=np.float64), q.shape) * allowed,
        diameter=None if diameter is None else np.broadcast_to(np.asarray(diameter, dtype=np.float64), q.shape),
        tolerance=tolerance,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CyclicJoint:
    """A noise schedule that is private as asked, and how near it is to the cheapest."""

    noise_stds: Array
    r"""$\tau_t$, shape (T,), parameter units; exactly 0 where no noise is needed."""
    value: float
    r"""$\sum q_t \tau_t^2$."""
    lower_bound: float
    """No schedule that meets the constraints costs less: proved from multipliers. With a reset: none that uses the same one."""
    window: int
    r"""Step $\tau$ after which the shift is set to the diameter (or to the distance tracked so far, if smaller); 0 if never."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """Feasible variances in a problem's own units, their cost and a proven lower bound on the optimum."""

    variances: Array
    value: float
    bound: float


def finished(problem: JointProblem, solution: Found, window: int) -> CyclicJoint:
    """The result in the units of `problem`; `window`: the step after which the shift is reset, 0 if never."""
    # The square root may round down.
    noise = np.where(solution.variances <= 0.0, 0.0, root_above(solution.variances * problem.variance_unit))
    value = float(np.sum(problem.weights * noise**2))
    bound = solution.bound * float(np.max(problem.weights)) * problem.variance_unit
    return CyclicJoint(noise_stds=noise, value=value, lower_bound=min(bound, value), window=window)


def joint_cyclic(problem: JointProblem) -> CyclicJoint:
    r"""The noise of least cost with which the last iterate is $\mu$-GDP for a record in any batch.

    Returns:
        Noise for which every position's optimal shift is at most $\mu$, its cost, and a proven lower bound on the cost.
    Raises:
        InputError: some touch has no noisy step after it, so that no noise makes the run private, or numbers are beyond what doubles hold.
    Reference: the privacy of the last iterate under shifts is Feldman, Mironov, Talwar, Thakurta 2018, arXiv:1808.06651, and Bok, Su,
    Altschuler 2024, arXiv:2403.00278; the joint problem is in docs/theory.md.
    """
    return finished(problem, *_Solver(problem.in_own_units()).best())


class _Solver:
    """One problem in its own units, mu = 1."""

    def __init__(self, problem: JointProblem) -> None:
        self._problem = problem

    def best(self) -> tuple[Found, int]:
        """The best over all windows tried, made sparse, and its window."""
        problem = self._problem
        windows = None if problem.diameter is None else _Windows(problem)
        best = Found(variances=problem.floor, value=np.inf, bound=0.0)
        window = 0
        tried: int | None = 0
        while tried is not None:
            enough = best.value * (1.0 - problem.tolerance)
            solution = self._solved(problem.noisy, tried, enough)
            if solution is not None and solution.value < enough:
                best, window = solution, tried
            tried = None if windows is None else windows.next(window)
        return self._sparser(best, window), window

    def _sparser(self, best: Found, window: int) -> Found:
        """A schedule as cheap with fewer noisy steps: only ends of passes, or only where much of the noise is, solved anew or as it is."""
        problem = self._problem
        if bool(np.any(problem.floor > 0.0)):
            return best
        step = np.arange(problem.steps)
        ends = problem.noisy & (((step + 1) % problem.batches == 0) | (step + 1 == problem.steps))
        support = _support(problem, best)
        limit = best.value * (1.0 + problem.tolerance)
        for mask in (ends, support):
            if 2 * mask.sum() <= np.sum(problem.noisy & (step >= window)):
                solution = self._solved(mask, window, limit)
                if solution is not None and solution.value <= limit:
                    return replace(solution, bound=max(solution.bound, best.bound))
        gaps = self._gaps(problem.noisy, window)
        cut = np.where(support, best.variances, 0.0)
        if bool(np.all(np.isfinite(energies(gaps, cut)))):
            cut = feasible(gaps, problem.floor, cut)
            value = float(np.sum(problem.weights * cut))
            if value <= limit:
                return replace(best, variances=cut, value=value)
        return best

    def _gaps(self, noisy: Booleans, window: int) -> Gaps:
        problem = self._problem
        initial = (window, tracked_shifts(problem, window)) if window else None
        return gaps_of(problem.lipschitz, problem.sensitivity, problem.batches, noisy, initial)

    def _solved(self, noisy: Booleans, window: int, give_up: float) -> Found | None:
        """The optimum with noise at these steps only, feasible; None if there is none, or none below `give_up`."""
        problem = self._problem
        whole = gaps = self._gaps(problem.noisy, window)
        if noisy is not problem.noisy:
            try:
                gaps = self._gaps(noisy, window)
            except InputError:
                return None
        floor, weights = problem.floor, problem.weights
        if gaps.count == 0 or bool(np.all(energies(gaps, floor) <= 1.0)):
            value = float(np.sum(weights * floor))
            return Found(variances=floor, value=value, bound=value)
        small = without_the_forgotten(gaps)
        program = program_of(small, problem.batches)
        step_weights = np.maximum(weights, _LEAST_WEIGHT)[program.steps]
        solution = Interior(small, program, step_weights, floor[program.steps]).solve(_SHARE * problem.tolerance, give_up)
        if solution is None:
            return None
        variances = floor.copy()
        variances[program.steps], duals = solution
        variances = feasible(gaps, floor, variances)
        bound = lower_bound(whole, weights, floor, transferred(duals, small, whole))
        return Found(variances=variances, value=float(np.sum(weights * variances)), bound=bound)


def _support(problem: JointProblem, solution: Found) -> Booleans:
    """The noisy steps without those that together cost less than the tolerance."""
    cost = problem.weights * solution.variances
    order = np.argsort(cost)
    support = solution.variances > 0.0
    support[order[np.cumsum(cost[order]) <= 0.1 * problem.tolerance * solution.value]] = False
    return support


def _tracked(problem: JointProblem, diameter: Array) -> Iterator[Array]:
    r"""$\min(D_t, f^j_t)$ of each position j after each step, shape (l,), always the same array: distances that nothing was paid for."""
    shifts = np.zeros(problem.batches)
    for t in range(problem.steps):
        shifts *= float(problem.lipschitz[t])
        shifts[t % problem.batches] += problem.sensitivity[t]
        yield np.minimum(shifts, diameter[t], out=shifts)


def tracked_shifts(problem: JointProblem, window: int) -> Array:
    r"""The largest distance of each position after step `window` > 0 that nothing was paid for, shape (l,)."""
    assert problem.diameter is not None
    return next(islice(_tracked(problem, problem.diameter), window - 1, None))


class _Windows:
    """After which step to set the shift to the diameter: a search over few candidates, one by one; the best so far decides the next."""

    # Noise before such a reset is of no use, so where the diameter does not bind for any position, a reset there is no better than none.
    # Tried are the ends of all passes where these are few, numbers of remaining steps on a geometric grid, and then the middles between
    # the best and its neighbours. Where a step expands faster than the diameter grows, only the grid: the accounting knows no others.
    def __init__(self, problem: JointProblem) -> None:
        steps, size = problem.steps, problem.batches
        expands = False
        self._binds = np.zeros(steps, dtype=np.bool_)
        if problem.diameter is not None:
            # After which steps some position's distance is at the diameter.
            reached = zip(_tracked(problem, problem.diameter), problem.diameter, strict=True)
            self._binds = np.array([bool(np.any(shifts == largest_shift)) for shifts, largest_shift in reached])
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
