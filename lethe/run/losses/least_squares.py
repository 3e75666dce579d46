"""Least squares whose residuals are truncated, so that gradients are bounded whatever the targets are, under two names."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import LinearLoss
from lethe.run.losses.targets import real_targets


class LeastSquares(LinearLoss):
    r"""Squared error, $r^2/2$ for $r = \langle u, x\rangle - y$ within $\pm B$, its tangent outside: $\|\nabla f\| \le RB$, $M \le R^2$.

    In the score: $l'$ is the residual truncated at $\pm B$, $l''$ is 1 inside and 0 outside.

    Args:
        residual_bound: B > 0, in target units.
    """

    scalar: ClassVar[bool] = True
    one_sided: ClassVar[bool] = False
    numeric_targets: ClassVar[bool] = True
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

    @property
    def target_classes(self) -> None:
        """None: targets are numbers."""
        return None

    def for_classes(self, classes: int | None) -> Self:
        """This loss itself, which has no classes."""
        if classes is not None:
            raise InputError(
                f"classes: got {classes!r}; least squares has none.", remedy="leave classes out, or choose softmax_regression."
            )
        return self

    def check_targets(self, values: Any, count: int) -> FloatArray:
        """Any finite numbers."""
        return real_targets(values, count=count)

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
    """

    summary: ClassVar[str] = "Huber regression"
    kind: ClassVar[str] = "huber"
