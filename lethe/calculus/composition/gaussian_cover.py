r"""Gaussian covers: the smallest $\mu$ for which a mechanism is no worse than a Gaussian one that fails openly with a small chance.

A privacy filter adds up $\mu^2$. What is no Gaussian mechanism is added to it as the Gaussian that covers it, and a share of delta.
"""

from __future__ import annotations

import math

from scipy.special import ndtri_exp

from lethe.calculus.base import Guarantee
from lethe.calculus.conversions import gdp_delta, gdp_mu
from lethe.calculus.domains import require_count, require_nonnegative, require_probability
from lethe.calculus.rounding import round_up

_POINTS = 384


def pure_mu(epsilon: float) -> float:
    r"""The smallest $\mu$ with: $\epsilon$-DP implies $\mu$-GDP; rounded up.

    $$\mu = 2\,\Phi^{-1}\Big(\frac{e^\epsilon}{1+e^\epsilon}\Big)$$

    The trade-off function of $\epsilon$-DP is made of two lines through (0, 1), the point of equal errors $1/(1+e^\epsilon)$ and (1, 0).
    The convex one of $\mu$-GDP goes through the ends, and through the middle point for this $\mu$; so it is nowhere above.

    Args:
        epsilon: $\epsilon \in [0, \infty]$.
    Raises:
        InputError: it is outside its range.
    """
    level = require_nonnegative("epsilon", epsilon)
    if level == 0.0 or math.isinf(level):
        return level
    # log(1/(1 + e^epsilon)) is known to a few roundings; near one half its quantile loses digits, but not this many.
    return round_up(-2.0 * float(ndtri_exp(-level - math.log1p(math.exp(-level)))) + 1e-14, 1e-12)


def covering_mu(guarantee: Guarantee, slack: float, *, points: int = _POINTS) -> float:
    r"""A $\mu$, close to the smallest, such that the guarantee's profile is below that of a Gaussian that fails openly with chance $s$:

    $$\delta(\epsilon) \le s + (1 - s)\,\delta_\mu(\epsilon) \quad\text{for all } \epsilon \ge 0.$$

    The right side is the profile, in both directions, of a mechanism that shows its data with probability $s$ and is otherwise exactly
    $\mu$-Gaussian. Both profiles fall, so that $\delta(\epsilon_k) \le s + (1-s)\,\delta_\mu(\epsilon_{k+1})$ at neighbouring points of a
    grid, and $\delta(\epsilon_K) \le s$ at its end, prove the inequality between and beyond them.

    Args:
        guarantee: any.
        slack: $s \in [0, 1]$.
        points: K, how many points the grid has.
    Returns:
        $\mu$; infinity where no $\epsilon$ is proved at $\delta = s$.
    Raises:
        InputError: an argument is outside its range.
    """
    share, count = require_probability("slack", slack), require_count("points", points, high=100_000)
    if share >= 1.0:
        return 0.0
    last = guarantee.epsilon(share)
    if last == 0.0 or math.isinf(last):
        return last
    found, here = 0.0, 0.0
    for place in range(count):
        left, here = here, last * ((place + 1) / count)
        target = round_up((guarantee.delta(left) - share) / (1.0 - share), 4e-16)
        if target >= 1.0:
            return math.inf
        if target > 0.0:
            found = max(found, _reaching(found, here, target))
    return found


def _reaching(guess: float, epsilon: float, target: float) -> float:
    r"""`guess` if its $\delta_\mu(\epsilon)$ is at least `target`, else the smallest $\mu$ for which it is, rounded up."""
    mu, growth = guess, 1e-11
    if not _reached(mu, epsilon, target):
        mu = gdp_mu(epsilon, target)
    while not _reached(mu, epsilon, target):
        mu, growth = round_up(mu, growth), growth * 2.0
    return mu


def _reached(mu: float, epsilon: float, target: float) -> bool:
    # gdp_delta is rounded up; what is needed here is a number that is surely below it.
    return gdp_delta(mu, epsilon) * (1.0 - 1e-12) >= target
