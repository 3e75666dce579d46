"""A private linear support vector machine: the hinge with its corner rounded, which gives it the curvature that certificates need."""

from __future__ import annotations

from typing import Any

from lethe.calculus.domains import require_positive
from lethe.estimators.models.classifiers import PrivateClassifier
from lethe.run.losses import LinearLoss, OneVersusRest, SmoothedHinge


class LinearSVC(PrivateClassifier):
    r"""A linear classifier by margins.

    $$\min_w \sum_i w_i\,h(z_i\langle w, x_i\rangle) + \frac1{2C}\|w\|^2,\qquad z_i = \pm1,$$

    h the hinge, with a parabola where $|1 - zs| \le$ `width`.

    More than two classes: one against the rest for each, all in one loss, whose gradient is $\sqrt K$ times as long; objective
    perturbation is not possible then. There are no probabilities.

    Args:
        width: > 0, of half the rounded corner, in margins.
        epsilon, delta, allow_large_delta, C, classes, neighbours, mechanism, batches, passes, schedule, feature_norm, fit_intercept,
            max_weight, random_state, seed_noise: as `PrivateClassifier`.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        allow_large_delta: bool = False,
        C: float = 1.0,
        width: float = 0.5,
        classes: Any = None,
        neighbours: str = "replace_one",
        mechanism: str = "auto",
        batches: str = "auto",
        passes: int | str = "auto",
        schedule: str = "auto",
        feature_norm: float | str | None = "auto",
        fit_intercept: bool = True,
        max_weight: float = 1.0,
        random_state: Any = None,
        seed_noise: bool = False,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            allow_large_delta=allow_large_delta,
            C=C,
            classes=classes,
            neighbours=neighbours,
            mechanism=mechanism,
            batches=batches,
            passes=passes,
            schedule=schedule,
            feature_norm=feature_norm,
            fit_intercept=fit_intercept,
            max_weight=max_weight,
            random_state=random_state,
            seed_noise=seed_noise,
        )
        self.width = width

    def _loss(self, classes: int) -> LinearLoss:
        width = require_positive("width", self.width)
        return (
            SmoothedHinge(feature_norm=1.0, width=width) if classes == 2 else OneVersusRest(feature_norm=1.0, classes=classes, width=width)
        )
