"""Validation decay, a noise policy: less noise once accuracy on public records stops rising (Yu et al. 2019)."""

from __future__ import annotations

from typing import Any

import torch

from lethe.calculus.domains import outside, require_positive, require_probability
from lethe.errors import InputError
from lethe.run.losses import LeastSquares
from lethe.run.losses.base import Loss
from lethe.run.losses.linear import require_linear_loss
from lethe.train.core.budgeted_noise import Observed
from lethe.train.linear.models import prepare_features, prepare_targets


class ValidationDecay:
    r"""Validation-driven decay: less noise once the model stops getting better.

    After every `period` passes, with $S_e$ the mean accuracy of the last `window` passes: if $S_e - S_{e-1} < $ `threshold`, then
    $z \leftarrow k z$; $S_0 = 0$. The noise is constant in between.

    The validation records must be PUBLIC: they are looked at once a pass without any noise, and no certificate covers them. Accuracy on
    records that are private, those being trained on included, would leak through the noise levels it chooses.

    One object serves one run after the other: it starts again at step 1.

    Args:
        features: public, shape (m, d).
        targets: public class numbers, shape (m,).
        loss: the run's loss, one of classes.
        classes: their public number, as for `Linear`.
        first: z of the first passes.
        factor: k in (0, 1].
        period: passes between two checks.
        window: passes whose accuracy is averaged, at most `period`.
        threshold: the gain in accuracy that counts as progress, in [0, 1].
    Raises:
        InputError: an argument is outside its range, or the data do not fit the loss. The policy itself: another number of features.
    Reference: Yu et al. 2019, arXiv:1904.02200 (validation-based decay).
    """

    def __init__(
        self,
        features: Any,
        targets: Any,
        *,
        loss: Loss,
        classes: int | None = None,
        first: float = 10.0,
        factor: float = 0.8,
        period: int = 10,
        window: int = 5,
        threshold: float = 0.01,
    ) -> None:
        known = require_linear_loss(loss)
        if isinstance(known, LeastSquares):
            raise InputError(f"loss.kind: got {known.kind}; validation accuracy needs classes.", remedy="use scheduled.")
        cpu = torch.device("cpu")
        self._rows = prepare_features(
            features, feature_norm=known.feature_norm, intercept=known.intercept, dtype=torch.float64, device=cpu
        ).rows
        known = known.for_classes(classes)
        self._targets = prepare_targets(targets, classes=known.target_classes, records=len(self._rows), device=cpu).squeeze(1).numpy()
        self._loss = known
        self._first = require_positive("first", first)
        self._factor = require_probability("factor", require_positive("factor", factor))
        self._period = _whole("period", period)
        self._window = _whole("window", window)
        if self._window > self._period:
            raise outside("window", window, f"an integer in 1..{self._period} (period)")
        self._threshold = require_probability("threshold", threshold)
        self._begin()

    def _begin(self) -> None:
        self._multiplier = self._first
        self._previous = 0.0
        self._accuracies: list[float] = []

    def __call__(self, observed: Observed) -> float:
        """The noise multiplier of the next step."""
        if observed.step == 1:
            self._begin()
        elif (observed.step - 1) % observed.steps_per_pass == 0:
            self._accuracies.append(self._accuracy(observed))
            if len(self._accuracies) % self._period == 0:
                mean = sum(self._accuracies[-self._window :]) / self._window
                if mean - self._previous < self._threshold:
                    self._multiplier *= self._factor
                self._previous = mean
        return self._multiplier

    def _accuracy(self, observed: Observed) -> float:
        parameters = torch.from_numpy(observed.parameters)
        if parameters.ndim != 2 or len(parameters) != self._rows.shape[1]:
            raise InputError(
                f"noise_policy: the validation features have {self._rows.shape[1]} columns (a constant one included); "
                f"the model has parameters of shape {tuple(parameters.shape)}.",
                remedy="give validation records with the features that are trained on; for a network write a policy of your own.",
            )
        return float((self._loss.decide((self._rows @ parameters).numpy()) == self._targets).mean())


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise outside(name, value, "an integer >= 1")
    return value
