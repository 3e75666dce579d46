r"""Logistic regression, two classes and one score: whole, or with its slope cut.

A slope is the derivative in the score; a cut one is truncated at c, which bounds every gradient without clipping. p are the class
probabilities, y the record's class, R the bound on its features.

Losses whose slope is cut go on linearly where a record's own class has little probability. With the margin
$m = s_y - \log\sum_{j\ne y}e^{s_j}$ and $r = 1 - p_y = 1/(1 + e^m)$ softmax and logistic regression are both
$\varphi(m) = \log(1 + e^{-m})$, of slope $-r$. The cut loss is $\varphi_c(m)$ with $\varphi_c' = -\min(r, c)$.

Lemma. $\varphi_c(m(s))$ is convex and continuously differentiable; its gradient has norm at most $\sqrt2\,c$, or c for one score, and its
Hessian, where it exists, no eigenvalue above $2c'(1 - c')$, or $c'(1 - c')$ for one score, $c' = \min(c, 1/2)$, and a trace of at most
$1 - 1/K$. Proof: m is concave and $\varphi_c$ convex and falling. The gradient is $-\min(r, c)\nabla m$, $\nabla m = e_y - q$ with q the
softmax of the others, and $\|\nabla m\|^2 = 1 + \|q\|^2 \le 2$. Where $r < c$ the Hessian is that of the loss,
$\mathrm{diag}\,p - pp^\top$; the entries of its row j add up to $2p_j(1 - p_j)$ in absolute value, and the largest such sum bounds its
eigenvalues (Gershgorin). With $r \le 1/2$ that is at most $2r(1 - r)$, since $p_y = 1 - r$ and the other $p_j \le r$; in any case it is
at most 1/2. Where $r \ge c$ the Hessian is $c\,(\mathrm{diag}\,q - qq^\top)$, of eigenvalues of at most $c/2 \le 2c'(1 - c')$
(Popoviciu) and whose trace is $c(1 - \|q\|^2) \le 1 - 1/K$. For one score it is $r(1 - r)$ or 0. The gradient is continuous, so the
bounds on the Hessian bound its differences. Two classes with r just below $c'$ attain them.

The early steps of a regression move alike with and without the cut, and noise is a share c of what it was. The price: a probability is
overstated, since records far on the wrong side pull less.
"""

import math
from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import LinearLoss, TwoClassLoss


class Logistic(TwoClassLoss):
    r"""$f(x) = \log(1 + e^{-z\langle u, x\rangle})$, $z = 2y - 1$ for the class $y \in \{0, 1\}$: $\|\nabla f\| \le R$, $M \le R^2/4$.

    In the score $s = \langle u, x\rangle$: $l' = \mathrm{sigmoid}(s) - y$, $l'' = \mathrm{sigmoid}(s)\,\mathrm{sigmoid}(-s) \le 1/4$.

    Examples:
        >>> loss = lethe.losses.Logistic(feature_norm=2.0)
        >>> [round(value, 3) for value in (loss.known_gradient_bound, *loss.curvature)]
        [2.0, 0.0, 1.0]
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


class CutLoss(LinearLoss):
    r"""$\varphi_c$ of a margin.

    Args:
        cut: c in (0, 1].
    """

    cut: float = Field(gt=0, le=1)

    @property
    def slope_scale(self) -> float:
        """c."""
        return self.cut

    @property
    def _share_of_curvature(self) -> float:
        """The largest r(1 - r) where r < c, rounded up."""
        return min(self.cut * (1.0 - self.cut) * (1.0 + 2.0**-51), 0.25) if self.cut < 0.5 else 0.25

    def _of_margins(self, margins: FloatArray) -> FloatArray:
        r"""$\varphi_c(m)$: its tangent below the margin at which r = c."""
        if self.cut == 1.0:
            return np.logaddexp(0.0, -margins)
        edge = math.log((1.0 - self.cut) / self.cut)
        return np.logaddexp(0.0, -np.maximum(margins, edge)) + self.cut * np.maximum(edge - margins, 0.0)


class TruncatedLogistic(CutLoss, TwoClassLoss):
    r"""Logistic regression whose slope is cut: $\varphi_c(zs)$, $z = 2y - 1$: $\|\nabla f\| \le cR$, $M \le c'(1 - c')R^2$, convex.

    $c' = \min(c, 1/2)$.

    Args:
        cut: c in (0, 1].
    """

    summary: ClassVar[str] = "logistic regression, slope cut"
    kind: ClassVar[str] = "truncated_logistic_regression"
    name: ClassVar[str] = "truncated logistic"

    @property
    def curvature_bound(self) -> float:
        """c(1 - c) for c up to 1/2, else 1/4."""
        return self._share_of_curvature

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """The loss of the margin zs."""
        return self._of_margins((2.0 * targets - 1.0) * scores[:, 0])

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """-z min(sigmoid(-zs), c)."""
        signs = 2.0 * targets - 1.0
        return (-signs * np.minimum(special.expit(-signs * scores[:, 0]), self.cut))[:, None]

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """sigmoid(s) sigmoid(-s), or 0 where the slope is cut."""
        missing = special.expit((1.0 - 2.0 * targets) * scores[:, 0])
        return Curvatures(np.where(missing >= self.cut, 0.0, missing * (1.0 - missing))[:, None])
