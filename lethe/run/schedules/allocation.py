r"""How to share a fixed privacy budget among the steps: noise where it does least harm, in closed form.

Budgets here are in R-units: a step with noise multiplier $\sigma_t$ and cost $a_t$ takes $a_t^2/\sigma_t^2$ of $R$. With $a_t$ the
sensitivity in the units of $\sigma_t$, composition makes the run $\sqrt R$-GDP and $R/2$-zCDP.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import as_number, outside, require_positive, require_vector
from lethe.calculus.privacy_losses.distributions import MOST_STEPS
from lethe.calculus.rounding import round_up
from lethe.errors import InputError
from lethe.run.schedules.base import Array

_EPS = float(np.finfo(np.float64).eps)
SMALLEST = float(np.finfo(np.float64).tiny)
"""Below this doubles lose digits, and nothing could be promised of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """A budget shared among steps."""

    variances: Array
    r"""$\sigma_t^2$, shape (T,), rounded up: the exact $\sum a_t^2/\sigma_t^2$ is at most R. 0 where $a_t = 0$."""
    value: float
    r"""$R \sum_t q_t \sigma_t^2 = (\sum_t a_t \sqrt{q_t})^2$, the least there is; it does not depend on R."""


def optimal_schedule(weights: ArrayLike, budget: float, costs: ArrayLike | None = None) -> Allocation:
    r"""The noise that does least harm within a budget.

    $$\min_\sigma \sum_t q_t \sigma_t^2 \ \text{ s.t. } \sum_t \frac{a_t^2}{\sigma_t^2} \le R
    \qquad\Longrightarrow\qquad \sigma_t^2 = \frac1R\,\frac{a_t}{\sqrt{q_t}} \sum_i a_i \sqrt{q_i}$$

    Step t takes the share $a_t\sqrt{q_t} / \sum_i a_i\sqrt{q_i}$ of the budget. For costs of 1, equal noise $T/R$ gives the value
    $T\sum q_t$, which is larger by $T^2$ times the population variance of $\sqrt{q_t}$.

    Args:
        weights: $q_t > 0$, shape (T,): what one unit of $\sigma_t^2$ does to the final loss. Only ratios matter to the schedule.
        budget: $R > 0$, R-units ($R = 2\rho$).
        costs: $a_t \ge 0$, shape (T,), in the units of $\sigma_t$; None: 1 at every step. A step of cost 0 needs no noise.
    Returns:
        The Allocation; `variances` in squared units of $\sigma_t$.
    Raises:
        InputError: an argument is outside its range, the lengths differ, or a result is beyond what doubles hold.
    Reference: Hong, Wang, Zhou 2022 (FAccT), Lemma 4.4, with costs added; their (26) prints Var of $q_t$ where $\sqrt{q_t}$ is meant.
    """
    influence, limit = require_vector("weights", weights, low=0.0, strict=True), require_positive("budget", budget)
    paid = np.ones(influence.size) if costs is None else require_vector("costs", costs, low=0.0)
    if paid.size != influence.size:
        raise InputError(
            f"weights have {influence.size} entries and costs {paid.size}; they need one length, one entry a step.",
            source="the arguments weights and costs",
            remedy="give both for the same steps.",
        )
    if not bool(paid.any()):
        return Allocation(variances=np.zeros(influence.size), value=0.0)
    roots = np.sqrt(influence)
    with np.errstate(over="ignore", under="ignore"):
        total = math.fsum((paid * roots).tolist()) if bool(np.isfinite(paid * roots).all()) else math.inf
        value, unit = total * total, paid / roots * total
    if not SMALLEST <= value < math.inf:
        raise _unrepresentable("the squared sum of costs times roots of weights", value)
    return Allocation(variances=_spent(unit, paid, limit), value=value)


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
    return _spent(unit, np.ones(count), limit)


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
        raise _unrepresentable("the variance of every step", variance)
    short = Fraction(variance) * Fraction(limit) < count
    return np.full(count, round_up(variance) if short else variance)


def checked_steps(steps: SupportsIndex, name: str = "steps") -> int:
    """An integer from 1 to 20 000 000, as many steps as a run may have, or InputError."""
    needed = f"a whole number from 1 to {MOST_STEPS}"
    try:
        count = operator.index(steps)
    except TypeError:
        raise outside(name, steps, needed) from None
    if isinstance(steps, bool) or not 1 <= count <= MOST_STEPS:
        raise outside(name, steps, needed)
    return count


def _spent(unit: Array, costs: Array, budget: float) -> Array:
    """Variances that spend a budget of 1, scaled to spend `budget` and never more."""
    noisy = costs > 0.0
    _refuse_beyond_doubles(unit[noisy])
    with np.errstate(over="ignore"):
        spent = math.fsum((costs[noisy] / unit[noisy] * costs[noisy]).tolist())
        # The sum is off by three roundings, the scaling by three more; a rounding is half an epsilon.
        variances = unit * (spent * (1.0 + 8.0 * _EPS)) / budget
    _refuse_beyond_doubles(variances[noisy])
    return variances


def _refuse_beyond_doubles(variances: Array) -> None:
    smallest, largest = float(variances.min()), float(variances.max())
    if not (smallest >= SMALLEST and largest < math.inf):
        raise _unrepresentable("the variance of a step", smallest if smallest < SMALLEST else largest)


def _unrepresentable(what: str, value: float) -> InputError:
    return InputError(
        f"{what} would be {value:g}; it needs to stay between {SMALLEST:.3g} and {float(np.finfo(np.float64).max):.3g}.",
        source="the weights, the costs, the budget and the number of steps together",
        remedy="rescale weights, costs or budget, or take fewer steps.",
    )
