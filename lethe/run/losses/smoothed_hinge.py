"""The hinge of a support vector machine with a rounded corner."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from lethe.calculus.domains import FloatArray
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import LinearLoss, TwoClassLoss, require_in_range


class HingeLoss(LinearLoss):
    r"""Sums of $h(m) = \max(0, m)$ with its corner replaced by a parabola where $|m| \le h$: slope in [0, 1], curvature $1/(2h)$.

    Args:
        width: h > 0, in margins.
    """

    quadratic_pieces: ClassVar[bool] = True
    width: float = Field(gt=0)

    @model_validator(mode="after")
    def _of_a_width(self) -> HingeLoss:
        require_in_range("width", self.width)
        return self

    @property
    def curvature_bound(self) -> float:
        """1 / (2h)."""
        return 0.5 / self.width * (1.0 + 2.0**-50)

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, R^2/(2h))."""
        return 0.0, self.squared_feature_norm / (2 * self.width) * (1 + 2**-51)

    def _hinge(self, short: FloatArray) -> FloatArray:
        """0, (h + m)^2 / (4h), or m, for margins m short of 1."""
        # The parabola is taken where it belongs only: far outside its square would overflow.
        inside = np.square(np.clip(short, -self.width, self.width) + self.width) / (4.0 * self.width)
        return np.where(short > self.width, short, inside)

    def _share(self, short: FloatArray) -> FloatArray:
        """The share of the corner that is passed: the hinge's slope."""
        return np.clip((short + self.width) / (2.0 * self.width), 0.0, 1.0)

    def _bend(self, short: FloatArray) -> FloatArray:
        """1 / (2h) inside the corner."""
        return (np.abs(short) < self.width) / (2.0 * self.width)


class SmoothedHinge(HingeLoss, TwoClassLoss):
    r"""$\max(0, 1 - zs)$ with $z = 2y - 1$ for the class $y \in \{0, 1\}$, corner rounded: $\|\nabla f\| \le R$, $M \le R^2/(2h)$, convex.

    Args:
        width: h > 0, in margins.
    Reference: Chaudhuri, Monteleoni, Sarwate 2011, arXiv:0912.0071, Section 3.4.2.
    """

    summary: ClassVar[str] = "hinge, corner rounded"
    kind: ClassVar[str] = "smoothed_hinge"
    name: ClassVar[str] = "smoothed hinge"

    def _short(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """1 - zs: by how much the margin is missed."""
        return 1.0 - (2.0 * targets - 1.0) * scores[:, 0]

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """0, (1 + h - zs)^2 / (4h), or 1 - zs."""
        return self._hinge(self._short(scores, targets))

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """-z times the share of the corner that is passed."""
        return ((1.0 - 2.0 * targets) * self._share(self._short(scores, targets)))[:, None]

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """1 / (2h) inside the corner."""
        return Curvatures(self._bend(self._short(scores, targets))[:, None])
