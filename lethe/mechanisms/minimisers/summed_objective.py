r"""The regularised empirical risk of a linear model on a partitioned table: one pass gives it with all its derivatives.

Where Newton's matrix is factored, a pass gives F, its gradient and its Hessian together, so a step of Newton's method is one pass. Where
there are too many weights for that, a pass gives F, the gradient and what the preconditioner needs, and each product with the Hessian is a
pass of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lethe.mechanisms.base import Array
from lethe.mechanisms.minimisers.linear_objective import Penalty, add_curvature
from lethe.partitions.record_sums import Chunks, RecordSums
from lethe.run.losses.linear import LinearLoss

_KEPT = 3  # points whose sums are kept: the last, the one before a trial, and zero


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummedObjective:
    r"""$F(W) = \frac1n\sum_i l(W^\top u_i, y_i) + \frac\lambda2\|W\|^2 + \langle c, W\rangle$, as `LinearObjective` of records in blocks.

    Args:
        records: n >= 1, public.
        sums: over the records.
        loss: l, with k scores, and the bound on the rows' norms.
        regularisation: $\lambda > 0$.
        tilt: c, shape (D, k); None: 0.
        factored: whether there are so few weights that a pass gives the Hessian as well.
    """

    records: int
    sums: RecordSums
    loss: LinearLoss
    regularisation: float
    factored: bool
    tilt: Array | None = None
    _found: dict[bytes, tuple[Array, ...]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W."""
        return self.sums.columns, self.loss.outputs

    @property
    def _penalty(self) -> Penalty:
        return Penalty(regularisation=self.regularisation, tilt=self.tilt)

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """F and its gradient, shape (D, k)."""
        value, gradient, _ = self._at(weights)
        return self._penalty.risk(weights, float(value), gradient, self.records)

    def hessian(self, weights: Array) -> Array:
        """The second derivative in W flattened row by row, shape (Dk, Dk); only where it is `factored`."""
        assert self.factored
        return self._penalty.hessian(self._at(weights)[2], self.records)

    def bends(self, weights: Array) -> Array:
        r"""$\sum_i l_i''$, shape (k, k); only where the Hessian is not `factored`."""
        assert not self.factored
        return self._at(weights)[2]

    def product(self, weights: Array, direction: Array) -> Array:
        r"""$\sum_i u_i\,(l_i''\,U^\top u_i)^\top$ for a direction U, shape (D, k): one pass."""
        return self.sums.sum(_product, self.loss, weights, direction)[0]

    def moments(self) -> Array:
        r"""$\sum_i u_iu_i^\top$, shape (D, D): one pass."""
        return self.sums.sum(_moments, self.sums.columns)[0]

    def squares(self) -> Array:
        """Its diagonal, shape (D,): one pass."""
        return self.sums.sum(_squares, self.sums.columns)[0]

    def _at(self, weights: Array) -> tuple[Array, ...]:
        key = weights.tobytes()
        if key not in self._found:
            found = self.sums.sum(_derivatives, self.loss, weights, self.factored)
            while len(self._found) >= _KEPT:
                self._found.pop(next(iter(self._found)))
            self._found[key] = found
        return self._found[key]


def _derivatives(chunks: Chunks, loss: LinearLoss, weights: Array, factored: bool) -> tuple[Array, ...]:
    """Losses, gradients, and second derivatives in W or in the scores, over one block."""
    columns, outputs = weights.shape
    value, gradient = np.zeros(()), np.zeros(weights.shape)
    curved = np.zeros((columns, outputs, columns, outputs)) if factored else np.zeros((outputs, outputs))
    for rows, targets in chunks:
        scores = rows @ weights
        value += loss.values(scores, targets).sum()
        gradient += rows.T @ loss.slopes(scores, targets)
        curvatures = loss.curvatures(scores, targets)
        if factored:
            add_curvature(curved, rows, curvatures.dense())
        else:
            curved += curvatures.sum()
    return value, gradient, curved


def _product(chunks: Chunks, loss: LinearLoss, weights: Array, direction: Array) -> tuple[Array]:
    total = np.zeros(weights.shape)
    for rows, targets in chunks:
        total += rows.T @ loss.curvatures(rows @ weights, targets).times(rows @ direction)
    return (total,)


def _moments(chunks: Chunks, columns: int) -> tuple[Array]:
    total = np.zeros((columns, columns))
    for rows, _ in chunks:
        total += rows.T @ rows
    return (total,)


def _squares(chunks: Chunks, columns: int) -> tuple[Array]:
    total = np.zeros(columns)
    for rows, _ in chunks:
        total += np.einsum("nd,nd->d", rows, rows)
    return (total,)
