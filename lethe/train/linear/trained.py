"""What training returns: the weights, the run that was executed, and what happened to the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lethe.calculus.composition.odometer import Odometer
from lethe.certificates.training_record import TrainingRecord
from lethe.errors import InputError
from lethe.run.losses import LinearLoss
from lethe.run.run import Run
from lethe.train.linear.features import prepare_features
from lethe.train.linear.links import linear_loss, link_of
from lethe.train.linear.targets import prepare_targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the trainer did with the data. It is for whoever holds the data: `projected` is private, no certificate covers it.

    Args:
        records: rows of the data.
        projected: rows whose features were longer than the bound and were projected on it.
        steps: executed.
        left_over: records that a pass of fixed batches leaves out (the same ones every pass, except for shuffled batches).
        spent: the most zCDP budget that any record has spent of the run's noise_budget; None without one. The guarantee of the run is
            the budget, not this number: where training stopped may itself depend on what was released.
        odometer: what this number is good for all the same: `odometer.epsilon(spent, delta)` bounds the privacy loss with probability
            at least 1 - delta, for a delta fixed before training. None of a seeded run, of which nothing is bounded.
    """

    records: int
    projected: int
    steps: int
    left_over: int
    spent: float | None = None
    odometer: Odometer | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A trained linear model.

    Only `weights` and `intercept` are what a last-iterate certificate of `run` covers. Whatever is computed from private data besides
    (accuracy, mean loss, the report) is not: publish it only of data that may be published.

    Args:
        weights: shape (d, k): k classes for losses of many classes, else k = 1.
        intercept: shape (k,); zeros if the model has none.
        classes: their number, None where targets are numbers.
        run: the run that was executed, as recorded.
        record: what this training vouches for: `lethe.certify(trained, delta)` certifies and seals it.
        report: what happened to the data.
    """

    weights: npt.NDArray[np.float64]
    intercept: npt.NDArray[np.float64]
    classes: int | None
    run: Run
    record: TrainingRecord
    report: Report

    def predict(self, features: Any) -> npt.NDArray[Any]:
        """The class number, or the value, for each row of `features`, shape (n, d); rows are projected as in training.

        Raises:
            InputError: not a table of finite numbers with d columns.
        """
        return self._loss.decide(self._scores(features).numpy())

    def accuracy(self, features: Any, targets: Any) -> float:
        """The share of rows whose class is predicted, in [0, 1].

        Raises:
            InputError: as `predict`, targets that are no class numbers, or a model without classes.
        """
        if self.classes is None:
            raise InputError("accuracy: least squares predicts numbers, not classes.", remedy="use mean_loss.")
        predicted = torch.from_numpy(self.predict(features))
        return float((predicted == self._targets(targets, len(predicted)).squeeze(1)).to(torch.float64).mean())

    def mean_loss(self, features: Any, targets: Any) -> float:
        """The mean of the records' losses, without the regulariser.

        Raises:
            InputError: as `predict`, or targets of another kind than the model's.
        """
        scores = self._scores(features)
        return float(link_of(self._loss).losses(scores, self._targets(targets, len(scores))).mean())

    @property
    def score_name(self) -> str:
        """What `score` measures: "accuracy" of a classifier (larger is better), else "mean truncated loss" (smaller is better)."""
        return "mean truncated loss" if self.classes is None else "accuracy"

    def score(self, features: Any, targets: Any) -> float:
        """`accuracy` for models with classes, `mean_loss` for least squares; `score_name` says which.

        Raises:
            InputError: as these.
        """
        return self.mean_loss(features, targets) if self.classes is None else self.accuracy(features, targets)

    @property
    def _loss(self) -> LinearLoss:
        loss = linear_loss(self.run.loss)
        return loss if self.classes is None else loss.for_classes(self.classes)

    def _scores(self, features: Any) -> torch.Tensor:
        norm = linear_loss(self.run.loss).feature_norm
        rows = prepare_features(features, feature_norm=norm, intercept=False, dtype=torch.float64, device=torch.device("cpu")).rows
        if rows.shape[1] != len(self.weights):
            raise InputError(f"features: got {rows.shape[1]} columns; the model was trained on {len(self.weights)}.")
        return rows @ torch.tensor(self.weights) + torch.tensor(self.intercept)

    def _targets(self, targets: Any, records: int) -> torch.Tensor:
        return prepare_targets(targets, classes=self.classes, records=records, dtype=torch.float64, device=torch.device("cpu"))
