r"""How to share a fixed privacy budget among the steps: noise where it does least harm, in closed form.

`noise_allocation` calls it with the influence $q_t$ of each step's noise on the result. $\mu$-GDP has $R = \mu^2$.

Budgets here are in R-units: a step with noise multiplier $\sigma_t$ and cost $a_t$ takes $a_t^2/\sigma_t^2$ of $R$. With $a_t$ the
sensitivity in the units of $\sigma_t$, composition makes the run $\sqrt R$-GDP and $R/2$-zCDP.
"""

import math
import operator
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_positive, require_vector
from lethe.calculus.privacy_losses.distributions import MOST_STEPS
from lethe.errors import InputError
from lethe.run.schedules.shapes import Array

_EPS = float(np.finfo(np.float64).eps)
SMALLEST = float(np.finfo(np.float64).tiny)
"""Below this doubles lose digits, and nothing could be promised of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimalNoise:
    """A budget shared among steps."""

    variances: Array
    r"""$\sigma_t^2$, shape (T,), rounded up: the exact $\sum a_t^2/\sigma_t^2$ is at most R. 0 where $a_t = 0$."""
    value: float
    r"""$R \sum_t q_t \sigma_t^2 = (\sum_t a_t \sqrt{q_t})^2$, the least there is; it does not depend on R."""


def optimal_schedule(weights: ArrayLike, budget: float, costs: ArrayLike | None = None) -> OptimalNoise:
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
        The OptimalNoise; `variances` in squared units of $\sigma_t$.
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
        return OptimalNoise(variances=np.zeros(influence.size), value=0.0)
    roots = np.sqrt(influence)
    with np.errstate(over="ignore", under="ignore"):
        total = math.fsum((paid * roots).tolist()) if bool(np.isfinite(paid * roots).all()) else math.inf
        value, unit = total * total, paid / roots * total
    if not SMALLEST <= value < math.inf:
        raise unrepresentable("the squared sum of costs times roots of weights", value)
    return OptimalNoise(variances=spend_budget(unit, paid, limit), value=value)


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


def spend_budget(unit: Array, costs: Array, budget: float) -> Array:
    r"""Variances that spend a budget of 1, scaled to spend `budget` (R-units) and never more; costs $a_t \ge 0$; shape (T,) each."""
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
        raise unrepresentable("the variance of a step", smallest if smallest < SMALLEST else largest)


def unrepresentable(what: str, value: float) -> InputError:
    """What to raise where `what` is beyond what doubles hold."""
    return InputError(
        f"{what} would be {value:g}; it needs to stay between {SMALLEST:.3g} and {float(np.finfo(np.float64).max):.3g}.",
        source="the weights, the costs, the budget and the number of steps together",
        remedy="rescale weights, costs or budget, or take fewer steps.",
    )
