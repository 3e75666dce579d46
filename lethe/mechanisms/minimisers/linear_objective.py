r"""The regularised empirical risk of a linear model and its derivatives, computed in chunks of records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lethe.mechanisms.base import Array
from lethe.partitions.record_sums import Chunks
from lethe.run.losses.linear import LinearLoss

_CHUNK = 2**16  # entries of a chunk of rows: half a MiB, which stays in the cache between its two products


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Penalty:
    r"""What is added to the mean loss: $\frac\lambda2\|W\|^2 + \langle c, W\rangle$.

    Args:
        regularisation: $\lambda > 0$; the intercept is regularised as well, or F would not be strongly convex.
        tilt: c, shape (D, k); None: 0.
    """

    regularisation: float
    tilt: Array | None = None

    def risk(self, weights: Array, losses: float, slopes: Array, records: int) -> tuple[float, Array]:
        """F and its gradient from the sums of losses and of their gradients.

        Args:
            weights: W, shape (D, k).
            losses: their sum over records.
            slopes: the sum of their gradients, shape (D, k).
            records: n.
        """
        value = losses / records + 0.5 * self.regularisation * float(np.vdot(weights, weights))
        gradient = slopes / records + self.regularisation * weights
        if self.tilt is not None:
            value, gradient = value + float(np.vdot(self.tilt, weights)), gradient + self.tilt
        return value, gradient

    def hessian(self, curvature: Array, records: int) -> Array:
        """The second derivative of F, shape (Dk, Dk), from the sum of the losses' in shape (D, k, D, k)."""
        size = curvature.shape[0] * curvature.shape[1]
        return curvature.reshape(size, size) / records + self.regularisation * np.eye(size)


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

    @property
    def _penalty(self) -> Penalty:
        return Penalty(regularisation=self.regularisation, tilt=self.tilt)

    def chunks(self) -> list[slice]:
        """Chunks of the records, in order."""
        size = max(1, _CHUNK // max(self.shape))
        return [slice(start, start + size) for start in range(0, len(self.rows), size)]

    def _records(self) -> Iterator[tuple[Array, Array]]:
        return ((self.rows[chunk], self.targets[chunk]) for chunk in self.chunks())

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """F and its gradient, shape (D, k)."""
        return self._penalty.risk(weights, *risk_sums(self._records(), self.loss, weights), self.records)

    def hessian(self, weights: Array) -> Array:
        """The second derivative in W flattened row by row, shape (Dk, Dk)."""
        return self._penalty.hessian(curvature_sum(self._records(), self.loss, weights), self.records)


def risk_sums(chunks: Chunks, loss: LinearLoss, weights: Array) -> tuple[float, Array]:
    """The sums of the losses and of their gradients in W.

    Args:
        chunks: of records.
        loss: l, with k scores.
        weights: W, shape (D, k).
    """
    total, gradient = 0.0, np.zeros(weights.shape)
    for rows, targets in chunks:
        scores = rows @ weights
        total += float(loss.values(scores, targets).sum())
        gradient += rows.T @ loss.slopes(scores, targets)
    return total, gradient


def curvature_sum(chunks: Chunks, loss: LinearLoss, weights: Array) -> Array:
    """The sum of the losses' second derivatives in W, shape (D, k, D, k).

    Args:
        chunks: of records.
        loss: l, with k scores.
        weights: W, shape (D, k).
    """
    columns, outputs = weights.shape
    total = np.zeros((columns, outputs, columns, outputs))
    for rows, targets in chunks:
        add_curvature(total, rows, loss.curvatures(rows @ weights, targets).dense())
    return total


def add_curvature(total: Array, rows: Array, curvatures: Array) -> None:
    """Add the second derivatives of some records' losses.

    Args:
        total: shape (D, k, D, k), is changed.
        rows: shape (m, D).
        curvatures: in the scores, shape (m, k, k).
    """
    outputs = total.shape[1]
    for first in range(outputs):
        for second in range(first, outputs):
            block = rows.T @ (rows * curvatures[:, first, second, None])
            total[:, first, :, second] += block
            if second > first:
                total[:, second, :, first] += block
