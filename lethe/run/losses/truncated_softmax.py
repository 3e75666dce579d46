"""Softmax regression whose slope is cut; `truncated_logistic` has the lemma."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.softmax import SoftmaxLoss
from lethe.run.losses.truncated_logistic import CutLoss


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
        others, own = self._others(scores, targets)
        return self._of_margins(own - special.logsumexp(others, axis=1))

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """min(r, c) (q - e_y), from differences of scores that do not cancel."""
        others, own = self._others(scores, targets)
        top = others.max(axis=1)
        slopes = np.exp(others - top[:, None])
        total = slopes.sum(axis=1)
        behind: FloatArray = top + np.log(total) - own
        missing = special.expit(behind)
        cut = np.minimum(missing, self.cut)
        slopes *= (cut / total)[:, None]
        slopes[np.arange(len(scores)), targets.astype(np.intp)] = -cut
        return slopes

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """r(1 - r) grad m grad m^T where r < c, and min(r, c)(diag q - q q^T)."""
        others, own = self._others(scores, targets)
        shares = special.softmax(others, axis=1)
        missing = special.expit(special.logsumexp(others, axis=1) - own)
        cut = np.minimum(missing, self.cut)
        slopes = shares.copy()
        slopes[np.arange(len(scores)), targets.astype(np.intp)] = -1.0
        outer = np.where(missing >= self.cut, 0.0, missing * (1.0 - missing))
        return Curvatures(cut[:, None] * shares, ((-cut, shares), (outer, slopes)))

    def _others(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The scores with that of a record's own class at minus infinity, shape (n, K), and that one, shape (n,)."""
        places = np.arange(len(scores)), targets.astype(np.intp)
        own, others = scores[places], scores.copy()
        others[places] = -np.inf
        return others, own
