"""The smoothed hinge for more than two classes: one score a class, each told apart from all others, as a single loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lethe.calculus.domains import outside
from lethe.mechanisms.base import Array
from lethe.mechanisms.losses.linear_losses import LinearLoss, SmoothedHinge
from lethe.mechanisms.minimisers.curvature import Curvatures
from lethe.mechanisms.rows import class_targets

_UP = 1.0 + 2.0**-50


@dataclass(frozen=True, slots=True)
class OneVersusRest(LinearLoss):
    r"""$\sum_{j=1}^K h(z_js_j)$ with $z_j = 1$ for the record's own class, else -1, and h the smoothed hinge of `width`.

    The slope has K entries of at most 1, so $\|l'\| \le \sqrt K$, which is reached at s = 0: the price of K problems on the same data,
    as composition would have it. $l''$ is diagonal, with entries of at most $1/(2h)$.

    Args:
        classes: K >= 2.
        width: h > 0.
    """

    classes: int
    width: float = 0.5
    _hinge: SmoothedHinge = field(init=False, repr=False, compare=False, default_factory=SmoothedHinge)
    name: ClassVar[str] = "one-versus-rest smoothed hinge"
    one_sided: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.classes, bool) or not isinstance(self.classes, int) or not 2 <= self.classes <= 10_000:
            raise outside("classes", self.classes, "a whole number from 2 to 10000")
        object.__setattr__(self, "_hinge", SmoothedHinge(width=self.width))
        object.__setattr__(self, "width", self._hinge.width)

    @property
    def outputs(self) -> int:
        """K."""
        return self.classes

    @property
    def curvature_rank(self) -> int:
        """K."""
        return self.classes

    @property
    def slope_bound(self) -> float:
        """sqrt(K)."""
        return math.sqrt(self.classes) * _UP

    @property
    def curvature_bound(self) -> float:
        """1 / (2h)."""
        return self._hinge.curvature_bound

    @property
    def curvature_trace(self) -> float:
        """K / (2h)."""
        return self.classes * self._hinge.curvature_bound

    def check_targets(self, values: Any, count: int) -> Array:
        """Classes 0, ..., K - 1."""
        return class_targets(values, count=count, classes=self.classes).astype(np.float64)

    def values(self, scores: Array, targets: Array) -> Array:
        """The sum of the hinges."""
        return self._hinge.values(scores.reshape(-1, 1), self._own(targets)).reshape(scores.shape).sum(axis=1)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Of each hinge in its score."""
        return self._hinge.slopes(scores.reshape(-1, 1), self._own(targets)).reshape(scores.shape)

    def curvatures(self, scores: Array, targets: Array) -> Curvatures:
        """Diagonal."""
        each = self._hinge.curvatures(scores.reshape(-1, 1), self._own(targets))
        return Curvatures(each.diagonal.reshape(scores.shape))

    def _own(self, targets: Array) -> Array:
        """1 for the score of the record's own class, else 0, score after score, shape (nK,)."""
        return (targets[:, None] == np.arange(self.classes)).astype(np.float64).ravel()
