"""Logistic regression: two classes, one score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import TwoClassLoss


class Logistic(TwoClassLoss):
    r"""$f(x) = \log(1 + e^{-z\langle u, x\rangle})$, $z = 2y - 1$ for the class $y \in \{0, 1\}$: $\|\nabla f\| \le R$, $M \le R^2/4$.

    In the score $s = \langle u, x\rangle$: $l' = \mathrm{sigmoid}(s) - y$, $l'' = \mathrm{sigmoid}(s)\,\mathrm{sigmoid}(-s) \le 1/4$.
    """

    summary: ClassVar[str] = "logistic regression"
    kind: ClassVar[str] = "logistic_regression"
    name: ClassVar[str] = "logistic"

    @property
    def curvature_bound(self) -> float:
        """1/4."""
        return 0.25

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """log(1 + exp(-zs)), without overflow."""
        return np.logaddexp(0.0, (1.0 - 2.0 * targets) * scores[:, 0])

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """-z sigmoid(-zs)."""
        signs = 2.0 * targets - 1.0
        return (-signs * special.expit(-signs * scores[:, 0]))[:, None]

    def envelope_smoothness(self, clip_norm: float) -> float:
        """C(R - C) for C up to R/2, else R^2/4."""
        if 2.0 * clip_norm >= self.row_norm:
            return self.curvature[1]
        return min(clip_norm * (self.row_norm - clip_norm) * (1.0 + 2.0**-50), self.curvature[1])

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """sigmoid(s) sigmoid(-s)."""
        return Curvatures(special.expit(scores) * special.expit(-scores))
