"""Exact privacy of binomial noise on a count, and the least of it that is enough."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lethe.calculus.domains import outside, require_count, require_delta, require_nonnegative, require_positive
from lethe.errors import CalibrationError

# Of betainc, relative; measured below 1e-11 against exact sums up to 10^5 trials.
_MARGIN = 1e-9
_MOST_TRIALS = 10**8
_MOST_SHIFT = 10**5


def binomial_delta(trials: int, probability: float, shift: int, epsilon: float) -> float:
    r"""$\delta(\epsilon)$ between a binomial number and the same raised by at most `shift`, both ways; rounded up.

    $$\max_\pm\ \max_x\ P(X + g \ge x) - e^\epsilon P(X \ge x),\qquad X \sim \mathrm{Bin}(B, p)\ \text{or, for the other sign, }
    \mathrm{Bin}(B, 1-p)$$

    The ratio $P(X + g = x)/P(X = x)$ grows with x (the binomial law is log-concave), so the worst event is a tail, and its threshold is
    the first x with a ratio above $e^\epsilon$. The same argument makes $\delta$ grow with g: smaller shifts, and mixtures of
    shifts by joint convexity, are covered.

    Args:
        trials: B, at most 10^8.
        probability: p from 1e-15 to 1 - 1e-15.
        shift: g, at most 10^5; 0 gives 0.
        epsilon: $\epsilon \ge 0$, finite.
    Returns:
        A bound in [0, 1], within 2e-9 (relative to the tail's mass) of the exact value.
    Raises:
        InputError: an argument is outside its range.
    """
    count, steps = require_count("trials", trials), require_count("shift", shift, low=0)
    if count > _MOST_TRIALS or steps > _MOST_SHIFT:
        raise outside("trials" if count > _MOST_TRIALS else "shift", (trials, shift), "at most 10^8 trials and a shift of at most 10^5")
    chance, level = require_nonnegative("probability", probability), require_nonnegative("epsilon", epsilon, allow_infinity=False)
    if not 1e-15 <= chance <= 1.0 - 1e-15:
        raise outside("probability", probability, "a number from 1e-15 to 1 - 1e-15")
    if steps == 0:
        return 0.0
    return min(max(_one_sided(count, p, steps, level) for p in {chance, 1.0 - chance}), 1.0)


def all_shifts_delta(trials: int, probability: float, levels: int, epsilon: float) -> float:
    r"""A $\delta$ for all shifts at once: a shift by $k \le g$ is $(\epsilon k/g,\ \delta)$-indistinguishable.

    Proof: $P(X + 1 = x)/P(X = x) = \frac{x(1-p)}{(B+1-x)p}$ grows with x and passes $e^{\epsilon/g}$ at
    $x_1 = \frac{(B+1)pe^{\epsilon/g}}{1-p+pe^{\epsilon/g}}$. The log ratio for a shift by k is a sum of k such terms, the largest of them
    at x itself, so it is above $\epsilon k/g$ only if $X + k > x_1$: at most $P(X > x_1 - g)$, bounded by Chernoff. The other sign is the
    same with $1 - p$.

    Args:
        trials: B.
        probability: p strictly between 0 and 1.
        levels: g >= 1.
        epsilon: $\epsilon > 0$.
    Returns:
        A bound in [0, 1], rounded up.
    Raises:
        InputError: an argument is outside its range.
    """
    count, steps = require_positive("trials", trials), require_count("levels", levels)
    if count < 1.0:
        raise outside("trials", trials, "a number of at least 1")
    growth = require_positive("epsilon", epsilon) / steps
    chance = require_positive("probability", probability)
    if chance >= 1.0:
        raise outside("probability", probability, "a number above 0 and below 1")
    exponents: list[float] = []
    for p in (chance, 1.0 - chance):
        # Divided by e^(epsilon/g), so that nothing overflows.
        share = (1.0 + 1.0 / count) * p / ((1.0 - p) * math.exp(-growth) + p) - steps / count
        if share <= p:
            return 1.0
        # KL(share || p), less what rounding may have added to it.
        divergence = float(special.rel_entr(min(share, 1.0), p) + special.rel_entr(max(1.0 - share, 0.0), 1.0 - p))
        exponents.append(math.inf if share > 1.0 else max(divergence - 1e-15, 0.0) * count)
    return min(math.exp(-min(exponents)) * (1.0 + 1e-12) + 1e-290, 1.0)


def least_fair_trials(shift: int, epsilon: float, delta: float) -> int:
    r"""The fewest fair coins whose number of heads hides a shift: the smallest B with `binomial_delta(B, 0.5, shift, epsilon) <= delta`.

    Args:
        shift: g >= 1.
        epsilon: $\epsilon > 0$.
        delta: $\delta \in (0, 1)$.
    Raises:
        InputError: an argument is outside its range.
        CalibrationError: more than 10^8 would be needed.
    """
    target = require_delta(delta)
    if target == 0.0:
        raise outside("delta", delta, "a number above 0 and below 1: the range of a count is bounded, so delta = 0 cannot be met")
    passing = 1
    while binomial_delta(passing, 0.5, shift, epsilon) > target:
        passing *= 2
        if passing > _MOST_TRIALS:
            raise CalibrationError(
                f"no {_MOST_TRIALS} fair coins hide a shift of {shift} at epsilon = {epsilon:g}, delta = {target:g}.",
                source="shift, epsilon and delta",
                remedy="use fewer levels, or a larger epsilon or delta",
            )
    failing = passing // 2
    while passing - failing > 1:
        middle = (failing + passing) // 2
        if binomial_delta(middle, 0.5, shift, epsilon) > target:
            failing = middle
        else:
            passing = middle
    return passing


def _one_sided(trials: int, chance: float, shift: int, epsilon: float) -> float:
    offsets = np.arange(1, shift + 1)

    def log_ratio(x: int) -> float:
        """Of P(X = x - g) to P(X = x), for g <= x <= B."""
        return float(np.log((x - shift + offsets) / (trials - x + offsets)).sum()) + shift * (math.log1p(-chance) - math.log(chance))

    # Beyond B the second law has no mass: the ratio is infinite.
    low, high = shift - 1, max(trials + 1, shift)
    while high - low > 1:
        middle = (low + high) // 2
        if log_ratio(middle) > epsilon:
            high = middle
        else:
            low = middle
    moved, stayed = _upper_tail(trials, chance, high - shift), _upper_tail(trials, chance, high)
    taken = math.exp(min(epsilon + math.log(stayed), 0.0)) if stayed > 0.0 else 0.0
    # What underflowed is counted as more.
    return max(moved * (1.0 + _MARGIN) - taken * (1.0 - _MARGIN), moved * _MARGIN, 1e-290)


def _upper_tail(trials: int, chance: float, x: int) -> float:
    """P(X >= x)."""
    if x <= 0:
        return 1.0
    return 0.0 if x > trials else float(special.betainc(x, trials - x + 1, chance))
