r"""A credible lower limit on $\epsilon$: what is believed of the error rates, after a prior and the counts. Not a confidence bound."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lethe.audit.statistics.counts import Tally
from lethe.audit.statistics.inputs import require_instance, require_level
from lethe.audit.statistics.intervals import largest_refuted
from lethe.calculus.crossing import log_gap
from lethe.calculus.domains import FloatArray, require_delta

# Where a beta law changes: probabilities of -8 to 8 standard normal deviations.
_PROBABILITIES = special.ndtr(np.linspace(-8.0, 8.0, 33))
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)
_LARGEST = 700.0


def bayesian_epsilon(tally: Tally, *, delta: float, level: float) -> float:
    r"""The $\epsilon$ below which the posterior puts probability `level`.

    $x = \mathrm{FNR} \sim \mathrm{Beta}(\tfrac12 + \mathrm{FN}, \tfrac12 + \mathrm{TP})$ and $y = \mathrm{FPR} \sim
    \mathrm{Beta}(\tfrac12 + \mathrm{FP}, \tfrac12 + \mathrm{TN})$ are independent, and $\epsilon$ solves
    $P[(x, y) \in R(\epsilon, \delta)] = \alpha$, R being the rates that an $(\epsilon, \delta)$-DP mechanism allows:

    $$\max\{0,\ 1-\delta-xe^\epsilon,\ (1-\delta-x)e^{-\epsilon}\} \le y
      \le \min\{1,\ 1+(\delta-x)e^{-\epsilon},\ \delta+(1-x)e^\epsilon\}$$

    The threshold must have been chosen on other data. The posterior is continuous: at $\delta = 0$ even a useless
    test has a limit above 0.

    Args:
        tally: the errors of the test.
        delta: $\delta \in [0, 1)$.
        level: $\alpha$ from 1e-12 to 1/2; 0 is returned if $R(0, \delta)$ has more than that already.
    Returns:
        $\epsilon$ in [0, 700].
    Raises:
        InputError: an argument is outside its range.
    Reference: Zanella-Béguelin et al. 2023, arXiv:2206.05199, Section 4.
    """
    counts, slack, chance = require_instance("tally", tally, Tally), require_delta(delta), require_level(level)

    def gap(epsilon: float) -> float:
        return log_gap(_allowed(counts, epsilon, slack), chance)

    return largest_refuted(gap, resolution=1e-9, largest=_LARGEST)


def _allowed(tally: Tally, epsilon: float, delta: float) -> float:
    r"""$P[(x, y) \in R(\epsilon, \delta)]$.

    With $x = \sin^2\theta$ the density of x is $\sin^{2\mathrm{FN}}\theta\,\cos^{2\mathrm{TP}}\theta$, without a pole. Panels end where
    x, or y on the boundary of R, changes its probability, and where the boundary has a corner: inside one, 8 nodes are exact to rounding.
    """
    misses = (0.5 + tally.false_negatives, 0.5 + tally.in_trials - tally.false_negatives)
    alarms = (0.5 + tally.false_positives, 0.5 + tally.out_trials - tally.false_positives)
    grow, shrink = math.exp(epsilon), math.exp(-epsilon)
    y = special.betaincinv(*alarms, _PROBABILITIES)
    corner = (1.0 - delta) / (1.0 + grow)
    ends = np.concatenate(
        [
            special.betaincinv(*misses, _PROBABILITIES),
            [0.0, delta, corner, 1.0 - corner, 1.0 - delta, 1.0],
            (1.0 - delta - y) * shrink,
            1.0 - delta - y * grow,
            1.0 - (y - delta) * shrink,
            delta + (1.0 - y) * grow,
        ]
    )
    panels = np.unique(np.arcsin(np.sqrt(np.clip(ends, 0.0, 1.0))))
    half = 0.5 * np.diff(panels)
    theta = (panels[:-1, None] + half[:, None] * (1.0 + _NODES)).ravel()
    weight = (half[:, None] * _NODE_WEIGHTS).ravel()
    x = np.square(np.sin(theta))
    log_density = math.log(2.0) - special.betaln(*misses) + (2.0 * misses[0] - 1.0) * np.log(np.sin(theta))
    density = np.exp(log_density + (2.0 * misses[1] - 1.0) * np.log(np.cos(theta)))
    low: FloatArray = np.maximum(np.maximum(1.0 - delta - x * grow, (1.0 - delta - x) * shrink), 0.0)
    high: FloatArray = np.minimum(np.minimum(1.0 + (delta - x) * shrink, delta + (1.0 - x) * grow), 1.0)
    between = special.betainc(*alarms, np.maximum(high, low)) - special.betainc(*alarms, low)
    return min(max(float(np.sum(weight * density * between)), 0.0), 1.0)
