r"""Counts and costs: Tweedie regression with a logarithmic link, of power p from 1 (Poisson) to 2 (gamma), its slope cut.

A Run names it as `loss`; the estimators for counts and costs fit it. s is the score, y the target, at most Y; a slope is the derivative in
s, and a cut one is truncated at c. R bounds the features.

With $\mu = e^s$ the mean, $v = s - \log y$, $a = \mu^{2-p}$ and $b = y\mu^{1-p}$ half the deviance is

$$l(s) = y^{2-p}\Big(\frac{e^{(2-p)v} - 1}{2-p} + \frac{e^{-(p-1)v} - 1}{p-1}\Big),\qquad l' = a - b,\qquad l'' = (2-p)a + (p-1)b$$

(of fractions over 0 the limit), convex for these p alone; cut, it has the slope $\max(-c, \min(c, l'))$.

Lemma. Where $|l'| < c$ and $0 < y \le Y$, $l'' < M = \max(b_1 + (2-p)c,\ a_1 + (p-1)c)$, the least such bound, where $(b_1 +
c)^{p-1}b_1^{2-p} = Y^{2-p} = a_1^{p-1}(a_1 + c)^{2-p}$ (0 without a solution); $M = Y + c$ for p = 1, 1 + c for p = 2. Proof.
$a^{p-1}b^{2-p} = y^{2-p}$, whatever s is. $l''$ is convex in s and $l'$ increases, so over $|l'| < c$ the supremum is at an end. At $a = b
+ c$ it is $b + (2-p)c$, and b is the root of an increasing function that equals $y^{2-p}$, so it grows with y; at $b = a + c$ likewise.
Roots are at most $Y^{2-p}$, a weighted geometric mean of $b_1$ and $b_1 + c$.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import LARGEST, SMALLEST, NumericLoss


class Tweedie(NumericLoss):
    r"""Half the deviance of a count or a cost $0 \le y \le Y$ from the mean $e^s$, slope cut: $\|\nabla f\| \le cR$, $M \le
    (Y^{2-p} + \max(2-p, p-1)\,c)R^2$, convex. Targets outside count as the nearer end, and those below $2^{-20}Y$ as that.

    Args:
        power: p in [1, 2]: the variance goes like $\mu^p$; 1 Poisson, 2 gamma, between them a compound of both, with zeros.
        target_bound: Y > 0, in target units.
        cut: c of at least $Y^{2-p}/1000$, in loss per score: target units to the power 2 - p.
    Reference: Jørgensen 1987, Exponential dispersion models, J. Royal Stat. Soc. B 49(2).

    Examples:
        >>> loss = lethe.losses.Tweedie(feature_norm=1.0, power=1.0, target_bound=10.0, cut=1.0)
        >>> [round(value, 3) for value in loss.curvature]
        [0.0, 11.0]
    """

    summary: ClassVar[str] = "Tweedie regression, slope cut"
    kind: ClassVar[str] = "tweedie_regression"
    name: ClassVar[str] = "Tweedie"
    power: float = Field(ge=1, le=2)
    target_bound: float = Field(ge=SMALLEST, le=LARGEST)
    cut: float = Field(ge=SMALLEST, le=LARGEST)

    @model_validator(mode="after")
    def _above_rounding(self) -> Tweedie:
        smallest_cut = 1e-3 * self.target_bound ** (2.0 - self.power)
        if self.cut < smallest_cut:
            needed = f"it needs at least {smallest_cut:.3g}, a thousandth of the slopes"
            what = f"cut: got {self.cut:g}; of targets up to {self.target_bound:g} {needed}."
            raise InputError(what, remedy="take a larger cut: beside longer exponentials the rounding of its slopes would not be small.")
        return self

    @property
    def slope_scale(self) -> float:
        """c."""
        return self.cut

    @property
    def curvature_bound(self) -> float:
        """M of the lemma, rounded up."""
        return _largest_curvature(self.power, self.cut, np.log(self.target_bound))

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Half the deviance between the scores at which the slope is cut, tangents outside."""
        p, logs = self.power, self._logs(targets)
        high_term, low_term = (_smaller_term(weight, self.cut, (2.0 - p) * logs) for weight in (2.0 - p, p - 1.0))
        # The ratio of the two terms is e^v.
        high, low = np.logaddexp(high_term, np.log(self.cut)) - high_term, low_term - np.logaddexp(low_term, np.log(self.cut))
        ratios = scores[:, 0] - logs
        inside = np.clip(ratios, low, high)
        grown, shrunk = (np.expm1(rate * inside) / rate if rate else inside for rate in (2.0 - p, 1.0 - p))
        return np.exp((2.0 - p) * logs) * (grown - shrunk) + self.cut * np.abs(ratios - inside)

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """a - b, cut at plus and minus c."""
        return np.clip(np.subtract(*self._terms(scores, targets)), -self.cut, self.cut)[:, None]

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """(2 - p) a + (p - 1) b, or 0 where the slope is cut."""
        first, second = self._terms(scores, targets)
        bent = (2.0 - self.power) * first + (self.power - 1.0) * second
        return Curvatures(np.where(np.abs(first - second) >= self.cut, 0.0, bent)[:, None])

    def decide(self, scores: FloatArray) -> np.ndarray[Any, np.dtype[Any]]:
        """The mean, at most Y."""
        return np.exp(np.minimum(scores[:, 0], np.log(self.target_bound)))

    def _logs(self, targets: FloatArray) -> FloatArray:
        return np.log(np.clip(targets, 2.0**-20 * self.target_bound, self.target_bound))

    def _terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """a and b, shape (n,); of scores far out infinite, one of them at most."""
        p, logs = self.power, self._logs(targets)
        with np.errstate(over="ignore"):
            return np.exp((2.0 - p) * scores[:, 0]), np.exp(logs + (1.0 - p) * scores[:, 0])


def _smaller_term(weight: float, cut: float, level: FloatArray) -> FloatArray:
    r"""The logarithm x with $wx + (1-w)\log(e^x + c) = L$; -1e300 stands for no solution.

    Newton's method from the right, on a function that is convex and rises: never below the solution but for rounding.
    """
    term: FloatArray = level.astype(np.float64)
    log_cut = np.log(cut)
    for _ in range(80):  # five or six, but for powers next to 1 or 2
        larger = np.logaddexp(term, log_cut)
        rest = weight * term + (1.0 - weight) * larger - level
        steep = np.maximum(weight + (1.0 - weight) * np.exp(term - larger), 1e-300)
        with np.errstate(over="ignore"):
            nearer: FloatArray = np.maximum(term - np.maximum(rest, 0.0) / steep, -1e300)
        if (term - nearer <= 1e-15 * (1.0 + np.abs(term))).all():
            break
        term = nearer
    return term


@lru_cache(maxsize=256)
def _largest_curvature(power: float, cut: float, log_bound: float) -> float:
    terms = ((weight, _smaller_term(weight, cut, np.array((2.0 - power) * log_bound))) for weight in (2.0 - power, power - 1.0))
    return (1.0 + 2.0**-40) * max(float(np.exp(term)) + weight * cut for weight, term in terms)
