r"""Whitened rows: what a linear model trains on where a share of its budget pays for the mean and the covariance of its features.

`PrivateLinearModel` calls `chosen_whitening` from public facts and `whitened_rows` with the records; the model is fitted on what comes out.
x is a row, R the bound on its norm, d its length, R' the new bound, S and m what was released.

What all rows share tells no record from another, and takes its part of the norm that noise is in proportion to; and columns that vary
little hardly move a model of bounded rows, whatever they tell. With $v = \tilde x/R$, $\tilde x = x\min(1, R/\|x\|)$, a model is trained on

$$u = S(v - m)\quad\text{projected on a ball of radius } R',$$

each record by itself. What is released follows from public facts:

- **mean and covariance** where the noise of a covariance leaves something to be seen: $S = \hat\Sigma_f^{-1/2}$ as `PrivateWhitening`
  has it, $R'^2 = \mathrm{tr}(S\hat\Sigma S)$;
- else, of a classifier, **the mean alone**, if it can be told from its noise, for less: S = 1 and, with $\sigma$ the noise of an entry of
  $\hat m$, $R'^2 = 1 - s + e$, $s = (\|\hat m\|^2 - d\sigma^2)_+$ about the squared length of the true mean,
  $e = d\sigma^2s/(s + d\sigma^2)$ the squared error of m; else nothing.

In both $m = \hat m\,(1 - d\sigma^2/\|\hat m\|^2)_+$, which is nearer to the true mean than $\hat m$ is (James and Stein): of rows that
share nothing nothing is taken off. Of a regression R' is a fifth larger.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.budget import PrivacyBudget, planned_statement
from lethe.estimators.features.record_features import noise_floor, whitening_of
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.inputs.tables import declared_switch
from lethe.mechanisms.base import Array, gaussian_guarantee, gaussian_noise_std, require_swap
from lethe.mechanisms.moments import channel_moments, channel_sensitivity, noisy_mean
from lethe.partitions.table import ExaminedTable
from lethe.run.run import Neighbours

COVARIANCE_SHARE, REGRESSION_SHARE, MEAN_SHARE = 0.1, 0.05, 0.03  # of the total squared mu
_FLOOR = 0.1  # of the mean eigenvalue
_MEAN_WEIGHT = 0.5  # of the mean beside the second moments, as `channel_moments` has it
_SHORTEST = 0.1  # R' at least: rows that are all alike are noise in the end
# The largest eigenvalue of the covariance's noise, beside a trace of at most 1; and the length of the mean's, beside rows of norm 1.
_MOST_OF_COVARIANCE, _MOST_OF_MEAN = 0.1, 0.3
# What R' of a regression is multiplied by: cut rows bend a fit of squares. It and the share were chosen on generated rows: spectra that
# fall, columns far from 0, heavy tails, categories, the same all round. There a mean alone more often lost than gained.
_REGRESSION_REACH = 1.2
_ENTRIES = 2**20  # of a block
_MOST_COLUMNS = 1024  # of a covariance that a default asks for


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WhitenedRows:
    """How rows are made."""

    mean: Array  # m, shape (d,)
    matrix: Array | None  # S, shape (d, d), symmetric; None: 1
    norm: float  # R'

    def whiten(self, rows: Array) -> None:
        r"""$v \mapsto u$, shape (n, d), in place, a block at a time; not projected."""
        mean = self.mean.astype(rows.dtype)
        matrix = None if self.matrix is None else self.matrix.astype(rows.dtype)
        size = max(1, _ENTRIES // rows.shape[1])
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            part -= mean
            if matrix is not None:
                part[:] = part @ matrix

    def lengths(self, table: Array, feature_norm: float) -> Array:
        r"""$\|u\|/R'$ of rows as they came, before the projection, shape (n,)."""
        rows = unit_rows(table, feature_norm)
        self.whiten(rows)
        return row_norms(rows) / self.norm

    def of_features(self, weights: Array, feature_norm: float) -> tuple[Array, Array]:
        """Weights of the features as they came, shape (d, k), and what is to be added to intercepts, shape (k,), from weights of u."""
        unit = weights if self.matrix is None else self.matrix @ weights
        return unit / feature_norm, -(self.mean @ unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWhitening:
    """What is going to be released."""

    covariance: bool  # whether it is more than the mean
    share: float  # of the total squared mu
    cost: Statement  # planned
    reach: float = 1.0  # what R' is multiplied by

    @property
    def why(self) -> str:
        """A line for the report."""
        whitened = " and whitened (columns uncorrelated, of equal spread)" if self.covariance else ""
        return f"rows are centred (their mean taken off){whitened} first, for {self.share:.0%} of the budget (in squared mu)"


def chosen_whitening(
    whiten: bool | str,
    table: Any,
    budget: PrivacyBudget,
    *,
    may_choose: bool,
    against: str | None,
    intercept: bool,
    by_users: bool,
    regression: bool,
) -> PlannedWhitening | None:
    """What is released to whiten rows by, by what was asked for and by public facts; None: nothing, and `against` may say why."""
    requested = declared_switch("whiten", whiten)
    if requested is False:
        return None
    if against is None and not intercept:
        against = "fit_intercept = False, and only an intercept makes up for the mean that is taken off"
    elif against is None and by_users:
        against = "the moments are released from single rows, of which one user may have many"
    elif against is None and isinstance(table, ExaminedTable):
        against = "the table is in blocks; make PrivateWhitening a step before this one"
    elif against is None and not isinstance(table, np.ndarray):
        against = "the table is sparse, and its zeros would not stay zeros"
    records, columns = table.shape
    if requested is None and (not may_choose or against is not None or columns > _MOST_COLUMNS):
        return None
    if against is not None:
        raise InputError(f"whiten = True: {against}.", source="the option whiten", remedy='leave it at "auto", or set it to False')
    return planned_whitening(records, columns, budget, regression=regression)


def planned_whitening(records: int, columns: int, budget: PrivacyBudget, *, regression: bool = False) -> PlannedWhitening | None:
    """What is worth its price, by public facts; None: nothing."""
    neighbours = budget.neighbours
    sensitivity = channel_sensitivity(1.0, 1, neighbours, _MEAN_WEIGHT)
    share, reach = (REGRESSION_SHARE, _REGRESSION_REACH) if regression else (COVARIANCE_SHARE, 1.0)
    noise_std = gaussian_noise_std(sensitivity, budget.share(share))
    covariance = math.sqrt(2.0 * columns) * noise_std <= _MOST_OF_COVARIANCE * records
    if not covariance:
        if regression:
            return None
        share = MEAN_SHARE
        sensitivity, noise_std = require_swap(neighbours), records * _mean_noise_std(records, budget.share(share), neighbours)
        if math.sqrt(columns) * noise_std > _MOST_OF_MEAN * records:
            return None
    cost = planned_statement("moments of the rows", gaussian_guarantee(sensitivity, noise_std), neighbours=neighbours)
    return PlannedWhitening(covariance=covariance, share=share, cost=cost, reach=reach)


def whitened_rows(
    table: Array, planned: PlannedWhitening, *, feature_norm: float, budget: PrivacyBudget, generator: np.random.Generator | None
) -> tuple[Array, WhitenedRows, Statement]:
    """Release what was planned: whitened rows, shape (n, d), how they were made, and what that costs, which does not depend on R."""
    rows = unit_rows(table, feature_norm)
    release = _by_covariance if planned.covariance else _by_mean
    whitening, statement = release(rows, budget.share(planned.share), budget.neighbours, generator)
    whitening = replace(whitening, norm=planned.reach * whitening.norm)
    whitening.whiten(rows)
    return rows, whitening, statement


def unit_rows(table: Array, feature_norm: float) -> Array:
    r"""$v = \tilde x/R$, of the table's own floating-point type, shape (n, d): rows of norm at most 1, but for rounding."""
    with np.errstate(divide="ignore", over="ignore"):
        factors = np.minimum(1.0 / feature_norm, 1.0 / row_norms(table))
    return table * factors.astype(table.dtype)[:, None]


def _by_covariance(
    rows: Array, target: GDP, neighbours: Neighbours, generator: np.random.Generator | None
) -> tuple[WhitenedRows, Statement]:
    """Release mean and covariance of the rows, and derive m, S and R' of the head."""
    records, columns = rows.shape
    moments = channel_moments(
        rows,
        channels=columns,
        norm=1.0,
        target=target,
        neighbours=neighbours,
        records=records,
        mean_weight=_MEAN_WEIGHT,
        generator=generator,
    )
    shrink = _shrinkage(moments.mean, columns * moments.mean_noise_std**2)
    mean = shrink * moments.mean
    spread = moments.second_moment - shrink * (2.0 - shrink) * np.outer(moments.mean, moments.mean)  # about what is taken off
    matrix = whitening_of(mean, spread, floor=noise_floor(spread, moments.noise_std, share=_FLOOR)).matrix
    square = float(np.einsum("ij,jk,ki->", matrix, spread, matrix))
    return WhitenedRows(mean=mean, matrix=matrix, norm=math.sqrt(max(square, 1.0))), moments.statement


def _by_mean(rows: Array, target: GDP, neighbours: Neighbours, generator: np.random.Generator | None) -> tuple[WhitenedRows, Statement]:
    """Release the mean alone, and derive m and R' of the head; S = 1."""
    records, columns = rows.shape
    mean, statement = noisy_mean(rows, norm=1.0, target=target, neighbours=neighbours, generator=generator)
    noise = columns * _mean_noise_std(records, target, neighbours) ** 2
    shared = max(float(mean @ mean) - noise, 0.0)
    residual = 1.0 - shared + noise * shared / (shared + noise)
    norm = min(max(math.sqrt(max(residual, 0.0)), _SHORTEST), 1.0)
    return WhitenedRows(mean=_shrinkage(mean, noise) * mean, matrix=None, norm=norm), statement


def _shrinkage(mean: Array, noise: float) -> float:
    """The share of a noisy mean that is taken off: all but what its noise, of the squared length given, is expected to be."""
    return max(1.0 - noise / max(float(mean @ mean), 1e-300), 0.0)


def _mean_noise_std(records: int, target: GDP, neighbours: Neighbours) -> float:
    """Of an entry of a mean that is released alone."""
    return gaussian_noise_std(require_swap(neighbours), target) / records
