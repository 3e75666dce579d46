"""From profiles and Gaussian DP to (epsilon, delta) and back: published conversions, each rounded to the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from lethe.calculus.crossing import crossing, log_gap
from lethe.calculus.domains import require_delta, require_nonnegative, require_probability
from lethe.calculus.normal import log_gaussian_delta
from lethe.calculus.renyi_conversions import zcdp_rho_simple
from lethe.calculus.rounding import above, exp_above, square_above

_EPS = float(np.finfo(np.float64).eps)
# Orders of growth tried for a bracket: 2, 4, 16, 256, ... so that every float is within nine tries.
_GROWTH = 2.0
_TRADEOFF_LEVELS = (0.0, *np.geomspace(1e-4, 60.0, 600).tolist())


def profile_epsilon(profile: Callable[[float], float], delta: float, *, high: float = 1.0) -> float:
    r"""Smallest $\epsilon \ge 0$ with $\delta(\epsilon) \le \delta$ for a nonincreasing profile; rounded up, and seen to hold.

    Args:
        profile: $\epsilon \mapsto \delta(\epsilon)$ on $[0, \infty]$.
        delta: $\delta \in [0, 1)$.
        high: a first guess for the upper end, > 0 and finite.
    Returns:
        $\epsilon$ with `profile(epsilon) <= delta` as evaluated, or infinity if there is none.
    Raises:
        InputError: `delta` is outside its range.
    """
    target = require_delta(delta)
    gap_failing = log_gap(profile(0.0), target)
    if gap_failing <= 0.0:
        return 0.0
    if not profile(math.inf) <= target:
        return math.inf
    failing, passing, growth = 0.0, high, _GROWTH
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
    r"""Exact $\delta$ of $\mu$-GDP at $\epsilon$, rounded up.

    $$\delta(\epsilon) = \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon\,\Phi(-\mu/2 - \epsilon/\mu)$$

    Args:
        mu: $\mu \in [0, \infty]$.
        epsilon: $\epsilon \in [0, \infty]$.
    Returns:
        $\delta \in [0, 1]$: 0 for $\mu = 0$, 1 for $\mu = \infty$, otherwise positive at every finite $\epsilon$, even where it underflows.
    Raises:
        InputError: an argument is outside its range.
    Reference: Balle & Wang 2018, arXiv:1805.06530, Theorem 8; Dong, Roth, Su 2019, arXiv:1905.02383, Corollary 2.13.
    """
    logarithm = float(log_gaussian_delta(require_nonnegative("mu", mu), require_nonnegative("epsilon", epsilon)))
    return min(float(exp_above(logarithm)), 1.0)


def gdp_epsilon(mu: float, delta: float) -> float:
    r"""Smallest $\epsilon$ for which $\mu$-GDP is $(\epsilon, \delta)$-DP, rounded up; the inverse of `gdp_delta` in $\epsilon$.

    Args:
        mu: $\mu \in [0, \infty]$.
        delta: $\delta \in [0, 1)$.
    Returns:
        $\epsilon$ with `gdp_delta(mu, epsilon) <= delta`: 0 for $\mu = 0$; infinity for $\mu = \infty$, and for $\delta = 0 < \mu$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Balle & Wang 2018, arXiv:1805.06530, Theorem 8.
    """
    distance, target = require_nonnegative("mu", mu), require_delta(delta)
    if distance == 0.0:
        return 0.0
    return math.inf if target == 0.0 or math.isinf(distance) else _gdp_epsilon(distance, target)


# Certificates, statements and plans ask for the epsilon of one mu again and again.
@lru_cache(maxsize=1024)
def _gdp_epsilon(distance: float, target: float) -> float:
    # The normal tail is at most exp(-x^2/2)/2, so this end is on the passing side.
    high = 0.5 * distance * distance + distance * math.sqrt(-2.0 * math.log(target))
    return math.inf if math.isinf(high) else profile_epsilon(lambda epsilon: gdp_delta(distance, epsilon), target, high=max(high, 5e-324))


def gdp_rho(mu: float) -> float:
    r"""$\rho = \mu^2/2$, rounded up: $\mu$-GDP implies $\rho$-zCDP.

    Args:
        mu: $\mu \in [0, \infty]$.
    Returns:
        $\rho$; 0 for $\mu = 0$ only.
    Raises:
        InputError: `mu` is outside its range.
    Reference: Bun & Steinke 2016, arXiv:1605.02065, Proposition 1.6.
    """
    distance = require_nonnegative("mu", mu)
    return 0.0 if distance == 0.0 else float(above(0.5 * square_above(distance)))


def gdp_mu(epsilon: float, delta: float) -> float:
    r"""Largest $\mu$ whose $\mu$-GDP is $(\epsilon, \delta)$-DP, rounded down; the inverse of `gdp_delta` in $\mu$.

    Args:
        epsilon: $\epsilon \in [0, \infty)$.
        delta: $\delta \in [0, 1)$.
    Returns:
        $\mu \ge 0$ with `gdp_delta(mu, epsilon) <= delta`; 0 for $\delta = 0$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Balle & Wang 2018, arXiv:1805.06530, Theorem 8.
    """
    level, target = require_nonnegative("epsilon", epsilon, allow_infinity=False), require_delta(delta)
    return 0.0 if target == 0.0 else _gdp_mu(level, target)


# Plans ask for the noise of one target again and again.
@lru_cache(maxsize=1024)
def _gdp_mu(level: float, target: float) -> float:
    def gap(mu: float) -> float:
        return log_gap(gdp_delta(mu, level), target)

    passing = max(math.sqrt(2.0 * zcdp_rho_simple(level, target)), target)
    while gap(passing) > 0.0:
        passing *= 0.5
    failing = 2.0 * passing
    while gap(failing) <= 0.0:
        passing, failing = failing, 2.0 * failing
    return crossing(gap, failing, passing, resolution=1e-13 * passing, gap_failing=gap(failing), gap_passing=gap(passing))


def profile_tradeoff(profile: Callable[[float], float], type_one: float) -> float:
    r"""A lower bound of the trade-off function: the least type II error of any test that tells two neighbours apart.

    $$f(\alpha) \ge \max_\epsilon\max\{0,\ 1 - \delta(\epsilon) - e^\epsilon\alpha,\ e^{-\epsilon}(1 - \delta(\epsilon) - \alpha)\}$$

    Every $\epsilon$ gives a bound; the largest over 600 of them is returned, rounded down.

    Args:
        profile: $\epsilon \mapsto \delta(\epsilon)$ on $[0, \infty]$.
        type_one: $\alpha \in [0, 1]$, the chance of a type I error.
    Raises:
        InputError: `type_one` is outside its range.
    Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Proposition 2.5.
    """
    alpha = require_probability("type_one", type_one)
    best = 0.0
    for epsilon in _TRADEOFF_LEVELS:
        left = 1.0 - profile(epsilon)
        best = max(best, left - math.exp(epsilon) * alpha, math.exp(-epsilon) * (left - alpha))
    return max(best - 1e-15, 0.0)
