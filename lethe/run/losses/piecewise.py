"""Losses of quadratic and linear pieces: the hinge with a rounded corner, of two classes or one against all others; truncated squares.

A Run names one as `loss`; solvers of linear models call their values, slopes and curvatures. s is the score, y the target, h the half-width
of the rounded corner, R the bound on a record's features.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from lethe.calculus.domains import FloatArray
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import LinearLoss, ManyClassLoss, NumericLoss, TwoClassLoss, require_in_range


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

    Examples:
        >>> loss = lethe.losses.SmoothedHinge(feature_norm=1.0, width=0.5)
        >>> [round(value, 3) for value in loss.curvature]
        [0.0, 1.0]
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


class OneVersusRest(ManyClassLoss, HingeLoss):
    r"""$\sum_{j=1}^K h(1 - z_js_j)$, $z_j = 1$ for the record's own class, else -1: $\|\nabla f\| \le \sqrt K R$, $M \le R^2/(2h)$, convex.

    The slope has K entries of at most 1, so $\|l'\| \le \sqrt K$, which is reached at s = 0: the price of K problems on the same data, as
    composition would have it. $l''$ is diagonal, with entries of at most $1/(2h)$: each hinge has weights of its own.

    Args:
        classes: K from 2 to 10000.
        width: h > 0, in margins.
    """

    summary: ClassVar[str] = "one-versus-rest hinges, corners rounded"
    kind: ClassVar[str] = "one_versus_rest_hinge"
    name: ClassVar[str] = "one-versus-rest smoothed hinge"
    classes: int = Field(ge=2, le=10_000)  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]

    @property
    def slope_entries(self) -> int:
        """K."""
        return self.classes

    @property
    def curvature_trace(self) -> float:
        """K / (2h)."""
        return self.classes * self.curvature_bound

    @property
    def curvature_rank(self) -> int:
        """K."""
        return self.classes

    def as_recorded(self) -> Self:
        """This loss itself: its bounds depend on K."""
        return self

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """The sum of the hinges."""
        return self._hinge(1.0 - self._signs(targets) * scores).sum(axis=1)

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """The derivative of each hinge in its score."""
        signs = self._signs(targets)
        return -signs * self._share(1.0 - signs * scores)

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """Diagonal."""
        return Curvatures(self._bend(1.0 - self._signs(targets) * scores))

    def _signs(self, targets: FloatArray) -> FloatArray:
        """1 for the score of the record's own class, else -1, shape (n, K)."""
        return np.where(targets[:, None] == np.arange(self.classes), 1.0, -1.0)


class LeastSquares(NumericLoss):
    r"""Squared error, $r^2/2$ for $r = \langle u, x\rangle - y$ within $\pm B$, its tangent outside: $\|\nabla f\| \le RB$, $M \le R^2$.

    In the score: $l'$ is the residual truncated at $\pm B$, $l''$ is 1 inside and 0 outside.

    Args:
        residual_bound: B > 0, in target units.

    Examples:
        >>> loss = lethe.losses.LeastSquares(feature_norm=1.0, residual_bound=3.0)
        >>> [round(value, 3) for value in (loss.known_gradient_bound, *loss.curvature)]
        [3.0, 0.0, 1.0]
    """

    quadratic_pieces: ClassVar[bool] = True
    summary: ClassVar[str] = "least squares, truncated residual"
    kind: ClassVar[str] = "least_squares"
    name: ClassVar[str] = "Huber"
    residual_bound: float = Field(gt=0)

    @property
    def slope_scale(self) -> float:
        """B."""
        return self.residual_bound

    @property
    def curvature_bound(self) -> float:
        """1."""
        return 1.0

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """The square inside, the tangent outside."""
        residuals = scores[:, 0] - targets
        slopes = np.clip(residuals, -self.residual_bound, self.residual_bound)
        return slopes * (residuals - 0.5 * slopes)

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """The truncated residual."""
        return np.clip(scores[:, 0] - targets, -self.residual_bound, self.residual_bound)[:, None]

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """1 inside, 0 outside."""
        return Curvatures((np.abs(scores[:, 0] - targets) < self.residual_bound)[:, None].astype(np.float64))

    def decide(self, scores: FloatArray) -> np.ndarray[Any, np.dtype[Any]]:
        """The score itself."""
        return scores[:, 0]


class Huber(LeastSquares):
    """Huber's loss: the same function as `LeastSquares`, for runs that mean its linear part and not a bound on residuals of squares.

    Args:
        residual_bound: B > 0, in target units, where the loss turns from a square into a line.

    Examples:
        >>> loss = lethe.losses.Huber(feature_norm=1.0, residual_bound=3.0)
        >>> [round(value, 3) for value in (loss.known_gradient_bound, *loss.curvature)]
        [3.0, 0.0, 1.0]
    """

    summary: ClassVar[str] = "Huber regression"
    kind: ClassVar[str] = "huber"
