r"""The regularised empirical risk of a linear model and its derivatives, of records in memory or in blocks.

newton.py minimises it, and both perturbations build it from the records that an estimator passes on; F is the mean loss plus the ridge.

Of blocks one pass gives F, its gradient and its Hessian, so that a step of Newton's method is one pass. Where there are too many weights
to factor a Hessian, a pass gives F, the gradient and what the preconditioner needs, and each product is a pass of its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from lethe.errors import InputError
from lethe.mechanisms.base import Array
from lethe.mechanisms.tables import projected_rows
from lethe.partitions.table import Chunks, RecordSums
from lethe.run.losses.linear import LinearLoss

_CHUNK = 2**16  # entries of a chunk of rows: half a MiB, which stays in the cache between its two products
_MOST_WEIGHTS_TO_FACTOR = 200
_POINTS = 3  # whose sums are kept: the last, the one before a trial, and zero
_Curved = Literal["no", "scores", "weights"]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryRecords:
    """Rows $u_i$ in memory, shape (m, D), and targets, shape (m,), of records with k scores, of which sums are had as of `RecordSums`."""

    rows: Array
    targets: Array
    outputs: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> int:
        """D."""
        return self.rows.shape[1]

    def chunks(self) -> list[slice]:
        """Of the records, in order."""
        size = max(1, _CHUNK // max(self.columns, self.outputs))
        return [slice(start, start + size) for start in range(0, len(self), size)]

    def sum(self, function: Callable[..., tuple[Any, ...]], *parameters: Any) -> tuple[Any, ...]:
        """As `RecordSums.sum`."""
        return function(((self.rows[chunk], self.targets[chunk]) for chunk in self.chunks()), *parameters)


def records_of(features: Any, targets: Any, loss: LinearLoss) -> MemoryRecords | RecordSums:
    """Check records; those in blocks have the intercept's column already, and may not be longer than the loss supposes."""
    if not isinstance(features, RecordSums):
        rows = projected_rows(features, feature_norm=loss.feature_norm, intercept=loss.intercept)
        return MemoryRecords(rows, loss.check_targets(targets, len(rows)), loss.outputs)
    if targets is not None:
        raise InputError("targets: records in blocks come with their own.", source="the argument targets", remedy="give None")
    features.require_norm(loss.row_norm)
    return features


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Objective:
    r"""$F(W) = \frac1n\sum_i l(W^\top u_i, y_i) + \frac\lambda2\|W\|^2 + \langle c, W\rangle$, c of shape (D, k).

    Zeroed-out records count in n; the data are those present. The intercept is regularised too, or F would not be strongly convex.
    """

    records: int
    data: MemoryRecords | RecordSums
    loss: LinearLoss
    regularisation: float
    tilt: Array | None = None
    _cache: dict[tuple[bytes, _Curved], tuple[Array, ...]] = field(default_factory=dict, init=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(D, k), of W."""
        return self.data.columns, self.loss.outputs

    @property
    def factored(self) -> bool:
        """Whether there are so few weights that the Hessian is formed and factored."""
        return math.prod(self.shape) <= _MOST_WEIGHTS_TO_FACTOR

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """F and its gradient, shape (D, k)."""
        losses, slopes, *_ = self._at(weights, "no" if isinstance(self.data, MemoryRecords) else self._curved)
        value = float(losses) / self.records + 0.5 * self.regularisation * float(np.vdot(weights, weights))
        gradient = slopes / self.records + self.regularisation * weights
        if self.tilt is not None:
            value, gradient = value + float(np.vdot(self.tilt, weights)), gradient + self.tilt
        return value, gradient

    def hessian(self, weights: Array) -> Array:
        """The second derivative in W flattened row by row, shape (Dk, Dk)."""
        size = weights.size
        return self._at(weights, "weights")[2].reshape(size, size) / self.records + self.regularisation * np.eye(size)

    def bends(self, weights: Array) -> Array:
        r"""$\sum_i l_i''$, shape (k, k)."""
        return self._at(weights, "scores")[2]

    def product(self, weights: Array, direction: Array) -> Array:
        r"""$\sum_i u_i\,(l_i''\,U^\top u_i)^\top$ for a direction U, shape (D, k)."""
        return self.data.sum(_product, self.loss, weights, direction)[0]

    def moments(self, *, diagonal: bool) -> Array:
        r"""$\sum_i u_iu_i^\top$, shape (D, D), or its diagonal, shape (D,)."""
        return self.data.sum(_moments, self.shape[0], diagonal)[0]

    @property
    def _curved(self) -> _Curved:
        return "weights" if self.factored else "scores"

    def _at(self, weights: Array, curved: _Curved) -> tuple[Array, ...]:
        key = weights.tobytes(), curved
        if key not in self._cache:
            sums = self.data.sum(_derivatives, self.loss, weights, curved)
            while len(self._cache) >= _POINTS:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = sums
        return self._cache[key]


def _derivatives(chunks: Chunks, loss: LinearLoss, weights: Array, curved: _Curved) -> tuple[Array, ...]:
    """Sums of losses, gradients in W, and second derivatives in W, shape (D, k, D, k), or in the scores, (k, k)."""
    columns, outputs = weights.shape
    value, gradient = np.zeros(()), np.zeros(weights.shape)
    shapes = {"no": (0,), "scores": (outputs, outputs), "weights": (columns, outputs, columns, outputs)}
    total = np.zeros(shapes[curved])
    for rows, targets in chunks:
        scores = rows @ weights
        value += loss.values(scores, targets).sum()
        gradient += rows.T @ loss.slopes(scores, targets)
        if curved == "scores":
            total += loss.curvatures(scores, targets).sum()
        elif curved == "weights":
            _add_curvature(total, rows, loss.curvatures(scores, targets).dense())
    return value, gradient, total


def _add_curvature(total: Array, rows: Array, curvatures: Array) -> None:
    """Add the rows' second derivatives in W, shape (D, k, D, k), to the total."""
    outputs = total.shape[1]
    for first in range(outputs):
        for second in range(first, outputs):
            block = rows.T @ (rows * curvatures[:, first, second, None])
            total[:, first, :, second] += block
            if second > first:
                total[:, second, :, first] += block


def _product(chunks: Chunks, loss: LinearLoss, weights: Array, direction: Array) -> tuple[Array]:
    """Hessian of the losses times a direction, summed over records."""
    total = np.zeros(weights.shape)
    for rows, targets in chunks:
        total += rows.T @ loss.curvatures(rows @ weights, targets).times(rows @ direction)
    return (total,)


def _moments(chunks: Chunks, columns: int, diagonal: bool) -> tuple[Array]:
    """Sum of the outer products of rows, or of their diagonals."""
    total = np.zeros(columns if diagonal else (columns, columns))
    for rows, _ in chunks:
        total += np.einsum("nd,nd->d", rows, rows) if diagonal else rows.T @ rows
    return (total,)
