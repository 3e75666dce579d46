r"""The cheapest noise that makes the last iterate of a run in cyclic batches private: schedule and accounting solved together.

With $w_t = \tau_t^2$ the noise variance of step t, $q_t$ what a unit of it costs, and $E_j(w)$ the optimal shift of a record in batch j,

$$\min_{w \ge f} \sum_t q_t w_t \quad\text{s.t.}\quad E_j(w) \le \mu^2,\ j = 1..\ell$$

is a convex program. It is solved by an interior-point method on a sparse form with 2T unknowns (`program`, `interior`);
the result is scaled by an evaluation of its own to be feasible, and comes with a lower bound that is proved apart from the solver
(`energy`). Where an optimum without noise inside the passes is as cheap, it is preferred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import InputError
from lethe.noise_allocation.joint.energy import energies, feasible, lower_bound, transferred
from lethe.noise_allocation.joint.gaps import Booleans, Gaps, gaps_of, without_the_forgotten
from lethe.noise_allocation.joint.inputs import JointProblem, joint_problem
from lethe.noise_allocation.joint.interior import Interior
from lethe.noise_allocation.joint.program import program_of
from lethe.noise_allocation.joint.result import CyclicJoint, Found, finished
from lethe.noise_allocation.joint.windows import Windows, tracked_shifts

# Weights below this fraction of the largest are raised to it inside the solver, never in what is returned or proved.
_LEAST_WEIGHT = 1e-16
# The solver's share of the tolerance; the rest is for rounding to zeros.
_SHARE = 0.1

Progress = Callable[[int, float], None]


def joint_cyclic(
    weights: ArrayLike,
    lipschitz: ArrayLike,
    sensitivity: ArrayLike,
    batches_per_pass: SupportsIndex,
    *,
    mu: float = 1.0,
    noisy: ArrayLike | None = None,
    floor: ArrayLike = 0.0,
    diameter: ArrayLike | None = None,
    tolerance: float = 1e-7,
    progress: Progress | None = None,
) -> CyclicJoint:
    r"""The noise of least cost with which the last iterate is $\mu$-GDP for a record in any batch.

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
        progress: called with the number of factorisations so far and the relative gap of the present one.

    Returns:
        Noise for which every position's optimal shift is at most $\mu$, its cost, and a proven lower bound on the cost.

    Raises:
        InputError: an argument is outside its range, or some touch has no noisy step after it, so that no noise makes the run private.

    Reference: the privacy of the last iterate under shifts is Feldman, Mironov, Talwar, Thakurta 2018, arXiv:1808.06651, and Bok, Su,
    Altschuler 2024, arXiv:2403.00278; the joint problem is in docs/theory.md.
    """
    problem = joint_problem(weights, lipschitz, sensitivity, batches_per_pass, mu, noisy, floor, diameter, tolerance)
    scaled = problem.in_own_units()
    solver = _Solver(scaled, progress)
    found, window = solver.best()
    return finished(problem, found, window, solver.iterations)


class _Solver:
    """One problem in its own units, mu = 1."""

    def __init__(self, problem: JointProblem, progress: Progress | None) -> None:
        self._problem, self._progress = problem, progress
        self.iterations = 0

    def best(self) -> tuple[Found, int]:
        """The best over all windows tried, made sparse, and its window."""
        problem = self._problem
        windows = None if problem.diameter is None else Windows(problem)
        best = Found(variances=problem.floor, value=np.inf, bound=0.0)
        window = 0
        tried: int | None = 0
        while tried is not None:
            enough = best.value * (1.0 - problem.tolerance)
            found = self._solved(problem.noisy, tried, enough)
            if found is not None and found.value < enough:
                best, window = found, tried
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
                found = self._solved(mask, window, limit)
                if found is not None and found.value <= limit:
                    return replace(found, bound=max(found.bound, best.bound))
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
        own = np.maximum(weights, _LEAST_WEIGHT)[program.steps]
        solution = Interior(small, program, own, floor[program.steps]).solve(_SHARE * problem.tolerance, give_up, self._report)
        if solution is None:
            return None
        variances = floor.copy()
        variances[program.steps] = solution.variances
        variances = feasible(gaps, floor, variances)
        duals = transferred(solution.duals, small, whole)
        value = float(np.sum(weights * variances))
        bound = lower_bound(whole, weights, floor, duals)
        return Found(variances=variances, value=value, bound=bound)

    def _report(self, iteration: int, gap: float) -> None:
        self.iterations += iteration > 0
        if self._progress is not None:
            self._progress(self.iterations, gap)


def _support(problem: JointProblem, found: Found) -> Booleans:
    """The noisy steps without those that together cost less than the tolerance."""
    cost = problem.weights * found.variances
    order = np.argsort(cost)
    support = found.variances > 0.0
    support[order[np.cumsum(cost[order]) <= 0.1 * problem.tolerance * found.value]] = False
    return support
