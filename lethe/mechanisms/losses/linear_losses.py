r"""Losses of linear models, $f_i(W) = l(W^\top u_i, y_i)$: values, slopes and curvatures in the scores, with public bounds on each.

With $\|u\| \le R$ the gradient $u\,l'^\top$ has norm at most $R\,\|l'\|$, and the Hessian $uu^\top \otimes l''$ has no eigenvalue above
$R^2\|l''\|$; both bounds hold for every target.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from lethe.calculus.domains import outside, require_positive
from lethe.mechanisms.base import Array
from lethe.mechanisms.minimisers.curvature import Curvatures
from lethe.mechanisms.rows import class_targets, real_targets

_UP = 1.0 + 2.0**-50


class LinearLoss(ABC):
    r"""A convex loss of a linear model with k scores and a Lipschitz slope.

    `slope_bound`: $\|l'\| \le$ it. `curvature_bound`: every eigenvalue of $l''$ is at most it. `curvature_trace`: so is their sum.
    `one_sided`: for a fixed record the slope never changes its sign.
    """

    name: ClassVar[str]
    one_sided: ClassVar[bool]

    @property
    def outputs(self) -> int:
        """k, the scores of one record."""
        return 1

    @property
    def curvature_rank(self) -> int:
        """Of $l''$."""
        return 1

    @property
    @abstractmethod
    def slope_bound(self) -> float:
        """The largest norm of $l'$."""

    @property
    @abstractmethod
    def curvature_bound(self) -> float:
        """The largest eigenvalue of $l''$."""

    @property
    def curvature_trace(self) -> float:
        """The largest trace of $l''$."""
        return self.curvature_bound

    @abstractmethod
    def check_targets(self, values: Any, count: int) -> Array:
        """Targets as the other methods take them, shape (n,); InputError for any that the loss does not know."""

    @abstractmethod
    def values(self, scores: Array, targets: Array) -> Array:
        """l, shape (n,), for scores of shape (n, k)."""

    @abstractmethod
    def slopes(self, scores: Array, targets: Array) -> Array:
        """$l'$, shape (n, k)."""

    @abstractmethod
    def curvatures(self, scores: Array, targets: Array) -> Curvatures:
        """$l''$ of every record."""

    def gradient_bound(self, norm: float) -> float:
        r"""$G = R\,\|l'\|$, rounded up."""
        return norm * self.slope_bound * _UP

    def smoothness(self, norm: float) -> float:
        r"""$\beta = R^2\|l''\|$, rounded up."""
        return norm * norm * self.curvature_bound * _UP


@dataclass(frozen=True, slots=True)
class Logistic(LinearLoss):
    r"""$\log(1 + e^{-zs})$ with $z = 2y - 1$ for the class $y \in \{0, 1\}$: $l' = \mathrm{sigmoid}(s) - y$, $l'' \le 1/4$."""

    name: ClassVar[str] = "logistic"
    one_sided: ClassVar[bool] = True
    slope_bound: ClassVar[float] = 1.0  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]
    curvature_bound: ClassVar[float] = 0.25  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def check_targets(self, values: Any, count: int) -> Array:
        """Classes 0 and 1."""
        return class_targets(values, count=count, classes=2).astype(np.float64)

    def values(self, scores: Array, targets: Array) -> Array:
        """log(1 + exp(-zs)), without overflow."""
        return np.logaddexp(0.0, (1.0 - 2.0 * targets) * scores[:, 0])

    def slopes(self, scores: Array, targets: Array) -> Array:
        """-z sigmoid(-zs)."""
        signs = 2.0 * targets - 1.0
        return (-signs * special.expit(-signs * scores[:, 0]))[:, None]

    def curvatures(self, scores: Array, targets: Array) -> Curvatures:
        """sigmoid(s) sigmoid(-s)."""
        return Curvatures(special.expit(scores) * special.expit(-scores))


