r"""The intercept of a classifier of two classes without what a ridge did to it.

Of the minimiser under a ridge $\kappa$ the slope in the intercept is known: with $b = \mathrm{CONSTANT}\,w_0$ the mean of $l'$ is
$-\kappa b/\mathrm{CONSTANT}^2$, and not 0. So scores are too near to 0, and a rare class seems more likely than it is. What would be there
without the ridge is a shift d of all scores, under which the chances $\pi$ make that mean slope what it is:

$$\mathbb E\big[(1 - \pi)\,l'(s, 0) + \pi\,l'(s, 1)\big] = -\kappa b/\mathrm{CONSTANT}^2,\qquad \pi = \pi(s + d),\quad
  s \sim N(b, \|w\|^2/D).$$

The law of s is a guess, of rows that lie about 0, alike in all directions; the rest follows from numbers that are released or public.
"""

import numpy as np
from scipy import optimize, special

from lethe.estimators.inputs.facts import CONSTANT, PublicFacts
from lethe.estimators.models.inverse_links import log_odds
from lethe.mechanisms.base import Array
from lethe.run.losses import Logistic, TruncatedLogistic

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_SHARES = _WEIGHTS / _WEIGHTS.sum()
_MOST = 2.0  # that a score is shifted by


def freed_intercept(weights: Array, facts: PublicFacts, ridge: float) -> Array:
    """Weights, shape (D, k), whose last row, the intercept's, is free of the ridge; the same where that is not known."""
    if not facts.intercept or ridge <= 0.0 or not isinstance(facts.loss, Logistic | TruncatedLogistic):
        return weights
    cut = facts.loss.slope_scale if facts.envelope is None else min(facts.envelope / facts.norm, 1.0)
    middle, spread = CONSTANT * float(weights[-1, 0]), float(np.linalg.norm(weights[:-1, 0])) / np.sqrt(max(facts.columns, 1))
    scores, left = middle + spread * _NODES, ridge * middle / CONSTANT**2
    up, down = np.minimum(special.expit(scores), cut), np.minimum(special.expit(-scores), cut)

    def mean_slope(shift: float) -> float:
        chances = special.expit(log_odds(scores + shift, cut))
        return float(_SHARES @ ((1.0 - chances) * up - chances * down)) + left

    away = float(np.copysign(_MOST, middle))
    # Its sign at 0 is that of `left`, but for where log-odds are taken on a line.
    ends = mean_slope(0.0), mean_slope(away)
    if ends[0] * np.sign(middle) <= 0.0:
        return weights
    shift = away if ends[1] * np.sign(middle) >= 0.0 else optimize.brentq(mean_slope, 0.0, away)
    freed = weights.copy()
    freed[-1] += shift / CONSTANT
    return freed
