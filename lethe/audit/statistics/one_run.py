r"""A lower bound on $\epsilon$ from one run: many canaries, each included by its own coin flip, and guesses about the coins."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lethe.audit.statistics.counts import Guesses
from lethe.audit.statistics.inputs import lowered, require_level
from lethe.calculus.crossing import crossing, log_gap
from lethe.calculus.domains import require_delta, require_nonnegative
from lethe.errors import InputError


def one_run_p_value(guesses: Guesses, *, epsilon: float, delta: float) -> float:
    r"""Most probable it can be, under $(\epsilon, \delta)$-DP, that `correct` guesses or more are right; rounded up.

    $$P[V \ge v] \le P[W \ge v] + 2m\delta\,\max_{1 \le i \le v} \frac{P[v-i \le W < v]}{i}, \qquad
      W \sim \mathrm{Bin}\left(r, \frac{e^\epsilon}{1+e^\epsilon}\right)$$

    Formal guarantee: m coins are fair and independent of each other and of everything else; the guesses are made from the released output
    (and from what is known without the coins); which coins to guess, r of them, may depend on the output too.

    Args:
        guesses: m canaries, r guessed, v of them correct.
        epsilon: $\epsilon \ge 0$, finite.
        delta: $\delta \in [0, 1)$ of the whole mechanism, for one canary.
    Returns:
        A probability in [0, 1].
    Raises:
        InputError: an argument is outside its range.
    Reference: Steinke, Nasr, Jagielski 2023, arXiv:2305.08846, Theorem 5.2.
    """
    counts = require_guesses(guesses)
    level, slack = require_nonnegative("epsilon", epsilon, allow_infinity=False), require_delta(delta)
    right, total = counts.correct, counts.guessed
    if right == 0:
        return 1.0
    places = np.arange(right)
    logs = special.gammaln(total + 1.0) - special.gammaln(places + 1.0) - special.gammaln(total - places + 1.0)
    log_right = -math.log1p(math.exp(-level))
    below = np.exp(logs + places * log_right + (total - places) * (log_right - level))
    most = float(np.max(np.cumsum(below[::-1]) / (places + 1.0)))
    tail = float(special.betainc(right, total - right + 1.0, math.exp(log_right)))
    # gammaln is relative to its own size, which is r log r.
    return min((tail + 2.0 * counts.canaries * slack * most) * (1.0 + 1e-9 + 1e-14 * total), 1.0)


def one_run_epsilon(guesses: Guesses, *, delta: float, level: float) -> float:
    r"""The $\epsilon$ below which the guesses are refuted: where `one_run_p_value` reaches `level`.

    For each i the p-value rises and then falls to 1 as $\epsilon$ grows, so it passes $\alpha < 1$ once, also where $2m\delta > 1$.

    Args:
        guesses: as for `one_run_p_value`; how many to guess must have been fixed without looking at how many are right.
        delta: $\delta \in [0, 1)$.
        level: $\alpha$ from 1e-12 to 1/2.
    Returns:
        $\epsilon \ge 0$, rounded down. All r guesses right at $\delta = 0$ give $-\log(\alpha^{-1/r} - 1)$ and no more.
    Raises:
        InputError: an argument is outside its range.
    """
    chance = require_level(level)

    def gap(epsilon: float) -> float:
        return log_gap(one_run_p_value(guesses, epsilon=epsilon, delta=delta), chance)

    if gap(0.0) > 0.0:
        return 0.0
    passing, failing = 0.0, 1.0
    while gap(failing) <= 0.0:
        passing, failing = failing, 2.0 * failing
    return lowered(crossing(gap, failing, passing, resolution=1e-10))


def require_guesses(value: object) -> Guesses:
    """Return `value` if it is Guesses, or raise InputError."""
    if not isinstance(value, Guesses):
        raise InputError(f"guesses: got {type(value).__name__}; it needs Guesses.", source="the argument guesses")
    return value
