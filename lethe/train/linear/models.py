"""Linear and LinearPredictor: the description of a linear model that is to be trained, and the trained model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lethe.errors import InputError
from lethe.run.losses.linear import LinearLoss
from lethe.train.fitted import ModelDescription
from lethe.train.linear.features import prepare_features, prepare_targets
from lethe.train.linear.gradients import losses_of

_CPU = torch.device("cpu")
_DTYPES = {"float64": torch.float64, "float32": torch.float32}


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
        rows = parameters.to(device="cpu", dtype=torch.float64, copy=True).numpy()
        weights, intercept = (rows[:-1], rows[-1]) if loss.intercept else (rows, np.zeros(rows.shape[1]))
        return cls(weights=weights, intercept=intercept, loss=loss)

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
        predicted = self.predict(features)
        return float((predicted == self._targets(targets, len(predicted)).numpy()[:, 0]).mean())

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear(ModelDescription[LinearPredictor]):
    """A linear model of features, whose loss is the run's: any `lethe.losses.LinearLoss`.

    Args:
        classes: the public number of classes, never read off the data; needed for softmax regression, cut or not, unless the loss says it.
        initial: $x_0$, shape (d, k), or (d + 1, k) with the intercept's row last; must not depend on the data. None: zeros.
        dtype: "float64" or "float32", of the stored features and of the released model; the arithmetic is in float64.
        device: where the arithmetic is done, such as "cpu" or "cuda".
    """

    classes: int | None = None
    initial: Any = None
    dtype: str | torch.dtype = "float64"
    device: str | torch.device = "cpu"

    def arithmetic(self) -> tuple[torch.dtype, torch.device]:
        """The dtype of what is stored, and the device; InputError for another type, or a device that cannot be used."""
        chosen = _DTYPES.get(str(self.dtype).removeprefix("torch."))
        if chosen is None:
            raise InputError(f"dtype: got {self.dtype!r}; it needs float64 or float32: coarser noise is not Gaussian.")
        try:
            place = torch.device(self.device)
            torch.zeros(1, device=place).item()  # a device that holds no numbers, such as meta, is refused here
        except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
            raise InputError(
                f"device: got {self.device!r}; it cannot be used: {str(error).splitlines()[0]}", remedy='use "cpu".'
            ) from error
        return chosen, place
