r"""The linear systems of the interior-point method: one sparse symmetric matrix whose pattern never changes.

With $\nu$ the change of the positions' multipliers, Newton's equations for (P, z, $\nu$) have the matrix

$$\begin{pmatrix} F^\top C F & -F^\top \text{slopes} \\ \cdot & -(\text{spare}/\lambda + \sum \text{stiffness}) \end{pmatrix}$$

positive definite in its first block, negative in its second: such a matrix has an $LDL^\top$ factorisation for every order of its
unknowns, so the order is chosen once, for little fill-in, and kept.

Reference: Vanderbei 1995, "Symmetric quasidefinite matrices".
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from lethe.noise_allocation.joint.cones import Point, Scaling
from lethe.noise_allocation.joint.gaps import Gaps, Integers
from lethe.noise_allocation.joint.program import Matrix, Program
from lethe.run.schedules.base import Array

_REFINEMENTS = 3


class QuasiDefinite:
    """Factors the matrix of one iterate at a time."""

    def __init__(self, gaps: Gaps, program: Program) -> None:
        noisy, columns = program.variances.shape
        count, free = gaps.count, program.left.size
        chains = int(gaps.chain[-1]) + 1
        every = np.arange(count)
        own = sparse.csr_array((np.ones(count), (every, gaps.chain)), shape=(count, chains))
        rest = sparse.eye_array(free + chains, columns + chains, k=noisy)
        wide = sparse.block_array([[program.noise, None], [program.paid, None], [None, own], [program.variances, None]])
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
        """Factor the matrix of an iterate; False where rounding has made it singular.

        Args:
            primal, dual: the iterate.
            scaling: of its cones.
        """
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
        wanted = self._units * right[self._order]
        found = self._factors.solve(wanted)
        for _ in range(_REFINEMENTS):
            found += self._factors.solve(wanted - self._matrix @ found)
        result = np.empty_like(right)
        result[self._order] = self._units * found
        return result
