r"""From profiles, Gaussian DP, Rényi DP and zCDP to (epsilon, delta) and back: published conversions, each rounded to the safe side.

`guarantees` calls it for the epsilon and delta of each kind; mechanisms and budgets for the $\mu$ that an (epsilon, delta) allows.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.crossing import crossing, log_gap
from lethe.calculus.domains import FloatArray, require_delta, require_nonnegative, require_pairs, require_vector
from lethe.calculus.normal import log_gaussian_delta
from lethe.calculus.rounding import above, exp_above, round_down, round_up, square_above

_EPS = float(np.finfo(np.float64).eps)


def profile_epsilon(profile: Callable[[float], float], delta: float, *, high: float = 1.0) -> float:
    r"""Smallest $\epsilon \ge 0$ with $\delta(\epsilon) \le \delta$ for a nonincreasing profile; rounded up, and evaluated there.

    $\delta \in [0, 1)$; `high` > 0 is a first guess for the upper end. Infinity if no $\epsilon$ is seen to hold.
    """
    target = require_delta(delta)
    gap_failing = log_gap(profile(0.0), target)
    if gap_failing <= 0.0:
        return 0.0
    if not profile(math.inf) <= target:
        return math.inf
    failing, passing, growth = 0.0, high, 2.0  # then 4, 16, 256, ...: every float is within nine tries
    while (gap_passing := log_gap(profile(passing), target)) > 0.0:
        failing, gap_failing = passing, gap_passing
        passing *= growth
        growth *= growth
        if math.isinf(passing):
            return math.inf
    return crossing(
        lambda epsilon: log_gap(profile(epsilon), target),
        failing,
        passing,
        resolution=1e-13 * passing,
        gap_failing=gap_failing,
        gap_passing=gap_passing,
    )


def gdp_delta(mu: float, epsilon: float) -> float:
    r"""Exact $\delta$ of $\mu$-GDP at $\epsilon$, both in $[0, \infty]$, rounded up.

    $$\delta(\epsilon) = \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon\,\Phi(-\mu/2 - \epsilon/\mu)$$

    0 for $\mu = 0$, 1 for $\mu = \infty$, otherwise positive at every finite $\epsilon$, even where it underflows. Reference: Balle & Wang
    2018, arXiv:1805.06530, Theorem 8; Dong, Roth, Su 2019, arXiv:1905.02383, Corollary 2.13.
    """
    logarithm = float(log_gaussian_delta(require_nonnegative("mu", mu), require_nonnegative("epsilon", epsilon)))
    return min(float(exp_above(logarithm)), 1.0)


def gdp_epsilon(mu: float, delta: float) -> float:
    r"""Smallest $\epsilon$ for which $\mu$-GDP is $(\epsilon, \delta)$-DP, $\delta \in [0, 1)$, rounded up; the inverse of `gdp_delta` in
    $\epsilon$.

    0 for $\mu = 0$; infinity for $\mu = \infty$, and for $\delta = 0 < \mu$. Reference: Balle & Wang 2018, arXiv:1805.06530, Theorem 8.
    """
    distance, target = require_nonnegative("mu", mu), require_delta(delta)
    if distance == 0.0:
        return 0.0
    return math.inf if target == 0.0 or math.isinf(distance) else _gdp_epsilon(distance, target)


# Certificates, statements and plans ask for the epsilon of one mu again and again.
@lru_cache(maxsize=1024)
def _gdp_epsilon(distance: float, target: float) -> float:
    r"""`gdp_epsilon` for $\mu$ = `distance`, by root finding."""
    # The normal tail is at most exp(-x^2/2)/2, so this end is on the passing side.
    high = 0.5 * distance * distance + distance * math.sqrt(-2.0 * math.log(target))
    return math.inf if math.isinf(high) else profile_epsilon(lambda epsilon: gdp_delta(distance, epsilon), target, high=max(high, 5e-324))


def gdp_rho(mu: float) -> float:
    r"""$\rho = \mu^2/2$, rounded up: $\mu$-GDP implies $\rho$-zCDP; 0 for $\mu = 0$ only.

    Reference: Bun & Steinke 2016, arXiv:1605.02065, Proposition 1.6.
    """
    distance = require_nonnegative("mu", mu)
    return 0.0 if distance == 0.0 else float(above(0.5 * square_above(distance)))


def gdp_mu(epsilon: float, delta: float) -> float:
    r"""Largest $\mu$ whose $\mu$-GDP is $(\epsilon, \delta)$-DP, rounded down; the inverse of `gdp_delta` in $\mu$; 0 for $\delta = 0$.

    Reference: Balle & Wang 2018, arXiv:1805.06530, Theorem 8.
    """
    level, target = require_nonnegative("epsilon", epsilon, allow_infinity=False), require_delta(delta)
    return 0.0 if target == 0.0 else _gdp_mu(level, target)


# Plans ask for the noise of one target again and again.
@lru_cache(maxsize=1024)
def _gdp_mu(level: float, target: float) -> float:
    """`gdp_mu`, by root finding."""

    def gap(mu: float) -> float:
        return log_gap(gdp_delta(mu, level), target)

    passing = max(math.sqrt(2.0 * zcdp_rho_simple(level, target)), target)
    while gap(passing) > 0.0:
        passing *= 0.5
    failing = 2.0 * passing
    while gap(failing) <= 0.0:
        passing, failing = failing, 2.0 * failing
    return crossing(gap, failing, passing, resolution=1e-13 * passing, gap_failing=gap(failing), gap_passing=gap(passing))


def rdp_curve(orders: ArrayLike, values: ArrayLike) -> tuple[FloatArray, FloatArray]:
    r"""Check a Rényi curve: orders $\alpha > 1$ finite, values $\ge 0$ (infinity allowed), as many of one as of the other."""
    alpha = require_vector("orders", orders, low=1.0, strict=True)
    bound = require_vector("values", values, low=0.0, allow_infinity=True)
    require_pairs("orders", alpha, "values", bound)
    return alpha, bound


def rdp_epsilon(orders: ArrayLike, values: ArrayLike, delta: float) -> tuple[float, float]:
    r"""$\epsilon$ of a Rényi curve at $\delta$, rounded up, and the order that attains it.

    $$\epsilon = \max\left\{0, \min_\alpha\ \epsilon(\alpha) + \log\frac{\alpha-1}{\alpha}
        - \frac{\log\delta + \log\alpha}{\alpha-1}\right\}$$

    Orders $\alpha > 1$ and values $\epsilon(\alpha) \ge 0$, infinity allowed, have shape (K,); $\delta \in [0, 1)$, where 0 gives infinity
    unless the divergence is 0. Reference: Canonne, Kamath, Steinke 2020, arXiv:2004.00010, Proposition 12.
    """
    (alpha, bound), target = rdp_curve(orders, values), require_delta(delta)
    if np.any(bound == 0.0):  # a divergence of 0 means equal distributions
        return 0.0, float(alpha[int(np.argmin(bound))])
    if target == 0.0:  # and nothing else is pure
        return math.inf, float(alpha[-1])
    excess, log_alpha = alpha - 1.0, np.log(alpha)
    terms = [np.log(excess), -log_alpha, -math.log(target) / excess, -log_alpha / excess]
    # Terms may cancel, their rounding errors do not.
    candidates = bound + np.sum(terms, axis=0) + 8.0 * _EPS * (bound + np.sum(np.abs(terms), axis=0))
    candidates = np.where(np.isnan(candidates), np.inf, candidates)
    best = int(np.argmin(candidates))
    return max(float(candidates[best]), 0.0), float(alpha[best])


def rdp_delta(orders: ArrayLike, values: ArrayLike, epsilon: float) -> float:
    r"""$\delta \in [0, 1]$ of a Rényi curve at $\epsilon$, rounded up: the inverse of `rdp_epsilon`.

    $$\delta = \min_\alpha \frac{e^{(\alpha-1)(\epsilon(\alpha)-\epsilon)}}{\alpha}\left(1-\frac1\alpha\right)^{\alpha-1}$$

    Orders and values have shape (K,); $\epsilon \in [0, \infty]$. Reference: Canonne, Kamath, Steinke 2020, arXiv:2004.00010, Proposition
    12.
    """
    (alpha, bound), level = rdp_curve(orders, values), require_nonnegative("epsilon", epsilon)
    if np.any(bound == 0.0):
        return 0.0
    if math.isinf(level):
        return 0.0 if np.any(np.isfinite(bound)) else 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        logarithms = _log_cks_delta(alpha - 1.0, bound, level)
    return _delta_from_log(float(np.min(np.where(np.isnan(logarithms), np.inf, logarithms))))


def _log_cks_delta(excess: FloatArray, bound: FloatArray, level: float) -> FloatArray:
    r"""Logarithm of the bound of `rdp_delta` at $\alpha = 1 + $ excess, raised by the rounding error of its terms."""
    log_excess, log_alpha = np.log(excess), np.log1p(excess)
    magnitude = excess * (bound + level + np.abs(log_excess) + log_alpha) + log_alpha
    return excess * (bound - level + log_excess - log_alpha) - log_alpha + 8.0 * _EPS * magnitude


def _delta_from_log(logarithm: float) -> float:
    """A delta from its logarithm, rounded up and at most 1."""
    return min(float(exp_above(logarithm, 4.0 * _EPS)), 1.0)


def zcdp_epsilon(rho: float, delta: float) -> float:
    r"""$\epsilon$ of $\rho$-zCDP at $\delta$, optimised over every real order, rounded up; 0 for $\rho = 0$.

    `rdp_epsilon` with $\epsilon(\alpha) = \rho\alpha$; the best order solves $\rho(\alpha-1)^2 = \log(1/\delta) - \log\alpha$. Never above
    `zcdp_epsilon_simple`. Reference: Canonne, Kamath, Steinke 2020, arXiv:2004.00010, Proposition 12.
    """
    budget, target = require_nonnegative("rho", rho), require_delta(delta)
    if budget == 0.0:
        return 0.0
    if target == 0.0 or math.isinf(budget):
        return math.inf
    log_inverse = -math.log(target)
    high = math.sqrt(log_inverse / budget)
    if not 0.0 < high < math.inf or budget > 1e300:
        return zcdp_epsilon_simple(budget, target)
    excess = crossing(lambda s: log_inverse - math.log1p(s) - budget * s * s, 0.0, high, resolution=1e-9 * high, gap_failing=log_inverse)
    log_alpha = math.log1p(excess)
    terms = (budget, budget * excess, math.log(excess), -log_alpha, log_inverse / excess, -log_alpha / excess)
    rounding = 8.0 * _EPS * math.fsum(abs(term) for term in terms)
    return min(max(math.fsum(terms) + rounding, 0.0), zcdp_epsilon_simple(budget, target))


def zcdp_epsilon_simple(rho: float, delta: float) -> float:
    r"""The quoted form $\rho + 2\sqrt{\rho\log(1/\delta)}$, rounded up: 0 for $\rho = 0$, infinity for $\delta = 0 < \rho$.

    Reference: Bun & Steinke 2016, arXiv:1605.02065, Proposition 1.3.
    """
    budget, target = require_nonnegative("rho", rho), require_delta(delta)
    if budget == 0.0:
        return 0.0
    if target == 0.0 or math.isinf(budget):
        return math.inf
    return round_up(budget + 2.0 * math.sqrt(budget) * math.sqrt(-math.log(target)), 8.0 * _EPS)


def zcdp_rho_simple(epsilon: float, delta: float) -> float:
    r"""Largest $\rho$ with $\rho + 2\sqrt{\rho\,l} \le \epsilon < \infty$, $l = \log(1/\delta)$, rounded down; 0 for $\delta = 0$.

    $$\rho = (\sqrt{\epsilon + l} - \sqrt l)^2 = \left(\frac{\epsilon}{\sqrt{\epsilon+l} + \sqrt l}\right)^2$$

    Hong, Wang and Zhou print $\epsilon + 2l + 2\sqrt{l(\epsilon+l)}$ in this place: the sign of the root is wrong there. Reference: Bun &
    Steinke 2016, arXiv:1605.02065, Proposition 1.3, inverted.
    """
    level, target = require_nonnegative("epsilon", epsilon, allow_infinity=False), require_delta(delta)
    if target == 0.0:
        return 0.0
    log_inverse = -math.log(target)
    root = level / (math.sqrt(level + log_inverse) + math.sqrt(log_inverse))
    return max(round_down(root * root, 16.0 * _EPS), 0.0)


def zcdp_delta(rho: float, epsilon: float) -> float:
    r"""$\delta$ of $\rho$-zCDP at $\epsilon$, optimised over every real order, rounded up.

    `rdp_delta` with $\epsilon(\alpha) = \rho\alpha$; the best order solves $\rho(2\alpha-1) - \epsilon + \log(1-1/\alpha) = 0$. Reference:
    Canonne, Kamath, Steinke 2020, arXiv:2004.00010, Proposition 12.
    """
    budget, level = require_nonnegative("rho", rho), require_nonnegative("epsilon", epsilon)
    if budget == 0.0:
        return 0.0
    if math.isinf(budget):
        return 1.0
    if math.isinf(level):
        return 0.0

    def slope(log_excess: float) -> float:
        excess = math.exp(log_excess)
        return budget * (1.0 + 2.0 * excess) - level + log_excess - math.log1p(excess)

    log_excess = crossing(slope, 700.0, -700.0, resolution=1e-10)
    excess = np.exp(np.array([log_excess]))
    with np.errstate(over="ignore", invalid="ignore"):
        logarithm = float(_log_cks_delta(excess, budget * (1.0 + excess), level)[0])
    return _delta_from_log(logarithm)
