"""What private scores refuse: metrics that a model has not, and numbers that bound nothing."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

import lethe.estimators as private
from lethe.errors import InputError


class _Half(ClassifierMixin, BaseEstimator):
    """Says one half of every record."""

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), 2), 0.5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"metrics": ["r2"]}, "some of accuracy, log_loss, roc_auc, calibration"),
        ({"metrics": []}, "metrics"),
        ({"y": [0, 2, 1]}, "not in the public list"),
        ({"level": 1.0}, "level"),
        ({"bins": [0.0, 0.5]}, "bins"),
        ({"bins": [0.0, 0.5, 0.5, 1.0]}, "bins"),
        ({"least_probability": 0.0}, "least_probability"),
        ({"target_range": (1.0, 1.0)}, "the width of target_range"),
        ({"error_bound": -1.0}, "error_bound"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.5}, "delta"),
        ({"neighbours": "add_or_remove"}, "neighbours"),
        ({"ledger": "file"}, "ledger"),
    ],
    ids=str,
)
def test_private_scores_refuse_what_they_cannot_bound(changed: Any, message: str) -> None:
    given = {"X": np.zeros((3, 1)), "y": [0, 1, 1], "metrics": ["log_loss"], "epsilon": 1.0, **changed}
    with pytest.raises(InputError, match=message):
        private.private_score(_Half().fit(None, None), **given)
