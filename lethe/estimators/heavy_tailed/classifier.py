"""Private logistic regression for features with heavy tails or outliers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags

from lethe.errors import InputError
from lethe.estimators.heavy_tailed.model import HeavyTailedLinearModel
from lethe.estimators.inputs.labels import public_labels
from lethe.estimators.inputs.tables import read_table_and_targets
from lethe.estimators.inputs.validation import FEWEST_RECORDS
from lethe.estimators.models.classifiers import LogisticRegression
from lethe.estimators.partitioned.tables import examined_labels
from lethe.mechanisms.base import Array
from lethe.partitions.dask_tables import table_in_blocks
from lethe.run.losses import Logistic

_LOSS = Logistic(feature_norm=1.0)  # of which the slope alone is used: features are not bounded


class HeavyTailedLogisticRegression(ClassifierMixin, HeavyTailedLinearModel):
    r"""Logistic regression for two classes.

    Args:
        classes: the two labels, public; None: those in y, which the report then says is declared.
    """

    classes: Any = None

    _curvature = _LOSS.curvature_bound
    decision_function = LogisticRegression.decision_function
    predict = LogisticRegression.predict
    predict_proba = LogisticRegression.predict_proba
    predict_log_proba = LogisticRegression.predict_log_proba

    @staticmethod
    def _loss_slope(scores: Array, targets: Array) -> Array:
        return _LOSS.slopes(scores[:, None], targets)[:, 0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags

    @staticmethod
    def _largest(norms: Array, targets: Array, radius: float | None) -> Array:
        return norms if radius is not None else 0.5 * norms

    def fit(self, X: Any, y: Any) -> Self:
        """Train on records X of shape (n, d), an array or a frame, with labels y of shape (n,); or on a table in blocks.

        Args:
            X: features; or a table in blocks, whose first records in the stored order are set aside for constants.
            y: labels; of a table in blocks the name of their column, or a collection of Dask in the same partitions.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        blocks = table_in_blocks(X, y)
        if blocks is None:
            table, labels = read_table_and_targets(self, X, y, numeric=False, dtype="float64", ensure_min_samples=FEWEST_RECORDS)
            classes, targets, how = public_labels(self.classes, labels)
        else:
            table, classes, targets, how = examined_labels(self, blocks, self.classes)
        if len(classes) > 2:
            raise InputError(
                f"y: Only binary classification is supported. The type of the target is multiclass: {len(classes)} classes.",
                source="the argument y and the parameter classes",
                remedy="take lethe.estimators.LogisticRegression, or one model for each class",
            )
        weights, intercept = self._train(table, targets, public=[f"{how}: {', '.join(map(str, classes))}"])
        self.classes_ = classes
        self.coef_, self.intercept_ = weights[None, :], np.array([intercept])
        return self
