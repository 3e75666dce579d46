r"""A primal-dual interior-point method for the cone program of `gaps`.

`cyclic` calls it for schedules with noise inside passes; the result is checked by `energy`, so an error here can cost only quality. P, z
and r are the program's unknowns, w the variances, q their costs.

Newton's method along the central path, with Nesterov and Todd's scaling and Mehrotra's predictor and corrector. The costs r of the gaps
are eliminated by hand, so each step factors one symmetric quasi-definite matrix in (P, z) and one multiplier a position. Its graph is a
grid of time by passes, so a sparse factorisation fills in little: 15 to 30 factorisations of 2T unknowns solve a run of T steps.

Reference: Mehrotra 1992, "On the implementation of a primal-dual interior point method"; Vandenberghe 2010, "The CVXOPT linear and
quadratic cone program solvers".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from lethe.noise_allocation.joint.cones import Point, Scaling
from lethe.noise_allocation.joint.energy import DualVariables
from lethe.noise_allocation.joint.gaps import Gaps, Integers, Matrix, Program
from lethe.run.schedules.shapes import Array

_MOST_ITERATIONS = 100
_SHORTENED = 0.99
# Shorter steps than this, twice running, mean that rounding has stopped the progress.
_NO_STEP = 1e-2
_REFINEMENTS = 3


class Interior:
    r"""The problem $\min q \cdot w$ over a program, with $w \ge f$; `solve` does the work."""

    def __init__(self, gaps: Gaps, program: Program, weights: Array, floor: Array) -> None:
        self._gaps, self._program, self._weights, self._floor = gaps, program, weights, floor
        self._noisy, self._columns = program.variances.shape
        self._sizes = np.bincount(gaps.chain)
        self._rank = self._noisy + program.left.size + self._sizes.size + 2 * gaps.count
        self._cost = program.variances.T @ weights
        self._matrix = _QuasiDefinite(gaps, program)

    def solve(self, tolerance: float, give_up: float) -> tuple[Array, DualVariables] | None:
        """Iterate until the gap between the primal and the dual value is below `tolerance`, relatively, or rounding stops all progress.

        It gives up, with None, as soon as the optimum is seen to lie above `give_up`; else w at the program's steps, near the optimum and
        feasible up to rounding only.
        """
        with np.errstate(all="ignore"):
            point = self._start()
            iteration = idle = 0
            while iteration < _MOST_ITERATIONS and idle < 2:
                gap, value = point.gap, float(self._weights @ (point.primal.above + self._floor))
                # What the multipliers miss, in units of the value.
                missing = float(np.abs(self._missing(point.dual)[0]) @ np.abs(point.x))
                if max(gap, missing) < tolerance * value:
                    break
                if value - gap - missing > give_up:
                    return None
                moved, length = self._step(point)
                if moved is None:
                    break
                point, iteration, idle = moved, iteration + 1, idle + 1 if length < _NO_STEP else 0
        dual = point.dual
        prices = np.maximum(-dual.cones[2], 0.0) / dual.cones[0]
        return point.primal.above + self._floor, DualVariables(positions=dual.spare, prices=prices)

    def _start(self) -> _Iterate:
        """A strictly feasible point of natural size, and the multipliers that make it central."""
        gaps, program = self._gaps, self._program
        shape = 1.0 / (self._weights * self._noisy)
        x = np.concatenate([program.arrived(shape), _half_paid(gaps)[program.left]])
        paid = program.paid @ x + gaps.rise
        shape = shape * 2.0 * float(np.max(self._by_chain(paid**2 / (program.noise @ x)))) + self._floor
        x[: self._noisy] = program.arrived(shape)
        noise = program.noise @ x
        costs = paid**2 / noise
        costs += (0.5 * (1.0 - self._by_chain(costs)) / self._sizes)[gaps.chain]
        primal = Point(
            above=shape - self._floor,
            left=x[self._noisy :].copy(),
            spare=1.0 - self._by_chain(costs),
            cones=np.stack([costs, noise, paid]),
        )
        share = float(self._weights @ shape) / self._rank
        return _Iterate(x=x, primal=primal, dual=primal.inverse().scaled(share))

    def _step(self, at: _Iterate) -> tuple[_Iterate | None, float]:
        """The next iterate, and the longer of its two step lengths; None where rounding makes one impossible."""
        primal, dual = at.primal, at.dual
        scaling = Scaling(primal.cones, dual.cones)
        if not self._matrix.factor(primal, dual, scaling):
            return None, 0.0
        toward = self._direction(at, scaling, primal.scaled(-1.0), 1.0)
        affine_gap = at.moved(toward, min(1.0, primal.longest(toward.primal)), min(1.0, dual.longest(toward.dual))).gap
        centring = min(1.0, max(affine_gap / at.gap, 1e-2)) ** 3
        goal = dual.inverse().scaled(centring * at.gap / self._rank)
        second = Point(
            above=toward.primal.above * toward.dual.above / dual.above,
            left=toward.primal.left * toward.dual.left / dual.left,
            spare=toward.primal.spare * toward.dual.spare / dual.spare,
            cones=scaling.correction(toward.primal.cones, toward.dual.cones),
        )
        change = self._direction(at, scaling, goal.moved(-1.0, primal).moved(-1.0, second), 1.0 - centring)
        ahead = min(1.0, _SHORTENED * primal.longest(change.primal))
        behind = min(1.0, _SHORTENED * dual.longest(change.dual))
        moved = at.moved(change, ahead, behind)
        sound = moved.primal.inside() and moved.dual.inside()
        return (moved if sound else None), max(ahead, behind)

    def _direction(self, at: _Iterate, scaling: Scaling, target: Point, share: float) -> _Iterate:
        """Newton's step to where the scaled products are as `target` says and `share` of the residuals is gone."""
        gaps, program, m = self._gaps, self._program, self._noisy
        primal, dual = at.primal, at.dual
        now = self._slacks(at.x, primal.cones[0])
        residual = now.moved(-1.0, primal).scaled(share)
        goal = target.moved(-1.0, residual)
        missing, missing_costs = (share * part for part in self._missing(dual))
        right = np.empty(self._columns + self._sizes.size)
        _, goal_noise, goal_paid = goal.cones
        noise = scaling.noise_noise * goal_noise + scaling.noise_paid * goal_paid + scaling.slope_noise * missing_costs
        paid = scaling.noise_paid * goal_noise + scaling.paid_paid * goal_paid + scaling.slope_paid * missing_costs
        right[: self._columns] = self._backward(noise, paid, goal.above * dual.above / primal.above) - missing
        right[m : self._columns] += goal.left * dual.left / primal.left
        sloped = goal.cones[0] + scaling.slope_noise * goal_noise + scaling.slope_paid * goal_paid
        right[self._columns :] = -goal.spare - self._by_chain(sloped - scaling.stiffness * missing_costs)
        solved = self._matrix.solve(right)
        dx, spare = solved[: self._columns], solved[self._columns :]
        d_noise, d_paid, d_cost = program.noise @ dx, program.paid @ dx, spare[gaps.chain] + missing_costs
        rest_noise, rest_paid = goal_noise - d_noise, goal_paid - d_paid
        d_costs = goal.cones[0] - scaling.stiffness * d_cost + scaling.slope_noise * rest_noise + scaling.slope_paid * rest_paid
        d_above, d_left = program.variances @ dx, dx[m:]
        change = Point(above=d_above, left=d_left, spare=-self._by_chain(d_costs), cones=np.stack([d_costs, d_noise, d_paid]))
        reaction = Point(
            above=(goal.above - d_above) * dual.above / primal.above,
            left=(goal.left - d_left) * dual.left / primal.left,
            spare=spare,
            cones=np.stack(
                [
                    d_cost,
                    scaling.noise_noise * rest_noise + scaling.noise_paid * rest_paid + scaling.slope_noise * d_cost,
                    0.5 * (scaling.noise_paid * rest_noise + scaling.paid_paid * rest_paid + scaling.slope_paid * d_cost),
                ]
            ),
        )
        return _Iterate(x=dx, primal=change.moved(1.0, residual), dual=reaction)

    def _slacks(self, x: Array, costs: Array) -> Point:
        program = self._program
        return Point(
            above=program.variances @ x - self._floor,
            left=x[self._noisy :],
            spare=1.0 - self._by_chain(costs),
            cones=np.stack([costs, program.noise @ x, program.paid @ x + self._gaps.rise]),
        )

    def _missing(self, dual: Point) -> tuple[Array, Array]:
        """By how much the multipliers miss the dual equations: of (P, z), and of r."""
        result = self._cost - self._backward(dual.cones[1], 2.0 * dual.cones[2], dual.above)
        result[self._noisy :] -= dual.left
        return result, dual.spare[self._gaps.chain] - dual.cones[0]

    def _backward(self, noise: Array, paid: Array, above: Array) -> Array:
        program = self._program
        return program.noise.T @ noise + program.paid.T @ paid + program.variances.T @ above

    def _by_chain(self, values: Array) -> Array:
        return np.bincount(self._gaps.chain, weights=values, minlength=self._sizes.size).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Iterate:
    """A point, or a direction."""

    x: Array
    """(P, z)."""
    primal: Point
    dual: Point

    def moved(self, change: _Iterate, ahead: float, behind: float) -> _Iterate:
        return _Iterate(
            x=self.x + ahead * change.x, primal=self.primal.moved(ahead, change.primal), dual=self.dual.moved(behind, change.dual)
        )

    @property
    def gap(self) -> float:
        return self.primal.times(self.dual)


