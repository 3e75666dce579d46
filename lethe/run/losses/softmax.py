r"""Softmax regression, one score for each class: whole, or with its slope cut, of which `logistic` has the lemma.

A Run names one as `loss`. p are the class probabilities, y the record's class, c the bound at which slopes (derivatives in the scores) are
cut, R the bound on features.

Lemma (docs/theory.md, 5b: the curvature of the envelope). If $\gamma = \|p - e_y\| \le 1/\sqrt2$ then $\mathrm{diag}(p) - pp^\top \preceq
\gamma(\sqrt2 - \gamma)I$. Proof. Put $p_y = 1 - r$, $p_j = rq_j$ and $\theta^2 = 1 + \|q\|^2$, so $\gamma = r\theta$. For unit v with $A =
v_y - \langle q, v\rangle$ and $B = \sum q_jv_j^2 - \langle q, v\rangle^2$ the variance of v under p is $r((1 - r)A^2 + B)$, and we need
$(1-r)A^2 + B \le \theta(\sqrt2 - r\theta)$. Both sides are linear in r and $0 \le r \le 1/(\sqrt2\theta)$, so the ends decide. At r = 0:
$A^2 + B = \sum q_j(v_y - v_j)^2$, a quadratic form whose squared Frobenius norm is $1 + 3\|q\|^2 \le 2 + 2\|q\|^2 = (\sqrt2\theta)^2$. At
$r = \kappa = 1/(\sqrt2\theta)$, with $t = \|q\|^2$: the form $(1 - \kappa)A^2 + B$ has the matrix with $1 - \kappa$ for y, $-(1-\kappa)q$
beside it and $\mathrm{diag}(q) - \kappa qq^\top$ for the others, of squared Frobenius norm $(1 - \kappa)^2(1 + 2t) + t - 2\kappa\sum q_j^3
+ \kappa^2t^2$, where $\sum q_j^3 \ge t^2$ (Jensen). It should be at most $(\theta/\sqrt2)^2 = (1 + t)/2$; the difference is at least
$\sqrt2(1+t)^{3/2} - 1 - 3t$, which falls on [0, 1] and is 0 at t = 1.
"""

import math
from typing import ClassVar

import numpy as np
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import ManyClassLoss
from lethe.run.losses.logistic import CutLoss
from lethe.run.losses.softmax_envelope import ERROR, envelope_slopes


class SoftmaxLoss(ManyClassLoss):
    """Softmax regression, whole or with its slope cut."""

    @property
    def slope_entries(self) -> int:
        r"""2: of $p - e_y$, one entry of at most 1 and others that add up to at most 1."""
        return 2

    @property
    def curvature_bound(self) -> float:
        """1/2."""
        return 0.5

    @property
    def curvature_trace(self) -> float:
        """1 - 1/K."""
        return 1.0 - 1.0 / self.target_classes

    @property
    def curvature_rank(self) -> int:
        """K - 1: a common shift of the scores changes nothing."""
        return self.target_classes - 1


class Softmax(SoftmaxLoss):
    r"""$f(X) = -\log\mathrm{softmax}(X^\top u)_y$: $\|\nabla f\| = \|u\|\,\|p - e_y\| \le \sqrt2 R$, $M \le R^2/2$.

    In the scores: $l' = p - e_y$; $l'' = \mathrm{diag}\,p - pp^\top$ of trace $1 - \sum p_j^2 \le 1 - 1/K$, no eigenvalue above 1/2.

    Examples:
        >>> loss = lethe.losses.Softmax(feature_norm=1.0)
        >>> [round(value, 3) for value in loss.curvature]
        [0.0, 0.5]
    """

    summary: ClassVar[str] = "softmax regression"
    kind: ClassVar[str] = "softmax_regression"
    name: ClassVar[str] = "softmax"
    envelope_error: ClassVar[float] = ERROR

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Cross-entropy."""
        return special.logsumexp(scores, axis=1) - scores[np.arange(len(scores)), targets.astype(np.intp)]

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """softmax(s) - e_y."""
        slopes = special.softmax(scores, axis=1)
        slopes[np.arange(len(scores)), targets.astype(np.intp)] -= 1.0
        return slopes

    @classmethod
    def has_envelope(cls) -> bool:
        """It is known."""
        return True

    def envelope_slopes(self, scores: FloatArray, targets: FloatArray, bounds: FloatArray) -> FloatArray:
        """Slopes in the scores, shape (n, K), of the largest loss whose slopes stay within the bounds; a search for each steeper record."""
        return envelope_slopes(scores, targets, bounds)

    def envelope_smoothness(self, clip_norm: float) -> float:
        r"""$C(\sqrt2R - C)$ for C up to $R/\sqrt2$, else $R^2/2$."""
        if clip_norm * math.sqrt(2.0) >= self.row_norm:
            return self.curvature[1]
        return min(clip_norm * (math.sqrt(2.0) * self.row_norm * (1.0 + 2.0**-50) - clip_norm) * (1.0 + 2.0**-50), self.curvature[1])

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """diag(p) - p p^T."""
        shares = special.softmax(scores, axis=1)
        return Curvatures(shares, ((np.full(len(shares), -1.0), shares),))


class TruncatedSoftmax(SoftmaxLoss, CutLoss):
    r"""$\varphi_c$ of the margin $s_y - \log\sum_{j\ne y}e^{s_j}$, $s = X^\top u$: $\|\nabla f\| \le \sqrt2\,cR$,
    $M \le 2c'(1 - c')R^2$ with $c' = \min(c, 1/2)$, convex.

    Args:
        classes: K >= 2, public; None: said where it is trained.
        cut: c in (0, 1].
    """

    summary: ClassVar[str] = "softmax regression, slope cut"
    kind: ClassVar[str] = "truncated_softmax_regression"
    name: ClassVar[str] = "truncated softmax"

    @property
    def curvature_bound(self) -> float:
        """2c(1 - c) for c up to 1/2, else 1/2."""
        return 2.0 * self._share_of_curvature

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """The loss of the margin."""
        other_scores, true_scores = self._others(scores, targets)
        return self._of_margins(true_scores - special.logsumexp(other_scores, axis=1))

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """min(r, c) (q - e_y), from differences of scores that do not cancel."""
        other_scores, true_scores = self._others(scores, targets)
        top = other_scores.max(axis=1)
        slopes = np.exp(other_scores - top[:, None])
        total = slopes.sum(axis=1)
        behind: FloatArray = top + np.log(total) - true_scores
        missing = special.expit(behind)
        cut = np.minimum(missing, self.cut)
        slopes *= (cut / total)[:, None]
        slopes[np.arange(len(scores)), targets.astype(np.intp)] = -cut
        return slopes

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """r(1 - r) grad m grad m^T where r < c, and min(r, c)(diag q - q q^T)."""
        other_scores, true_scores = self._others(scores, targets)
        shares = special.softmax(other_scores, axis=1)
        missing = special.expit(special.logsumexp(other_scores, axis=1) - true_scores)
        cut = np.minimum(missing, self.cut)
        slopes = shares.copy()
        slopes[np.arange(len(scores)), targets.astype(np.intp)] = -1.0
        outer = np.where(missing >= self.cut, 0.0, missing * (1.0 - missing))
        return Curvatures(cut[:, None] * shares, ((-cut, shares), (outer, slopes)))

    def _others(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The scores with that of a record's own class at minus infinity, shape (n, K), and that one, shape (n,)."""
        true_entries = np.arange(len(scores)), targets.astype(np.intp)
        true_scores, other_scores = scores[true_entries], scores.copy()
        other_scores[true_entries] = -np.inf
        return other_scores, true_scores
