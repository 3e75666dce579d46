r"""A lower bound on $\epsilon$, or on $\mu$, from one run: many canaries with a coin each, and guesses about the coins."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from lethe.audit.statistics.counts import Guesses
from lethe.audit.statistics.inputs import require_instance, require_level
from lethe.audit.statistics.intervals import largest_refuted
from lethe.calculus.crossing import log_gap
from lethe.calculus.domains import require_delta, require_nonnegative


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
    counts = require_instance("guesses", guesses, Guesses)
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
    counts = require_instance("guesses", guesses, Guesses)
    return _epsilon(counts.canaries, counts.guessed, counts.correct, require_delta(delta), require_level(level))


# Whoever audits many models of one kind meets the same counts again and again.
@lru_cache(maxsize=256)
def _epsilon(canaries: int, guessed: int, correct: int, delta: float, level: float) -> float:
    guesses = Guesses(canaries=canaries, guessed=guessed, correct=correct)

    def gap(epsilon: float) -> float:
        return log_gap(one_run_p_value(guesses, epsilon=epsilon, delta=delta), level)

    return largest_refuted(gap, resolution=1e-10)


def gaussian_guesses_refuted(guesses: Guesses, *, mu: float, level: float) -> bool:
    r"""Whether so many right guesses have probability at most $\alpha$ under $\mu$-GDP.

    With c of c' guesses right among m canaries, $g(x) = \Phi(\Phi^{-1}(x) - \mu)$, $r = \alpha c/m$ and $h = \alpha(c'-c)/m$, for i
    from c - 1 down to 0:

    $$h' = \max\{h, g(r)\}, \qquad r \leftarrow \min\left\{1,\ r + \frac{i}{c'-i}(h' - h)\right\}, \qquad h \leftarrow h'$$

    and $\mu$ is refuted if $r + h > c'/m$. A larger $\mu$ lowers g, and every r and h with it.

    Args:
        guesses: the counts, with the same guarantee as for `one_run_p_value`.
        mu: $\mu \ge 0$, finite.
        level: $\alpha$ from 1e-12 to 1/2.
    Raises:
        InputError: an argument is outside its range.
    Reference: Mahloujifar, Melis, Chaudhuri 2024, arXiv:2410.22235, Algorithm 3.
    """
    counts, distance, chance = (
        require_instance("guesses", guesses, Guesses),
        require_nonnegative("mu", mu, allow_infinity=False),
        require_level(level),
    )
    right, total, canaries = counts.correct, counts.guessed, counts.canaries
    rising = chance * right / canaries
    held = chance * (total - right) / canaries
    needed = total / canaries * (1.0 + 1e-10)
    for index in range(right - 1, -1, -1):
        new = max(held, float(special.ndtr(special.ndtri(rising) - distance)))
        rising = min(1.0, rising + index / (total - index) * (new - held))
        held = new
        # Neither ever shrinks.
        if rising + held > needed:
            return True
    return False


def one_run_gaussian_mu(guesses: Guesses, *, level: float) -> float:
    r"""The $\mu \ge 0$ below which the guesses are refuted, rounded down; 0 if none. Args, Raises: as `gaussian_guesses_refuted`."""
    counts = require_instance("guesses", guesses, Guesses)
    return _gaussian_mu(counts.canaries, counts.guessed, counts.correct, require_level(level))


@lru_cache(maxsize=256)
def _gaussian_mu(canaries: int, guessed: int, correct: int, level: float) -> float:
    guesses = Guesses(canaries=canaries, guessed=guessed, correct=correct)

    def gap(mu: float) -> float:
        return -1.0 if gaussian_guesses_refuted(guesses, mu=mu, level=level) else 1.0

    return largest_refuted(gap, resolution=1e-9)