def _half_paid(gaps: Gaps) -> Array:
    """Shifts that are left when about half is paid in every gap; never tiny where the next gap's is not."""
    rises, factors = gaps.rise.tolist(), gaps.carry.tolist()
    unpaid: list[float] = []
    for rise, factor in zip(rises, factors, strict=True):
        # The factor is 0 where a chain begins.
        unpaid.append(0.5 * (rise + (factor * unpaid[-1] if factor > 0.0 else 0.0)))
    for k in range(len(unpaid) - 2, -1, -1):
        if factors[k + 1] > 0.0:
            unpaid[k] = max(unpaid[k], 0.1 * unpaid[k + 1] / factors[k + 1])
    return np.array(unpaid)


class _QuasiDefinite:
    r"""The linear systems of the interior-point method: one sparse symmetric matrix whose pattern never changes.

    With $\nu$ the change of the positions' multipliers, Newton's equations for (P, z, $\nu$) have the matrix

    $$\begin{pmatrix} F^\top C F & -F^\top \text{slopes} \\ \cdot & -(\text{spare}/\lambda + \sum \text{stiffness}) \end{pmatrix}$$

    positive definite in its first block, negative in its second: such a matrix has an $LDL^\top$ factorisation for every order of its
    unknowns, so the order is chosen once, for little fill-in, and kept.

    Reference: Vanderbei 1995, "Symmetric quasidefinite matrices".
    """

    def __init__(self, gaps: Gaps, program: Program) -> None:
        noisy, columns = program.variances.shape
        count, free = gaps.count, program.left.size
        chains = int(gaps.chain[-1]) + 1
        every = np.arange(count)
        chain_rows = sparse.csr_array((np.ones(count), (every, gaps.chain)), shape=(count, chains))
        rest = sparse.eye_array(free + chains, columns + chains, k=noisy)
        wide = sparse.block_array([[program.noise, None], [program.paid, None], [None, chain_rows], [program.variances, None]])
        self._stacked = sparse.vstack([wide, rest]).tocsr()
        self._transposed = self._stacked.T.tocsr()
        single = 3 * count + np.arange(noisy + free + chains)
        blocks = [every, every + count, every + 2 * count]
        self._rows = np.concatenate([np.repeat(blocks, 3, axis=0).ravel(), single])
        self._columns = np.concatenate([np.tile(blocks, (3, 1)).ravel(), single])
        self._order = self._little_fill()

    def _little_fill(self) -> Integers:
        """An order of the unknowns: that of a factorisation of any matrix of the same pattern."""
        pattern = self._with(np.ones(self._rows.size))
        pattern.data = -np.ones(pattern.data.size)
        dominant = (pattern + sparse.diags_array(2.0 * np.diff(pattern.indptr))).tocsc()
        return np.argsort(linalg.splu(dominant, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).perm_c)

    def _with(self, values: Array) -> Matrix:
        size = self._stacked.shape[0]
        middle = sparse.csr_array((values, (self._rows, self._columns)), shape=(size, size))
        return (self._transposed @ (middle @ self._stacked)).tocsr()

    def factor(self, primal: Point, dual: Point, scaling: Scaling) -> bool:
        """Factor the matrix of an iterate; False where rounding has made it singular."""
        noise, cross, paid = scaling.noise_noise, scaling.noise_paid, scaling.paid_paid
        down, across = -scaling.slope_noise, -scaling.slope_paid
        values = [noise, cross, down, cross, paid, across, down, across, -scaling.stiffness]
        values += [dual.above / primal.above, dual.left / primal.left, -primal.spare / dual.spare]
        matrix = self._with(np.concatenate(values))
        diagonal = np.abs(matrix.diagonal())
        if not bool(np.all(np.isfinite(matrix.data)) and np.all(diagonal > 0.0)):
            return False
        self._units = 1.0 / np.sqrt(diagonal[self._order])
        units = sparse.diags_array(self._units)
        self._matrix = (units @ matrix[self._order][:, self._order] @ units).tocsc()
        try:
            self._factors = linalg.splu(self._matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        except RuntimeError:
            return False
        return True

    def solve(self, right: Array) -> Array:
        """The solution, refined."""
        scaled_right = self._units * right[self._order]
        solution = self._factors.solve(scaled_right)
        for _ in range(_REFINEMENTS):
            solution += self._factors.solve(scaled_right - self._matrix @ solution)
        result = np.empty_like(right)
        result[self._order] = self._units * solution
        return result
