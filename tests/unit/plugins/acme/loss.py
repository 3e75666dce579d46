"""A loss: the square root that grows like a line."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import LinearLoss
from lethe.run.losses.targets import real_targets


class PseudoHuber(LinearLoss):
    r"""$l = \sqrt{1 + r^2} - 1$ for $r = \langle u, x\rangle - y$: $|l'| < 1$ and $0 < l'' \le 1$."""

    kind: ClassVar[str] = "acme_pseudo_huber"
    summary: ClassVar[str] = "pseudo-Huber regression"
    name: ClassVar[str] = "pseudo-Huber"
    scalar: ClassVar[bool] = True
    one_sided: ClassVar[bool] = False
    numeric_targets: ClassVar[bool] = True

    @property
    def curvature_bound(self) -> float:
        return 1.0

    @property
    def target_classes(self) -> None:
        return None

    def for_classes(self, classes: int | None) -> Self:
        return self

    def check_targets(self, values: Any, count: int) -> FloatArray:
        return real_targets(values, count=count)

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        return np.hypot(1.0, scores[:, 0] - targets) - 1.0

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        residuals = scores[:, 0] - targets
        return (residuals / np.hypot(1.0, residuals))[:, None]

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        return Curvatures(np.hypot(1.0, scores[:, 0] - targets)[:, None] ** -3.0)

    def decide(self, scores: FloatArray) -> np.ndarray[Any, np.dtype[Any]]:
        return scores[:, 0]