@dataclass(frozen=True, slots=True)
class Softmax(LinearLoss):
    r"""$-\log\mathrm{softmax}(s)_y$: $l' = p - e_y$ of norm at most $\sqrt2$; $l'' = \mathrm{diag}\,p - pp^\top$ of rank $K - 1$ and
    trace $1 - \sum p_j^2 \le 1 - 1/K$, with no eigenvalue above 1/2.

    Args:
        classes: K >= 2.
    """

    classes: int
    name: ClassVar[str] = "softmax"
    one_sided: ClassVar[bool] = True
    slope_bound: ClassVar[float] = math.sqrt(2.0) * _UP  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]
    curvature_bound: ClassVar[float] = 0.5  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __post_init__(self) -> None:
        if isinstance(self.classes, bool) or not isinstance(self.classes, int) or not 2 <= self.classes <= 10_000:
            raise outside("classes", self.classes, "a whole number from 2 to 10000")

    @property
    def outputs(self) -> int:
        """K."""
        return self.classes

    @property
    def curvature_rank(self) -> int:
        """K - 1: a common shift of the scores changes nothing."""
        return self.classes - 1

    @property
    def curvature_trace(self) -> float:
        """1 - 1/K."""
        return 1.0 - 1.0 / self.classes

    def check_targets(self, values: Any, count: int) -> Array:
        """Classes 0, ..., K - 1."""
        return class_targets(values, count=count, classes=self.classes).astype(np.float64)

    def values(self, scores: Array, targets: Array) -> Array:
        """Cross-entropy."""
        return special.logsumexp(scores, axis=1) - scores[np.arange(len(scores)), targets.astype(np.intp)]

    def slopes(self, scores: Array, targets: Array) -> Array:
        """softmax(s) - e_y."""
        slopes = special.softmax(scores, axis=1)
        slopes[np.arange(len(scores)), targets.astype(np.intp)] -= 1.0
        return slopes

    def curvatures(self, scores: Array, targets: Array) -> Curvatures:
        """diag(p) - p p^T."""
        shares = special.softmax(scores, axis=1)
        return Curvatures(shares, ((np.full(len(shares), -1.0), shares),))


@dataclass(frozen=True, slots=True)
class SmoothedHinge(LinearLoss):
    r"""The hinge $\max(0, 1 - zs)$, its corner replaced by a parabola where $|1 - zs| \le h$: slope in [-1, 0], curvature $1/(2h)$.

    Args:
        width: h > 0.
    Reference: Chaudhuri, Monteleoni, Sarwate 2011, arXiv:0912.0071, Section 3.4.2.
    """

    width: float = 0.5
    name: ClassVar[str] = "smoothed hinge"
    one_sided: ClassVar[bool] = True
    slope_bound: ClassVar[float] = 1.0  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", require_positive("width", self.width))

    @property
    def curvature_bound(self) -> float:
        """1 / (2h)."""
        return 0.5 / self.width * _UP

    def check_targets(self, values: Any, count: int) -> Array:
        """Classes 0 and 1."""
        return class_targets(values, count=count, classes=2).astype(np.float64)

    def _short(self, scores: Array, targets: Array) -> Array:
        """1 - zs: by how much the margin is missed."""
        return 1.0 - (2.0 * targets - 1.0) * scores[:, 0]

    def values(self, scores: Array, targets: Array) -> Array:
        """0, (1 + h - zs)^2 / (4h), or 1 - zs."""
        short = self._short(scores, targets)
        # The parabola is taken where it belongs only: far outside its square would overflow.
        inside = np.square(np.clip(short, -self.width, self.width) + self.width) / (4.0 * self.width)
        return np.where(short > self.width, short, inside)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """-z times the share of the corner that is passed."""
        share = np.clip((self._short(scores, targets) + self.width) / (2.0 * self.width), 0.0, 1.0)
        return ((1.0 - 2.0 * targets) * share)[:, None]

    def curvatures(self, scores: Array, targets: Array) -> Curvatures:
        """1 / (2h) inside the corner."""
        return Curvatures((np.abs(self._short(scores, targets)) < self.width)[:, None] / (2.0 * self.width))


@dataclass(frozen=True, slots=True)
class Huber(LinearLoss):
    r"""$r^2/2$ for a residual $r = s - y$ within $\pm B$, and its tangent outside: slope $r$ truncated at $\pm B$, curvature at most 1.

    Args:
        residual_bound: B > 0, in target units.
    """

    residual_bound: float
    name: ClassVar[str] = "Huber"
    one_sided: ClassVar[bool] = False
    curvature_bound: ClassVar[float] = 1.0  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __post_init__(self) -> None:
        object.__setattr__(self, "residual_bound", require_positive("residual_bound", self.residual_bound))

    @property
    def slope_bound(self) -> float:
        """B."""
        return self.residual_bound

    def check_targets(self, values: Any, count: int) -> Array:
        """Any finite numbers."""
        return real_targets(values, count=count)

    def values(self, scores: Array, targets: Array) -> Array:
        """The square inside, the tangent outside."""
        residuals = scores[:, 0] - targets
        slopes = np.clip(residuals, -self.residual_bound, self.residual_bound)
        return slopes * (residuals - 0.5 * slopes)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """The truncated residual."""
        return np.clip(scores[:, 0] - targets, -self.residual_bound, self.residual_bound)[:, None]

    def curvatures(self, scores: Array, targets: Array) -> Curvatures:
        """1 inside, 0 outside."""
        return Curvatures((np.abs(scores[:, 0] - targets) < self.residual_bound)[:, None].astype(np.float64))


def require_linear_loss(loss: object) -> LinearLoss:
    """`loss` itself, or InputError."""
    if not isinstance(loss, LinearLoss):
        raise outside("loss", loss, "Logistic(), Softmax(classes), SmoothedHinge(width) or Huber(residual_bound)")
    return loss
