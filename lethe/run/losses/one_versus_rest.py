"""The smoothed hinge for more than two classes: one score a class, each told apart from all others, as a single loss."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from pydantic import Field

from lethe.calculus.domains import FloatArray
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import ManyClassLoss
from lethe.run.losses.smoothed_hinge import HingeLoss


class OneVersusRest(ManyClassLoss, HingeLoss):
    r"""$\sum_{j=1}^K h(1 - z_js_j)$, $z_j = 1$ for the record's own class, else -1: $\|\nabla f\| \le \sqrt K R$, $M \le R^2/(2h)$, convex.

    The slope has K entries of at most 1, so $\|l'\| \le \sqrt K$, which is reached at s = 0: the price of K problems on the same data, as
    composition would have it. $l''$ is diagonal, with entries of at most $1/(2h)$: each hinge has weights of its own, so curvatures do
    not add up.

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
