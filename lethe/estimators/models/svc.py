"""A private linear support vector machine: the hinge with its corner rounded, which gives it the curvature that certificates need."""

from __future__ import annotations

from lethe.calculus.domains import require_positive
from lethe.estimators.models.classifiers import PrivateClassifier
from lethe.run.losses import OneVersusRest, SmoothedHinge
from lethe.run.losses.linear import LinearLoss


class LinearSVC(PrivateClassifier):
    r"""A linear classifier by margins.

    $$\min_w \sum_i w_i\,h(z_i\langle w, x_i\rangle) + \frac1{2C}\|w\|^2,\qquad z_i = \pm1,$$

    h the hinge, with a parabola where $|1 - zs| \le$ `width`.

    More than two classes: one against the rest for each, all in one loss, whose gradient is $\sqrt K$ times as long; objective
    perturbation is not possible then. There are no probabilities.

    Args:
        width: > 0, of half the rounded corner, in margins.
    """

    width: float = 0.5

    def _loss(self, classes: int) -> LinearLoss:
        width = require_positive("width", self.width)
        return (
            SmoothedHinge(feature_norm=1.0, width=width) if classes == 2 else OneVersusRest(feature_norm=1.0, classes=classes, width=width)
        )
