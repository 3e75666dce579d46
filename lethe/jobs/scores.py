"""Scores of a trained model on its records, beside those of a constant prediction; for the trainer only, covered by no guarantee.

training.py calls `score_lines` after a fit; whoever publishes these numbers releases more than the certificate covers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class ScoreLine(NamedTuple):
    """A metric on the records trained on, on those kept for a test (None: there are none), and of a constant prediction on the former."""

    name: str
    train: float
    test: float | None
    constant: float

    def formatted(self) -> str:
        """For a person, in a line."""
        numbers = [f"train {self.train:.4f}", *([] if self.test is None else [f"test {self.test:.4f}"]), f"a constant {self.constant:.4f}"]
        return f"    {self.name:<19} {', '.join(numbers)}"


def score_lines(estimator: Any, *sets: tuple[Any, npt.NDArray[Any]] | None) -> tuple[ScoreLine, ...]:
    """Those of a fitted estimator on (features, targets) to train on, and to test on, if any."""
    from sklearn.base import is_classifier  # needs the optional scikit-learn

    measure = _of_classes if is_classifier(estimator) else _of_numbers
    measured = [None if data_set is None else measure(estimator, *data_set) for data_set in sets]
    train, test = measured
    assert train is not None
    return tuple(ScoreLine(name, value, None if test is None else test[name][0], constant) for name, (value, constant) in train.items())


def _of_classes(estimator: Any, features: Any, targets: npt.NDArray[Any]) -> dict[str, tuple[float, float]]:
    from sklearn.metrics import log_loss, roc_auc_score

    classes = estimator.classes_
    shares = np.array([np.mean(targets == label) for label in classes])
    scores = {"accuracy": (float(estimator.score(features, targets)), float(shares.max()))}
    if len(classes) == 2 and 0.0 < shares[0] < 1.0:
        scores["AUC"] = float(roc_auc_score(targets == classes[1], estimator.decision_function(features))), 0.5
    if hasattr(estimator, "predict_proba"):
        constant = -float((shares[shares > 0.0] * np.log(shares[shares > 0.0])).sum())
        scores["log-loss"] = float(log_loss(targets, estimator.predict_proba(features), labels=classes)), constant
    return scores


def _of_numbers(estimator: Any, features: Any, targets: npt.NDArray[Any]) -> dict[str, tuple[float, float]]:
    positive_targets = targets
    if estimator.score_name == "D^2":  # as those trained on: of 0 or less it has no deviance
        positive_targets = np.maximum(targets, 2.0**-20 * estimator.target_range_[1])
    errors = np.abs(np.asarray(estimator.predict(features)) - targets)
    constant = float(np.mean(np.abs(targets - np.median(targets))))
    return {
        estimator.score_name: (float(estimator.score(features, positive_targets)), 0.0),
        "mean absolute error": (float(errors.mean()), constant),
    }
