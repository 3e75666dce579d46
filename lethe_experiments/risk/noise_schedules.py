r"""The noise that the paper compares: exponential decay, which is optimal for influences that decay alike, and equal noise.

Reference: Hong, Wang, Zhou 2022 (FAccT), Theorem 4.5.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import SupportsIndex

import numpy as np

from lethe.calculus.domains import as_number, outside, require_positive
from lethe.calculus.rounding import round_up
from lethe.errors import InputError
from lethe.run.schedules.allocation import SMALLEST, checked_steps, spend_budget, unrepresentable
from lethe.run.schedules.shapes import Array


def exp_schedule(gamma: float, steps: SupportsIndex, budget: float) -> Array:
    r"""The optimal noise when the influence of step t is $\gamma^{T-t}$: variances that decay like $\gamma^{t/2}$.

    $$\sigma_t^2 = \frac1R\,\gamma^{-(T-t)/2}\,\frac{1-\gamma^{T/2}}{1-\sqrt\gamma}$$

    So $\sigma_t = \sigma_1 e^{-k(t-1)}$ with $k = \ln(1/\gamma)/4$: the exponential decay of Yu et al. 2019, its start calibrated.

    Args:
        gamma: $\gamma \in [0, 1]$; 1 gives equal noise; 0 only for one step, because all earlier noise would be infinite.
        steps: $T \ge 1$.
        budget: $R > 0$, R-units ($R = 2\rho$).
    Returns:
        $\sigma_t^2$, shape (T,), relative to the sensitivity of a step; rounded up, so that $\sum 1/\sigma_t^2 \le R$.
    Raises:
        InputError: an argument is outside its range, or the first noise is beyond what doubles hold.
    Reference: Hong, Wang, Zhou 2022 (FAccT), Theorem 4.5.
    """
    rate, count, limit = as_number("gamma", gamma, "a number in [0, 1]"), checked_steps(steps), require_positive("budget", budget)
    if not 0.0 <= rate <= 1.0:
        raise outside("gamma", gamma, "a number in [0, 1]")
    if rate == 1.0 or (rate == 0.0 and count == 1):
        return uniform_schedule(count, limit)
    if rate == 0.0:
        raise InputError(
            f"gamma = 0 with {count} steps: only the last step matters, so all earlier noise would be infinite.",
            source="the arguments gamma and steps",
            remedy="take one step, or gamma > 0.",
        )
    half = 0.5 * math.log(rate)
    with np.errstate(over="ignore"):
        unit = np.exp(-half * np.arange(count - 1, -1, -1)) * (math.expm1(count * half) / math.expm1(half))
    return spend_budget(unit, np.ones(count), limit)


def uniform_schedule(steps: SupportsIndex, budget: float) -> Array:
    r"""Equal noise at every step, $\sigma_t^2 = T/R$.

    Args:
        steps: $T \ge 1$.
        budget: $R > 0$, R-units ($R = 2\rho$).
    Returns:
        $\sigma_t^2$, shape (T,), relative to the sensitivity of a step; the smallest double with $\sum 1/\sigma_t^2 \le R$.
    Raises:
        InputError: an argument is outside its range, or the noise is beyond what doubles hold.
    """
    count, limit = checked_steps(steps), require_positive("budget", budget)
    variance = count / limit if limit >= SMALLEST else math.inf
    if not SMALLEST <= variance < math.inf:
        raise unrepresentable("the variance of every step", variance)
    short = Fraction(variance) * Fraction(limit) < count
    return np.full(count, round_up(variance) if short else variance)
