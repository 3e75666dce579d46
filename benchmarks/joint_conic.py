r"""The joint problem for cyclic batches handed to a general solver of cone programs, payment by payment.

$$\min_{w, a, z} \sum_t q_t w_t \quad\text{s.t.}\quad \sum_t \frac{(a^j_t)^2}{w_t} \le \mu^2,\quad z^j_t = L_t z^j_{t-1} + s^j_t - a^j_t,
\quad a, z \ge 0,\ z_T = 0,\ w \ge f$$

with T times l unknowns and cones: nothing of `joint_cyclic` but its inputs and its final check is used, so the two check each other.
For runs of some hundred steps; `joint_cyclic` is for the rest.
"""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as _cvxpy
import numpy as np
from scipy import sparse

from lethe.errors import CalibrationError
from lethe.noise_allocation.joint.cyclic import CyclicJoint, Found, JointProblem, finished, tracked_shifts
from lethe.noise_allocation.joint.energy import DualVariables, feasible, lower_bound
from lethe.noise_allocation.joint.gaps import Gaps, Integers, gaps_of
from lethe.run.schedules.shapes import Array

cvxpy: Any = _cvxpy


def joint_conic(problem: JointProblem) -> CyclicJoint:
    """As `joint_cyclic`, by Clarabel; with a diameter, every step is tried as the reset.

    Raises:
        CalibrationError: the solver gave no solution.
    Reference: Diamond & Boyd 2016, arXiv:1603.00943; Goulart & Chen 2024, arXiv:2405.12762.
    """
    own = problem.in_own_units()
    best, window = _solved(own, 0), 0
    for tried in range(1, problem.steps if problem.diameter is not None else 1):
        found = _solved(own, tried)
        if found.value < best.value * (1.0 - own.tolerance):
            best, window = found, tried
    return finished(problem, best, window)


def _solved(problem: JointProblem, window: int) -> Found:
    shifts = tracked_shifts(problem, window) if window else np.zeros(problem.batches)
    gaps = gaps_of(problem.lipschitz, problem.sensitivity, problem.batches, problem.noisy, (window, shifts) if window else None)
    if gaps.count == 0:
        value = float(np.sum(problem.weights * problem.floor))
        return Found(variances=problem.floor, value=value, bound=value)
    steps = np.flatnonzero(problem.noisy & (np.arange(problem.steps) >= window))
    variances: Any = cvxpy.Variable(steps.size)
    constraints: list[Any] = [variances >= problem.floor[steps]]
    budgets: list[Any] = []
    prices: list[Any] = []
    for j in range(problem.batches):
        budget, price, more = _position(problem, window, float(shifts[j]), j, steps, variances)
        budgets, prices, constraints = [*budgets, budget], [*prices, price], [*constraints, budget, price, *more]
    program: Any = cvxpy.Problem(cvxpy.Minimize(problem.weights[steps] @ variances), constraints)
    sharp = 1e-2 * problem.tolerance
    with warnings.catch_warnings():
        # That it stopped early shows in the lower bound.
        warnings.simplefilter("ignore", UserWarning)
        program.solve(solver="CLARABEL", tol_gap_rel=sharp, tol_gap_abs=sharp * 1e-3, tol_feas=1e-9)
    if variances.value is None:
        raise CalibrationError(f"Clarabel found no noise: {program.status}.", remedy="use joint_cyclic, or a larger tolerance.")
    found = problem.floor.copy()
    found[steps] = np.maximum(variances.value, problem.floor[steps])
    found = feasible(gaps, problem.floor, found)
    positions = np.array([float(budget.dual_value) for budget in budgets])
    duals = _dual_variables(gaps, window, positions, [np.asarray(price.dual_value) for price in prices])
    bound = lower_bound(gaps, problem.weights, problem.floor, duals)
    value = float(np.sum(problem.weights * found))
    return Found(variances=found, value=value, bound=bound)


def _position(problem: JointProblem, window: int, shift: float, j: int, steps: Integers, variances: Any) -> tuple[Any, Any, list[Any]]:
    """The budget of a position, the equations of its shift, and what else its payments obey."""
    length = problem.steps - window
    where = steps - window
    times = np.arange(window, problem.steps)
    touches = np.where(times % problem.batches == j, problem.sensitivity[window:], 0.0)
    touches[0] += problem.lipschitz[window] * shift
    factors = np.append(problem.lipschitz[window + 1 :], 0.0)
    paid: Any = cvxpy.Variable(steps.size, nonneg=True)
    left: Any = cvxpy.Variable(length, nonneg=True)
    costs: Any = cvxpy.Variable(steps.size)
    choose = sparse.csr_array((np.ones(where.size), (where, np.arange(where.size))), shape=(length, where.size))
    carry = sparse.csr_array((factors[:-1], (np.arange(1, length), np.arange(length - 1))), shape=(length, length))
    equations = left - carry @ left + choose @ paid == touches
    # a^2 <= r w as a second-order cone: |(2 a, r - w)| <= r + w.
    cones = cvxpy.SOC(costs + variances, cvxpy.vstack([2.0 * paid, costs - variances]), axis=0)
    return cvxpy.sum(costs) <= 1.0, equations, [cones, left[-1] == 0.0]


def _dual_variables(gaps: Gaps, window: int, positions: Array, duals: list[Array]) -> DualVariables:
    """The multipliers of a position's shift equations are twice its weight times the price of a shift there."""
    own = gaps.positions[gaps.chain]
    at_end = np.stack(duals)[own, gaps.last - window]
    with np.errstate(all="ignore"):
        prices = np.abs(at_end) / (2.0 * positions[own]) * np.exp(gaps.unit.astype(np.float64))
    return DualVariables(positions=positions[gaps.positions], prices=np.where(np.isfinite(prices), prices, 0.0))
