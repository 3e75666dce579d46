r"""How much the noise of each step weighs in a bound of the risk of debiased momentum.

`schedules.influence` makes an Influence of it, `train.network.debiased_momentum` uses the same checks. $\beta$ is the momentum.
"""

import math
from typing import SupportsIndex

import numpy as np

from lethe.calculus.domains import as_number, outside
from lethe.errors import InputError
from lethe.run.schedules.allocation import SMALLEST, checked_steps
from lethe.run.schedules.shapes import Array


def momentum_weights(gamma: float, beta: float, steps: SupportsIndex) -> Array:
    r"""Influence of each step's noise in the risk bound of momentum, exactly.

    $$U_3 = \sum_{t=1}^T \gamma^{T-t}\Big(\frac{1-\beta}{1-\beta^t}\Big)^2 \sum_{i=1}^t \beta^{2(t-i)}\sigma_i^2 = \sum_i u_i \sigma_i^2,
    \qquad u_T = f_T,\quad u_i = f_i + \beta^2 u_{i+1}$$

    with $f_t = \gamma^{T-t}((1-\beta)/(1-\beta^t))^2$, $\gamma \in (0, 1]$ what a step leaves of the risk, $\beta \in [0, 1)$.

    Reference: Hong, Wang, Zhou 2022 (FAccT), Theorem 4.6; it replaces the upper bounds of their Theorem 4.8.
    """
    rate, decay, count = rate_of_risk(gamma, below_one=False), momentum_of(beta), checked_steps(steps)
    terms = np.power(rate, np.arange(count - 1, -1, -1, dtype=np.float64)) * np.square(newest_weights(decay, count))
    return representable(carried_back(terms, decay * decay))


def newest_weights(beta: float, steps: int) -> Array:
    r"""$(1-\beta)/(1-\beta^t)$, the weight of the newest gradient in $m_t$, t = 1..T."""
    return np.ones(steps) if beta == 0.0 else (1.0 - beta) / -np.expm1(np.arange(1.0, steps + 1.0) * math.log(beta))


def carried_back(terms: Array, factor: float) -> Array:
    """$y_T = x_T$, $y_i = x_i + $ factor $y_{i+1}$."""
    result = terms.copy()
    for i in range(terms.size - 2, -1, -1):
        result[i] += factor * result[i + 1]
    return result


def representable(weights: Array) -> Array:
    """The weights; InputError if one is below what doubles hold."""
    if weights.min() < SMALLEST:
        what = f"the weight of step {int(weights.argmin()) + 1} would be below {SMALLEST:.3g}, which doubles do not hold."
        raise InputError(what, source="the arguments gamma, beta and steps", remedy="take fewer steps, or gamma nearer to 1.")
    return weights


def momentum_of(beta: float) -> float:
    """Beta as a float; InputError outside [0, 1)."""
    number = as_number("beta", beta, "a number in [0, 1)")
    if not 0.0 <= number < 1.0:
        raise outside("beta", beta, "a number in [0, 1)")
    return number


def rate_of_risk(gamma: float, *, below_one: bool) -> float:
    """Gamma as a float; InputError outside (0, 1], or (0, 1)."""
    needed = f"a number in (0, 1{')' if below_one else ']'}"
    number = as_number("gamma", gamma, needed)
    if not 0.0 < number <= 1.0 or (below_one and number == 1.0):
        raise outside("gamma", gamma, needed)
    return number
