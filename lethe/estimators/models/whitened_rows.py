r"""Whitened rows: what a classifier trains on where a share of its budget pays for the mean and the covariance of its features.

$$u = \hat\Sigma_f^{-1/2}(\tilde x - \hat m),\qquad \tilde x = x\min(1, R/\|x\|),$$

as `PrivateWhitening` with one channel a column, then projected on a ball whose radius $R'$ follows from what was released. Features that
vary little about a mean that is far from 0 hardly move a model of bounded rows, whatever they tell of the classes; whitened they count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.estimators.budget import Budget
from lethe.estimators.features.whitening import noise_floor, whitening_of
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.paying import planned_statement
from lethe.estimators.preprocessing.transformer import gaussian_cost
from lethe.mechanisms.base import Array, Statement
from lethe.mechanisms.channel_moments import channel_moments, channel_sensitivity
from lethe.run.run import Neighbours

WHITENING_SHARE = 0.1  # of the total squared mu
MOST_COLUMNS = 1024  # of a covariance that a default asks for
_FLOOR = 0.1  # of the mean eigenvalue
_MEAN_WEIGHT = 0.5  # of the mean beside the second moments, as `channel_moments` has it
_MOST_NOISE = 0.5  # of the bound on rows, in the mean that is taken off
# Of the mean eigenvalue, in the largest one of the covariance's noise. On generated data with every iterate released, whitening was better
# than the mean alone by .013 below 5, as good up to 10, and worse by up to .06 from 14 on.
_MOST_NOISE_OF_COVARIANCE = 5.0
_ENTRIES = 2**20  # of a block


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WhitenedRows:
    r"""How rows are made of features, each record by itself: $u = S(\tilde x/R - m)$, to be projected on a ball of radius R'.

    Args:
        mean: $m = \hat m/R$, shape (d,).
        matrix: $S = R\,\hat\Sigma_f^{-1/2}$, shape (d, d), symmetric.
        norm: $R'$.
    """

    mean: Array
    matrix: Array
    norm: float

    def whiten(self, rows: Array) -> None:
        r"""$\tilde x/R \mapsto u$, in place, a block at a time.

        Args:
            rows: from `unit_rows`, shape (n, d).
        """
        mean, matrix = self.mean.astype(rows.dtype), self.matrix.astype(rows.dtype)
        size = max(1, _ENTRIES // rows.shape[1])
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            part[:] = (part - mean) @ matrix

    def of_features(self, weights: Array, feature_norm: float) -> tuple[Array, Array]:
        """Weights of the features as they came, and what they are to be added to by the mean.

        Args:
            weights: of u, shape (d, k).
            feature_norm: R.
        Returns:
            Shapes (d, k) and (k,).
        """
        unit = self.matrix @ weights
        return unit / feature_norm, -(self.mean @ unit)


def unit_rows(table: Array, feature_norm: float) -> Array:
    r"""$\tilde x/R$, of the table's own floating-point type: rows of norm at most 1, but for rounding.

    Args:
        table: shape (n, d), dense.
        feature_norm: R.
    """
    with np.errstate(divide="ignore", over="ignore"):
        factors = np.minimum(1.0 / feature_norm, 1.0 / row_norms(table))
    return table * factors.astype(table.dtype)[:, None]


def worth_whitening(records: int, columns: int, budget: Budget, *, neighbours: Neighbours) -> bool:
    """Whether the mean is expected to be told from its noise, whose length is at most half the bound on rows.

    Args:
        records: n.
        columns: d.
        budget: the total.
        neighbours: replace_one or zero_out.
    """
    noise_std = _noise_std(budget, neighbours) / math.sqrt(_MEAN_WEIGHT)
    return noise_std * math.sqrt(columns) <= _MOST_NOISE * records


def covariance_told(records: int, columns: int, budget: Budget, *, neighbours: Neighbours) -> bool:
    """Whether the covariance, too, is expected to be told from its noise well enough to be worth more than the mean alone.

    Args:
        records: n.
        columns: d.
        budget: the total.
        neighbours: replace_one or zero_out.
    """
    return math.sqrt(2.0 * columns) * _noise_std(budget, neighbours) * columns <= _MOST_NOISE_OF_COVARIANCE * records


def whitening_cost(budget: Budget, *, neighbours: Neighbours) -> Statement:
    """What `whitened_rows` will cost, before it looks at a record.

    Args:
        budget: the total.
        neighbours: replace_one or zero_out.
    """
    cost = gaussian_cost(_target(budget))
    return planned_statement("mean and second moments of the features", cost, neighbours=neighbours)


def whitened_rows(
    table: Array, *, feature_norm: float, budget: Budget, neighbours: Neighbours, generator: np.random.Generator | None
) -> tuple[Array, WhitenedRows, Statement]:
    """Release mean and second moments of rows, and whiten the rows by them.

    Args:
        table: shape (n, d), n public; it is left as it is.
        feature_norm: R, on which longer rows are projected.
        budget: the total.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    Returns:
        The whitened rows, shape (n, d), how they were made, and what that costs, which does not depend on R.
    """
    rows = unit_rows(table, feature_norm)
    columns = table.shape[1]
    found = channel_moments(
        rows,
        channels=columns,
        norm=1.0,
        target=_target(budget),
        neighbours=neighbours,
        records=len(table),
        mean_weight=_MEAN_WEIGHT,
        generator=generator,
    )
    # Less of a noisy mean is nearer to the true one (James and Stein); the second moments are then about what is taken off.
    kept = max(1.0 - columns * found.mean_noise_std**2 / max(float(found.mean @ found.mean), 1e-300), 0.0)
    mean = kept * found.mean
    spread = found.second_moment - kept * (2.0 - kept) * np.outer(found.mean, found.mean)
    matrix = whitening_of(mean, spread, least=noise_floor(spread, found.noise_std, share=_FLOOR)).matrix
    # The mean square of a row's length, as released: at most d, and less where noise covers directions.
    square = float(np.einsum("ij,jk,ki->", matrix, spread, matrix))
    made = WhitenedRows(mean=mean, matrix=matrix, norm=math.sqrt(max(square, 1.0)))
    made.whiten(rows)
    return rows, made, found.statement


def _noise_std(budget: Budget, neighbours: Neighbours) -> float:
    """Of an entry of the sum of second moments."""
    return channel_sensitivity(1.0, 1, neighbours, _MEAN_WEIGHT) / _target(budget).mu


def _target(budget: Budget) -> GDP:
    return budget.share(WHITENING_SHARE)
