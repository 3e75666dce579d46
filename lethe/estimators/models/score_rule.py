"""ScoreRule: how scores and probabilities of classes are computed from released weights, of an estimator or of what was saved of it.

The estimators predict by it, and `lethe train` saves it beside the weights, so that a saved model predicts alike without scikit-learn's
estimator.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.estimators.inputs.records import row_norms
from lethe.estimators.models.whitened_rows import WhitenedRows
from lethe.mechanisms.base import Array
from lethe.run.losses.inverse_links import class_log_probabilities
from lethe.run.losses.linear import LinearLoss


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreRule:
    """Of rows shortened to norm `feature_norm`; lengths and the envelope's bound are in units of it."""

    loss: LinearLoss  # that was trained on
    feature_norm: float
    envelope: float | None = None  # C > 0 of the Lipschitz envelope that was descended; None: the loss itself
    constant: float = 0.0  # the size of the intercept's feature
    whitened: WhitenedRows | None = None

    def projected(self, scores: Array, rows: Any, weights: Array) -> Array:
        """Scores, shape (n, k), without intercepts, of rows (n, d), by weights (d, k); whitened rows are projected again, as trained."""
        if self.whitened is None:
            return scores
        middle = self.feature_norm * self.whitened.mean @ weights
        return np.asarray(middle + (scores - middle) / np.maximum(self._lengths(rows), 1.0)[:, None])

    def log_probabilities(self, scores: Array, rows: Any) -> Array:
        """Logarithms of probabilities of scores (n, K), or log-odds of scores (n,) of two classes, of rows (n, d)."""
        bounds = None
        if self.envelope is not None:
            with np.errstate(divide="ignore"):
                bounds = self.envelope / np.hypot(np.minimum(self._lengths(rows), 1.0), self.constant)
        return class_log_probabilities(self.loss, scores, bounds)

    def _lengths(self, rows: Any) -> Array:
        """Of rows as they were trained on, but for the last projection, over its radius, shape (n,)."""
        if self.whitened is None:
            return row_norms(rows) / self.feature_norm
        return self.whitened.lengths(rows if isinstance(rows, np.ndarray) else rows.toarray(), self.feature_norm)
