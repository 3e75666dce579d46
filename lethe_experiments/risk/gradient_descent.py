r"""Excess risk of full-batch private gradient descent: the bound for any schedule, and its closed forms for two.

Relative bounds (`erub`): $E[f(\theta_{T+1})] - f^*$ divided by the initial gap. The mean loss is M-smooth and satisfies
$\|\nabla f\|^2 \ge 2\mu(f - f^*)$; steps of size $1/M$, no momentum, no clipping; noise $N(0, (G\sigma_t/N)^2 I_D)$ on the mean gradient.
$\kappa = M/\mu \ge 1$, $\gamma = 1 - 1/\kappa$, $g = \ln(1/\gamma)$, $R = \sum_t \sigma_t^{-2}$ = budget (twice the rho of zCDP).
Compare every value with 1: no step at all leaves the initial gap, and a bound above 1 says less than that.

Reference: Hong, Wang, Zhou 2022, FAccT, Theorems 4.2, 4.3 and 4.5; doi:10.1145/3531146.3533070. How many steps: `best_steps`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_nonnegative, require_positive, require_vector
from lethe.errors import InputError
from lethe_experiments.ranges import require_condition_number


def noise_to_gap(*, dimension: int, gradient_bound: float, budget: float, smoothness: float, records: int, initial_gap: float) -> float:
    r"""$\alpha$, what one unit of budget's noise adds to the risk in a step, relative to the initial gap.

    $$\alpha = \frac{D G^2}{2 R M N^2 f_1}$$

    It falls as the budget rises; $R\alpha$, which is what bounds use, does not depend on the budget.

    Args:
        dimension: $D \ge 1$, number of parameters.
        gradient_bound: $G > 0$, norm of one record's gradient, loss per parameter unit.
        budget: $R > 0$, $\sum 1/\sigma_t^2$; dimensionless.
        smoothness: $M > 0$ of the mean loss, loss per squared parameter unit.
        records: $N \ge 1$, the divisor of the gradient sum.
        initial_gap: $f_1 = f(\theta_1) - f^* > 0$, loss units.
    Returns:
        $\alpha$, dimensionless.
    Raises:
        InputError: an argument is outside its range, or the result outside the range of numbers.
    Reference: Hong et al. 2022, eq. (4).
    """
    factors = (
        require_count("dimension", dimension),
        require_positive("gradient_bound", gradient_bound),
        require_positive("budget", budget),
        require_positive("smoothness", smoothness),
        require_count("records", records),
        require_positive("initial_gap", initial_gap),
    )
    d, g, r, m, n, f = (math.log(factor) for factor in factors)
    exponent = d + 2.0 * g - math.log(2.0) - r - m - 2.0 * n - f
    if not -700.0 < exponent < 700.0:
        raise InputError(
            f"alpha would be e^{exponent:.0f}, beyond the range of numbers.",
            source="dimension, gradient_bound, budget, smoothness, records and initial_gap together",
            remedy="check their units.",
        )
    return math.exp(exponent)


def decay(kappa: float) -> float:
    r"""$g = \ln(1/\gamma) = -\ln(1 - 1/\kappa)$, the rate at which the gap shrinks; inf at $\kappa = 1$.

    Args:
        kappa: $\kappa = M/\mu \ge 1$.
    Raises:
        InputError: kappa is below 1 or not finite.
    """
    kappa = require_condition_number(kappa)
    return math.inf if kappa == 1.0 else -math.log1p(-1.0 / kappa)


def erub(*, kappa: float, alpha: float, budget: float, variances: ArrayLike) -> float:
    r"""The relative bound for any schedule.

    $$\frac{E f(\theta_{T+1}) - f^*}{f_1} \le \gamma^T + R\alpha\sum_{t=1}^T \gamma^{T-t}\sigma_t^2$$

    Args:
        kappa: $\kappa \ge 1$.
        alpha: $\alpha \ge 0$ at that budget (`noise_to_gap`).
        budget: $R > 0$ that alpha was computed with.
        variances: $\sigma_1^2..\sigma_T^2 \ge 0$, shape (T,); noise multipliers squared.
    Returns:
        The bound, dimensionless; inf beyond the range of numbers.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, Theorem 4.2 (eq. 7).
    """
    rate = decay(kappa)
    scale = require_positive("budget", budget) * require_nonnegative("alpha", alpha, allow_infinity=False)
    sigma2 = require_vector("variances", variances, low=0.0)
    if math.isinf(rate):
        return scale * float(sigma2[-1])
    left = np.arange(sigma2.size - 1, -1, -1, dtype=np.float64)
    with np.errstate(over="ignore"):
        return math.exp(-rate * sigma2.size) + float(np.sum(np.exp(-rate * left) * (scale * sigma2)))


def erub_uni(steps: float, kappa: float, alpha: float) -> float:
    r"""The relative bound with the same noise at every step, $\sigma_t^2 = T/R$.

    $$E_u(T) = \gamma^T + \alpha\kappa T(1 - \gamma^T)$$

    Args:
        steps: $T \ge 0$; whole for a run, any number to study the formula.
        kappa: $\kappa \ge 1$.
        alpha: $\alpha \ge 0$.
    Returns:
        $E_u(T)$; exactly 1 at $T = 0$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, eq. (9).
    """
    steps, kappa, alpha, rate = _checked(steps, kappa, alpha)
    return 1.0 if steps == 0.0 else math.exp(-rate * steps) - alpha * kappa * steps * math.expm1(-rate * steps)


def erub_dyn(steps: float, kappa: float, alpha: float) -> float:
    r"""The relative bound with the schedule that minimises it, $\sigma_t^2 \propto \gamma^{t/2}$.

    $$E_d(T) = \gamma^T + \alpha\Big(\frac{1 - \gamma^{T/2}}{1 - \sqrt\gamma}\Big)^2$$

    At $\kappa = 1$ the last step forgets all others, so the whole budget is its.

    Args, Returns, Raises: as `erub_uni`.

    Reference: Hong et al. 2022, Theorem 4.5 and its proof.
    """
    steps, kappa, alpha, rate = _checked(steps, kappa, alpha)
    if steps == 0.0:
        return 1.0
    share = math.expm1(-rate * steps / 2.0) / math.expm1(-rate / 2.0)
    return math.exp(-rate * steps) + alpha * share * share


def erub_dyn_min(kappa: float, alpha: float) -> float:
    r"""The minimum of $E_d$ over real $T \ge 0$: no number of steps and no schedule makes the bound smaller.

    $$\min_T E_d(T) = \frac{b}{1 + b}, \qquad b = \frac{\alpha}{(1 - \sqrt\gamma)^2} \in [\kappa^2\alpha, 4\kappa^2\alpha]$$

    Args:
        kappa: $\kappa \ge 1$.
        alpha: $\alpha \ge 0$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, proof of Theorem 4.5.
    """
    _, _, alpha, rate = _checked(0, kappa, alpha)
    square = math.expm1(-rate / 2.0) ** 2
    return alpha / (alpha + square)


def _checked(steps: object, kappa: float, alpha: float) -> tuple[float, float, float, float]:
    rate = decay(kappa)
    return (
        require_nonnegative("steps", steps, allow_infinity=False),
        float(kappa),
        require_nonnegative("alpha", alpha, allow_infinity=False),
        rate,
    )
