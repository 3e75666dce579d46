r"""The noise part of the risk under debiased momentum, exactly and as bounded in print.

Momentum $m_t = v_{t+1}/(1 - \beta^t)$, $v_{t+1} = \beta v_t + (1 - \beta)g_t$, $v_1 = 0$. Noise of variance $\sigma_i^2$ in each
$g_i$ enters the bound of the risk (`momentum_risk`) through

$$U_3 = \sum_{t=1}^T \gamma^{T-t}\Big(\frac{1-\beta}{1-\beta^t}\Big)^2\sum_{i=1}^t \beta^{2(t-i)}\sigma_i^2 = \sum_i u_i\sigma_i^2 .$$

$\hat T$ is the largest t with $\gamma^{t-1} \ge (1-\beta)/(1-\beta^t)$: up to it momentum still averages more than the descent forgets.

Reference: Hong, Wang, Zhou 2022, FAccT, Theorems 4.6 to 4.8; doi:10.1145/3531146.3533070. Weights: `momentum_weights`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_vector
from lethe.errors import InputError
from lethe.run.schedules.momentum import momentum_weights
from lethe_experiments.ranges import require_inside
from lethe_experiments.risk.momentum_weights import turning_step


def u3(*, gamma: float, beta: float, variances: ArrayLike) -> float:
    r"""$U_3 = \sum_i u_i\sigma_i^2$, exact for any schedule.

    Args:
        gamma: $\gamma \in (0, 1)$, decay of the gap in a step.
        beta: $\beta \in (0, 1)$.
        variances: $\sigma_1^2..\sigma_T^2 \ge 0$, shape (T,).
    Raises:
        InputError: an argument is outside its range.
    """
    require_inside("gamma", gamma)
    require_inside("beta", beta)
    sigma2 = require_vector("variances", variances, low=0.0)
    with np.errstate(over="ignore"):
        return float(np.sum(momentum_weights(gamma, beta, sigma2.size) * sigma2))


def u3_uniform(*, gamma: float, beta: float, steps: int) -> float:
    r"""$U_3/\sigma^2$ with the same noise at every step, in one pass.

    $$\frac{U_3}{\sigma^2} = \sum_{t=1}^T \gamma^{T-t}\frac{(1-\beta)(1+\beta^t)}{(1-\beta^t)(1+\beta)}$$

    Args:
        gamma: $\gamma \in (0, 1)$.
        beta: $\beta \in (0, 1)$.
        steps: $T \ge 1$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, proof of Theorem 4.7.
    """
    rate, log_beta = -math.log(require_inside("gamma", gamma)), math.log(require_inside("beta", beta))
    t = np.arange(1.0, require_count("steps", steps) + 1.0)
    averaged = (1.0 - beta) / (1.0 + beta) * (1.0 + np.exp(t * log_beta)) / -np.expm1(t * log_beta)
    return float(np.sum(np.exp(-rate * (steps - t)) * averaged))


def u3_uniform_bound(*, gamma: float, beta: float, steps: int) -> float:
    r"""The upper bound of $U_3/\sigma^2$ in Theorem 4.7, which holds.

    $$\gamma^{T-1}\min(\hat T, T) + \max\Big(\frac{\gamma^{\hat T - 1} - \gamma^{T-1}}{1 - \gamma}, 0\Big)$$

    Args, Raises: as `u3_uniform`.

    Reference: Hong et al. 2022, Theorem 4.7.
    """
    require_inside("gamma", gamma)
    require_inside("beta", beta)
    steps, turn = require_count("steps", steps), turning_step(gamma, beta)
    tail = (gamma ** (turn - 1) - gamma ** (steps - 1)) / (1.0 - gamma)
    return gamma ** (steps - 1) * min(turn, steps) + max(tail, 0.0)


def u3_short_bound(*, gamma: float, beta: float, steps: int) -> float:
    r"""Up to $\hat T$ steps: an upper bound of $R\,U_3$ under the schedule $\sigma_t^2 \propto \gamma^{-t/2}$, which increases.

    $$R\,U_3 \le \frac{\gamma^{T}}{\gamma(1 - \gamma\beta^2)}\Big(\frac{1 - \gamma^{T/2}}{1 - \sqrt\gamma}\Big)^2, \qquad T \le \hat T$$

    Args:
        gamma: $\gamma \in (0, 1)$.
        beta: $\beta \in (0, 1)$.
        steps: $1 \le T \le \hat T$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, proof of Theorem 4.8, its second case.
    """
    rate = -math.log(require_inside("gamma", gamma))
    require_inside("beta", beta)
    turn = turning_step(gamma, beta)
    steps = require_count("steps", steps)
    if steps > turn:
        raise InputError(
            f"steps = {steps}; this bound holds up to {turn} steps for gamma = {gamma:g} and beta = {beta:g}.",
            source="the argument steps",
            remedy="use best_u3, which holds for any number of steps.",
        )
    share = math.expm1(-rate * steps / 2.0) / math.expm1(-rate / 2.0)
    return math.exp(-rate * steps) * share * share / (gamma * (1.0 - gamma * beta * beta))


def best_u3(*, gamma: float, beta: float, steps: int) -> float:
    r"""$\min R\,U_3 = (\sum_t\sqrt{u_t})^2$, reached by the schedule $\sigma_t^2 \propto u_t^{-1/2}$ of the exact weights.

    Never above what Theorem 4.8's weights give, and two lines as well.

    Args, Raises: as `u3_uniform`.

    Reference: Hong et al. 2022, Lemma 4.4, with the exact weights for Theorem 4.8's.
    """
    require_inside("gamma", gamma)
    require_inside("beta", beta)
    return float(np.sum(np.sqrt(momentum_weights(gamma, beta, require_count("steps", steps))))) ** 2
