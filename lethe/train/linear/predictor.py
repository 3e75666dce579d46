"""LinearPredictor: a trained linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lethe.errors import InputError
from lethe.run.losses import LinearLoss
from lethe.train.linear.features import prepare_features, prepare_targets
from lethe.train.linear.gradients import losses_of

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearPredictor:
    """A linear model of features that are projected as in training.

    Args:
        weights: shape (d, k): k classes for losses of many classes, else k = 1.
        intercept: shape (k,); zeros if the model has none.
        loss: that it was trained by, with the number of its classes.
    """

    weights: npt.NDArray[np.float64]
    intercept: npt.NDArray[np.float64]
    loss: LinearLoss

    @classmethod
    def of(cls, parameters: torch.Tensor, loss: LinearLoss) -> LinearPredictor:
        """The model of what the loop returns: shape (d, k), or (d + 1, k) with the intercept's row last."""
        rows = parameters.to(device="cpu", dtype=torch.float64).numpy()
        if loss.intercept:
            return cls(weights=rows[:-1].copy(), intercept=rows[-1].copy(), loss=loss)
        return cls(weights=rows.copy(), intercept=np.zeros(rows.shape[1]), loss=loss)

    @property
    def classes(self) -> int | None:
        """Their number, None where targets are numbers."""
        return self.loss.target_classes

    def predict(self, features: Any) -> npt.NDArray[Any]:
        """The class number, or the value, for each row of `features`, shape (n, d), projected as in training; InputError for others."""
        return self.loss.decide(self._scores(features).numpy())

    def accuracy(self, features: Any, targets: Any) -> float:
        """The share of rows whose class is predicted, in [0, 1]; InputError for a model without classes."""
        if self.classes is None:
            raise InputError("accuracy: least squares predicts numbers, not classes.", remedy="use mean_loss.")
        predicted = torch.from_numpy(self.predict(features))
        return float((predicted == self._targets(targets, len(predicted)).squeeze(1)).to(torch.float64).mean())

    def mean_loss(self, features: Any, targets: Any) -> float:
        """The mean of the records' losses, without the regulariser."""
        scores = self._scores(features)
        return float(losses_of(self.loss, scores, self._targets(targets, len(scores))).mean())

    @property
    def score_name(self) -> str:
        """What `score` measures: "accuracy" of a classifier (larger is better), else "mean truncated loss" (smaller is better)."""
        return "mean truncated loss" if self.classes is None else "accuracy"

    def score(self, features: Any, targets: Any) -> float:
        """`accuracy` for models with classes, `mean_loss` for least squares; `score_name` says which."""
        return self.mean_loss(features, targets) if self.classes is None else self.accuracy(features, targets)

    def _scores(self, features: Any) -> torch.Tensor:
        rows = prepare_features(features, feature_norm=self.loss.feature_norm, intercept=False, dtype=torch.float64, device=_CPU).rows
        if rows.shape[1] != len(self.weights):
            raise InputError(f"features: got {rows.shape[1]} columns; the model was trained on {len(self.weights)}.")
        return rows @ torch.tensor(self.weights) + torch.tensor(self.intercept)

    def _targets(self, targets: Any, records: int) -> torch.Tensor:
        return prepare_targets(targets, classes=self.classes, records=records, device=_CPU)
