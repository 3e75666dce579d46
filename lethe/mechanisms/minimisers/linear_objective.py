r"""The regularised empirical risk of a linear model and its derivatives, computed in chunks of records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.mechanisms.base import Array
from lethe.run.losses import LinearLoss

_CHUNK = 2**16  # entries of a chunk of rows: half a MiB, which stays in the cache between its two products


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearObjective:
    r"""$F(W) = \frac1n\sum_i l(W^\top u_i, y_i) + \frac\lambda2\|W\|^2 + \langle c, W\rangle$.

    Args:
        records: n >= 1, public; zeroed-out records count.
        rows: $u_i$ of the records that are present, shape (m, D), norms at most `loss.row_norm`.
        targets: $y_i$, shape (m,).
        loss: l, with k scores, and the bound on the rows' norms.
        regularisation: $\lambda > 0$; the intercept is regularised as well, or F would not be strongly convex.
        tilt: c, shape (D, k); None: 0.
    """

    records: int
    rows: Array
    targets: Array
    loss: LinearLoss
    regularisation: float
    tilt: Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W."""
        return self.rows.shape[1], self.loss.outputs

    def chunks(self) -> list[slice]:
        """Chunks of the records, in order."""
        size = max(1, _CHUNK // max(self.shape))
        return [slice(start, start + size) for start in range(0, len(self.rows), size)]

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """F and its gradient, shape (D, k)."""
        total, gradient = 0.0, np.zeros(self.shape)
        for chunk in self.chunks():
            scores = self.rows[chunk] @ weights
            total += float(self.loss.values(scores, self.targets[chunk]).sum())
            gradient += self.rows[chunk].T @ self.loss.slopes(scores, self.targets[chunk])
        value = total / self.records + 0.5 * self.regularisation * float(np.vdot(weights, weights))
        gradient = gradient / self.records + self.regularisation * weights
        if self.tilt is not None:
            value, gradient = value + float(np.vdot(self.tilt, weights)), gradient + self.tilt
        return value, gradient

    def hessian(self, weights: Array) -> Array:
        """The second derivative in W flattened row by row, shape (Dk, Dk)."""
        columns, outputs = self.shape
        total = np.zeros((columns, outputs, columns, outputs))
        for chunk in self.chunks():
            rows = self.rows[chunk]
            curvatures = self.loss.curvatures(rows @ weights, self.targets[chunk]).dense()
            for first in range(outputs):
                for second in range(first, outputs):
                    block = rows.T @ (rows * curvatures[:, first, second, None])
                    total[:, first, :, second] += block
                    if second > first:
                        total[:, second, :, first] += block
        size = columns * outputs
        return total.reshape(size, size) / self.records + self.regularisation * np.eye(size)
