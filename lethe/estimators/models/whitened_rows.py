r"""Whitened rows: what a classifier trains on where a share of its budget pays for the mean and the covariance of its features.

$$u = \hat\Sigma_f^{-1/2}(\tilde x - \hat m),\qquad \tilde x = x\min(1, R/\|x\|),$$

as `PrivateWhitening` with one channel a column, then projected on a ball whose radius $R'$ follows from what was released. Features that
vary little about a mean that is far from 0 hardly move a model of bounded rows, whatever they tell of the classes; whitened they count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.guarantees import Guarantee
from lethe.estimators.budget import Budget
from lethe.estimators.features.whitening import noise_floor, whitening_of
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.paying import planned_statement
from lethe.mechanisms.base import Array, Statement
from lethe.mechanisms.channel_moments import channel_moments
from lethe.run.run import Neighbours

WHITENING_SHARE = 0.1  # of the total squared mu
MOST_COLUMNS = 1024  # of a covariance that a default asks for
_FLOOR = 0.1  # of the mean eigenvalue
_ENTRIES = 2**20  # of a block


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WhitenedRows:
    r"""How rows are made from features, each record by itself.

    Args:
        radius: R, the bound on rows as they came.
        mean: $\hat m$, shape (d,).
        matrix: $\hat\Sigma_f^{-1/2}$, shape (d, d), symmetric.
        norm: $R'$, the bound on whitened rows.
    """

    radius: float
    mean: Array
    matrix: Array
    norm: float

    def rows(self, table: Any) -> Array:
        """Whitened, not yet projected, shape (n, d), of the table's own floating-point type.

        Args:
            table: shape (n, d), dense.
        """
        matrix, offset = self.matrix.astype(table.dtype), (self.matrix @ self.mean).astype(table.dtype)
        found = np.empty_like(table, order="C")
        size = max(1, _ENTRIES // table.shape[1])
        for first in range(0, len(table), size):
            part = table[first : first + size]
            with np.errstate(divide="ignore"):
                shorter = np.minimum(self.radius / row_norms(part), 1.0)
            found[first : first + size] = (shorter.astype(table.dtype)[:, None] * part) @ matrix - offset
        return found

    def for_features(self, weights: Array) -> Array:
        """Weights of the features as they came, shape (d, k), from those of whitened rows, by the same matrix, which is symmetric."""
        return self.matrix @ weights


def whitening_cost(budget: Budget, *, neighbours: Neighbours) -> Statement:
    """What `whitened_rows` will cost, before it looks at a record.

    Args:
        budget: the total.
        neighbours: replace_one or zero_out.
    """
    return planned_statement("mean and second moments of the features", _target(budget), neighbours=neighbours)


def whitened_rows(
    table: Array, *, radius: float, budget: Budget, neighbours: Neighbours, generator: np.random.Generator | None
) -> tuple[WhitenedRows, Statement]:
    """Release mean and second moments of rows, and what makes whitened rows of them; and what it costs.

    Args:
        table: shape (n, d), n public.
        radius: R.
        budget: the total.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    columns = table.shape[1]
    found = channel_moments(
        table, channels=columns, norm=radius, target=_target(budget), neighbours=neighbours, records=len(table), generator=generator
    )
    least = noise_floor(found.covariance, found.noise_std, share=_FLOOR)
    matrix = whitening_of(found.mean, found.covariance, least=least).matrix
    # The mean square of a row's length, as released: at most d, and less where noise covers directions.
    square = float(np.einsum("ij,jk,ki->", matrix, found.covariance, matrix))
    return WhitenedRows(radius=radius, mean=found.mean, matrix=matrix, norm=math.sqrt(max(square, 1.0))), found.statement


def _target(budget: Budget) -> Guarantee:
    return budget.share(WHITENING_SHARE)
