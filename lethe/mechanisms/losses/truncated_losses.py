r"""Losses whose slope is cut: logistic and softmax regression that go on linearly where a record's own class has little probability.

With the margin $m = s_y - \log\sum_{j\ne y}e^{s_j}$ and $r = 1 - p_y = 1/(1 + e^m)$ both losses are $\varphi(m) = \log(1 + e^{-m})$, of
slope $-r$. The cut loss is $\varphi_c(m)$ with $\varphi_c' = -\min(r, c)$.

Lemma. $\varphi_c(m(s))$ is convex and continuously differentiable; its gradient has norm at most $\sqrt2\,c$, or c for one score, and its
Hessian, where it exists, no eigenvalue above 1/2, or 1/4, and a trace of at most $1 - 1/K$. Proof: m is concave and $\varphi_c$ convex
and falling. The gradient is $-\min(r, c)\nabla m$, $\nabla m = e_y - q$ with q the softmax of the others, and
$\|\nabla m\|^2 = 1 + \|q\|^2 \le 2$. Where $r < c$ the Hessian is that of the loss. Elsewhere it is $c\,(\mathrm{diag}\,q - qq^\top)$, of
eigenvalues of at most $c/2$ (Popoviciu) and whose trace is $c(1 - \|q\|^2) \le 1 - 1/K$; for one score it is 0. The gradient is
continuous, so the bounds on the Hessian bound its differences.

The early steps of a regression move alike with and without the cut, and noise is a share c of what it was. The price: a probability is
overstated, since records far on the wrong side pull less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from lethe.calculus.domains import as_number, outside
from lethe.mechanisms.base import Array
from lethe.mechanisms.losses.linear_losses import LinearLoss, Logistic, Softmax
from lethe.mechanisms.minimisers.curvature import Curvatures

_UP = 1.0 + 2.0**-50


@dataclass(frozen=True, slots=True)
class TruncatedLogistic(LinearLoss):
    r"""$\varphi_c(zs)$ with $z = 2y - 1$ for the class $y \in \{0, 1\}$: $|l'| \le c$, $l'' \le 1/4$.

    Args:
        cut: c in (0, 1].
    """

    cut: float
    name: ClassVar[str] = "truncated logistic"
    one_sided: ClassVar[bool] = True
    curvature_bound: ClassVar[float] = 0.25  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __post_init__(self) -> None:
        object.__setattr__(self, "cut", _require_cut(self.cut))

    @property
    def slope_bound(self) -> float:
        """c."""
        return self.cut

    def check_targets(self, values: Any, count: int) -> Array:
        """Classes 0 and 1."""
        return Logistic().check_targets(values, count)

    def values(self, scores: Array, targets: Array) -> Array:
        """The loss of the margin zs."""
        return _values((2.0 * targets - 1.0) * scores[:, 0], self.cut)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """-z min(sigmoid(-zs), c)."""
        signs = 2.0 * targets - 1.0
        return (-signs * np.minimum(special.expit(-signs * scores[:, 0]), self.cut))[:, None]

    def curvatures(self, scores: Array, targets: Array) -> Curvatures:
        """sigmoid(s) sigmoid(-s), or 0 where the slope is cut."""
        missing = special.expit((1.0 - 2.0 * targets) * scores[:, 0])
        return Curvatures(np.where(missing >= self.cut, 0.0, missing * (1.0 - missing))[:, None])


@dataclass(frozen=True, slots=True)
class TruncatedSoftmax(LinearLoss):
    r"""$\varphi_c(m)$ of the margin against all other classes: $\|l'\| \le \sqrt2\,c$, no eigenvalue of $l''$ above 1/2.

    Args:
        classes: K >= 2.
        cut: c in (0, 1].
    """

    classes: int
    cut: float
    name: ClassVar[str] = "truncated softmax"
    one_sided: ClassVar[bool] = True
    curvature_bound: ClassVar[float] = 0.5  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", Softmax(self.classes).classes)
        object.__setattr__(self, "cut", _require_cut(self.cut))

    @property
    def outputs(self) -> int:
        """K."""
        return self.classes

    @property
    def curvature_rank(self) -> int:
        """K - 1: a common shift of the scores changes nothing."""
        return self.classes - 1

    @property
    def slope_bound(self) -> float:
        """sqrt(2) c."""
        return math.sqrt(2.0) * self.cut * _UP

    @property
    def curvature_trace(self) -> float:
        """1 - 1/K."""
        return 1.0 - 1.0 / self.classes

    def check_targets(self, values: Any, count: int) -> Array:
        """Classes 0, ..., K - 1."""
        return Softmax(self.classes).check_targets(values, count)

    def values(self, scores: Array, targets: Array) -> Array:
        """The loss of the margin."""
        others, own = self._others(scores, targets)
        return _values(own - special.logsumexp(others, axis=1), self.cut)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """min(r, c) (q - e_y), from differences of scores that do not cancel."""
        others, own = self._others(scores, targets)
        top = others.max(axis=1)
        slopes = np.exp(others - top[:, None])
        total = slopes.sum(axis=1)
        missing = special.expit(top + np.log(total) - own)
        cut = np.minimum(missing, self.cut)
        slopes *= (cut / total)[:, None]
        slopes[np.arange(len(scores)), targets.astype(np.intp)] = -cut
        return slopes

    def curvatures(self, scores: Array, targets: Array) -> Curvatures:
        """r(1 - r) grad m grad m^T where r < c, and min(r, c)(diag q - q q^T)."""
        others, own = self._others(scores, targets)
        shares = special.softmax(others, axis=1)
        missing = special.expit(special.logsumexp(others, axis=1) - own)
        cut = np.minimum(missing, self.cut)
        slopes = shares.copy()
        slopes[np.arange(len(scores)), targets.astype(np.intp)] = -1.0
        outer = np.where(missing >= self.cut, 0.0, missing * (1.0 - missing))
        return Curvatures(cut[:, None] * shares, ((-cut, shares), (outer, slopes)))

    def _others(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """The scores with that of a record's own class at minus infinity, shape (n, K), and that one, shape (n,)."""
        places = np.arange(len(scores)), targets.astype(np.intp)
        own, others = scores[places], scores.copy()
        others[places] = -np.inf
        return others, own


def _values(margins: Array, cut: float) -> Array:
    r"""$\varphi_c(m)$: its tangent below the margin at which r = c."""
    if cut == 1.0:
        return np.logaddexp(0.0, -margins)
    edge = math.log((1.0 - cut) / cut)
    return np.logaddexp(0.0, -np.maximum(margins, edge)) + cut * np.maximum(edge - margins, 0.0)


def _require_cut(cut: object) -> float:
    value = as_number("cut", cut, "a number above 0 and at most 1")
    if not 0.0 < value <= 1.0:
        raise outside("cut", cut, "a number above 0 and at most 1")
    return value
