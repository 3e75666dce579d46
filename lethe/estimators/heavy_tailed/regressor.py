"""Private linear regression for features and targets with heavy tails or outliers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from lethe.estimators.heavy_tailed.model import HeavyTailedLinearModel
from lethe.estimators.inputs.tables import read_table_and_targets
from lethe.estimators.inputs.validation import FEWEST_RECORDS
from lethe.estimators.partitioned.tables import examined_numbers
from lethe.estimators.partitioned.targets import as_numbers
from lethe.mechanisms.base import Array
from lethe.partitions.dask_tables import table_in_blocks


class HeavyTailedLinearRegression(RegressorMixin, HeavyTailedLinearModel):
    r"""Least squares, $l = \frac12(\langle w, x\rangle - y)^2$."""

    _curvature = 1.0

    @staticmethod
    def _loss_slope(scores: Array, targets: Array) -> Array:
        return scores - targets

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    @staticmethod
    def _largest(norms: Array, targets: Array, radius: float | None) -> Array:
        finite = np.minimum(norms, 1e300)  # of a row whose norm overflows, times a target of 0
        with np.errstate(over="ignore"):
            return (np.abs(targets) + (0.0 if radius is None else radius * finite)) * finite

    def fit(self, X: Any, y: Any) -> Self:
        """Train on records X of shape (n, d), an array or a frame, with targets y of shape (n,); or on a table in blocks.

        Args:
            X: features; or a table in blocks, whose first records in the stored order are set aside for constants.
            y: targets; of a table in blocks the name of their column, or a collection of Dask in the same partitions.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        blocks, targets = table_in_blocks(X, y), as_numbers
        if blocks is None:
            table, targets = read_table_and_targets(
                self, X, y, numeric=True, frame=True, dtype="float64", ensure_min_samples=FEWEST_RECORDS
            )
        else:
            table = examined_numbers(self, blocks)
        self.coef_, self.intercept_ = self._train(table, targets, public=[])
        return self

    def predict(self, X: Any) -> Array:
        """Predicted targets, shape (n,)."""
        return self._scores(X) + self.intercept_
