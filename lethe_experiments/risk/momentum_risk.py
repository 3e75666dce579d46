r"""Excess risk of full-batch private gradient descent with debiased momentum: the corrected Theorem 4.6, and the printed one.

Setting of `gradient_descent`, with steps $\eta = \eta_0/(2M)$ along $m_t$ of `momentum`. With $\gamma_c = 1 - \eta_0/(2\kappa)$,

$$A = \frac{\beta\gamma_c}{(\gamma_c - \beta)^2(1 - \beta)^3}, \qquad \zeta_c = 1 - \frac{\eta_0}{2} - A\eta_0^2 \ge 0,
\qquad \beta < \gamma_c,$$

$$E f(\theta_{T+1}) - f^* \le \big(\gamma_c^T + \eta_0\alpha R\,U_3(\gamma_c)\big)f_1
- \zeta_c\frac{\eta_0}{4M}\sum_t\gamma_c^{T-t}E\|v_{t+1}\|^2 .$$

*Proof.* Smoothness gives $f(\theta_{t+1}) - f(\theta_t) \le -\eta\langle\nabla_t, m_t\rangle + \frac{M\eta^2}{2}\|m_t\|^2$, and
$-\langle x, y\rangle = \frac12(\|x-y\|^2 - \|x\|^2 - \|y\|^2)$; the print omits the $\frac12$, which doubles the decay. The terms are
$-\frac\eta2\|\nabla_t\|^2 \le -\frac{\eta_0}{2\kappa}(f(\theta_t) - f^*)$, $-\frac\eta2(1-\frac{\eta_0}2)\|m_t\|^2$ and
$\frac\eta2\|\nabla_t - m_t\|^2$. The last is at most $\eta$ times the squared drift of the gradients plus $\eta$ times the squared
averaged noise; summed, the noise is $\eta_0\alpha R\,U_3f_1$ and the drift at most $A\eta_0^2$ times
$\frac{\eta_0}{4M}\sum_t\gamma_c^{T-t}\|v_{t+1}\|^2$ (Lemmas C.6 and C.7 with the half, for $\beta < \gamma_c$). $\square$

As beta falls to 0 the noise part stays $4/\eta_0$ times that of plain descent with the same step (as printed $8/\eta_0$), so no gain by
momentum is proved.

Reference: Hong, Wang, Zhou 2022, FAccT, Theorem 4.6, corrected; doi:10.1145/3531146.3533070.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_nonnegative, require_positive, require_vector
from lethe.errors import HypothesisError
from lethe_experiments.ranges import require_condition_number, require_inside
from lethe_experiments.risk.momentum import best_u3, u3, u3_short_bound, u3_uniform
from lethe_experiments.risk.momentum_weights import theorem_4_8_weights
from lethe_experiments.standing import PublishedNumber, refuted


def momentum_rate(*, kappa: float, relative_step: float) -> float:
    r"""$\gamma_c = 1 - \eta_0/(2\kappa)$.

    Args:
        kappa: $\kappa \ge 1$.
        relative_step: $\eta_0 \in (0, 2)$; the step size is $\eta_0/(2M)$.
    Raises:
        InputError: an argument is outside its range.
    """
    return 1.0 - require_inside("relative_step", relative_step, high=2.0) / (2.0 * require_condition_number(kappa))


def momentum_slack(*, kappa: float, beta: float, relative_step: float) -> float:
    r"""$\zeta_c$; the bound holds where it is nonnegative. $-\infty$ where $\beta \ge \gamma_c$, which is never allowed.

    Args:
        kappa: $\kappa \ge 1$.
        beta: $\beta \in (0, 1)$.
        relative_step: $\eta_0 \in (0, 2)$.
    Raises:
        InputError: an argument is outside its range.
    """
    gamma, beta = momentum_rate(kappa=kappa, relative_step=relative_step), require_inside("beta", beta)
    if beta >= gamma:
        return -math.inf
    drift = beta * gamma / ((gamma - beta) ** 2 * (1.0 - beta) ** 3)
    return 1.0 - relative_step / 2.0 - drift * relative_step * relative_step


def largest_relative_step(*, kappa: float, beta: float) -> float:
    r"""The largest $\eta_0$ with $\zeta_c \ge 0$; smaller ones are allowed too, as $\zeta_c$ falls with $\eta_0$.

    $$\eta_0 \le \frac{4}{1 + \sqrt{1 + 16A}},$$

    where A depends on $\eta_0$ through $\gamma_c$; solved by bisection, from below.

    Args:
        kappa: $\kappa \ge 1$.
        beta: $\beta \in (0, 1)$.
    Raises:
        InputError: an argument is outside its range.
    """
    low, high = 0.0, 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if not low < middle < high:
            break
        low, high = (middle, high) if momentum_slack(kappa=kappa, beta=beta, relative_step=middle) >= 0.0 else (low, middle)
    return low


def erub_momentum(*, kappa: float, beta: float, relative_step: float, alpha: float, budget: float, variances: ArrayLike) -> float:
    r"""The relative bound for any schedule, $\gamma_c^T + \eta_0\alpha R\,U_3(\gamma_c)$ (the term in $\zeta_c$ only lowers it).

    Args:
        kappa: $\kappa \ge 1$.
        beta: $\beta \in (0, 1)$.
        relative_step: $\eta_0$, with $\zeta_c \ge 0$.
        alpha: $\alpha \ge 0$ at that budget (`gradient_descent.noise_to_gap`).
        budget: $R > 0$ that alpha was computed with.
        variances: $\sigma_1^2..\sigma_T^2 \ge 0$, shape (T,).
    Raises:
        InputError: an argument is outside its range.
        HypothesisError: the step is too long for this momentum.
    Reference: Hong et al. 2022, Theorem 4.6, corrected.
    """
    gamma = require_momentum_rate(kappa=kappa, beta=beta, relative_step=relative_step)
    scale = relative_step * require_nonnegative("alpha", alpha, allow_infinity=False) * require_positive("budget", budget)
    sigma2 = require_vector("variances", variances, low=0.0)
    return gamma**sigma2.size + scale * u3(gamma=gamma, beta=beta, variances=sigma2)


def erub_momentum_uni(steps: int, *, kappa: float, beta: float, relative_step: float, alpha: float) -> float:
    r"""The relative bound with $\sigma_t^2 = T/R$: $\gamma_c^T + \eta_0\alpha T\,U_3(\gamma_c)/\sigma^2$; 1 at $T = 0$.

    Args:
        steps: $T \ge 0$.
        kappa: $\kappa \ge 1$.
        beta: $\beta \in (0, 1)$.
        relative_step: $\eta_0$, with $\zeta_c \ge 0$.
        alpha: $\alpha \ge 0$.
    Raises:
        InputError: an argument is outside its range.
        HypothesisError: the step is too long for this momentum.
    Reference: Hong et al. 2022, Theorem 4.7, corrected by `erub_momentum` and with the exact noise part.
    """
    gamma, steps, scale = _closed_form(steps, kappa, beta, relative_step, alpha)
    return gamma**steps + (scale * steps * u3_uniform(gamma=gamma, beta=beta, steps=steps) if steps else 0.0)


def erub_momentum_dyn(steps: int, *, kappa: float, beta: float, relative_step: float, alpha: float) -> float:
    r"""The relative bound with the schedule that minimises it: $\gamma_c^T + \eta_0\alpha(\sum_t\sqrt{u_t})^2$; 1 at $T = 0$.

    Args, Raises: as `erub_momentum_uni`.

    Reference: Hong et al. 2022, Theorem 4.8, corrected by `erub_momentum` and with the exact weights.
    """
    gamma, steps, scale = _closed_form(steps, kappa, beta, relative_step, alpha)
    return gamma**steps + (scale * best_u3(gamma=gamma, beta=beta, steps=steps) if steps else 0.0)


def erub_momentum_short(steps: int, *, kappa: float, beta: float, relative_step: float, alpha: float) -> float:
    r"""Theorem 4.8 up to $\hat T(\gamma_c, \beta)$ steps, in closed form: an upper bound of `erub_momentum_dyn`.

    $$\gamma_c^T\Big(1 + \alpha'\Big(\frac{1 - \gamma_c^{T/2}}{1 - \sqrt{\gamma_c}}\Big)^2\Big),
    \qquad \alpha' = \frac{\eta_0\alpha}{\gamma_c(1 - \gamma_c\beta^2)}$$

    The print has $2\eta_0\alpha$ and $\gamma = 1 - \eta_0/\kappa$, and uses the letter $\alpha'$ for another number beyond $\hat T$.

    Args, Raises: as `erub_momentum_uni`; InputError too beyond $\hat T$ steps.
    """
    gamma, steps, scale = _closed_form(steps, kappa, beta, relative_step, alpha)
    return gamma**steps + (scale * u3_short_bound(gamma=gamma, beta=beta, steps=steps) if steps else 0.0)


def erub_momentum_4_8(steps: int, *, kappa: float, beta: float, relative_step: float, alpha: float) -> float:
    r"""Theorem 4.8 for any number of steps: $\gamma_c^T + \eta_0\alpha(\sum_t\sqrt{q_t})^2$ with its corrected weights $q_t \ge u_t$.

    Never below `erub_momentum_dyn`, which has the exact weights; kept to compare with.

    Args, Raises: as `erub_momentum_uni`.

    Reference: Hong et al. 2022, Theorem 4.8, with the indicator on t and the constants of its proof corrected.
    """
    gamma, steps, scale = _closed_form(steps, kappa, beta, relative_step, alpha)
    if steps == 0:
        return 1.0
    return gamma**steps + scale * float(np.sum(np.sqrt(theorem_4_8_weights(gamma, beta, steps)))) ** 2


def printed_momentum_slack(*, kappa: float, beta: float, relative_step: float) -> float:
    r"""As printed, in the proof of Theorem 4.6.

    $$\zeta = 1 - \frac{\eta_0}4 - \frac{\beta\gamma\eta_0^2}{(\gamma-\beta)^2(1-\beta)^3}, \qquad \gamma = 1 - \eta_0/\kappa$$

    The statement of the theorem has another zeta; the proof's is meant. $-\infty$ where $\beta = \gamma$.

    Args, Raises: as `momentum_slack`.
    """
    gamma = 1.0 - require_inside("relative_step", relative_step, high=2.0) / require_condition_number(kappa)
    beta = require_inside("beta", beta)
    if beta == gamma:
        return -math.inf
    return 1.0 - relative_step / 4.0 - beta * gamma / ((gamma - beta) ** 2 * (1.0 - beta) ** 3) * relative_step**2


def printed_momentum_bound(
    *, kappa: float, beta: float, relative_step: float, alpha: float, budget: float, variances: ArrayLike, velocity: float = 0.0
) -> PublishedNumber:
    r"""Theorem 4.6 as printed, which is false; relative to the initial gap.

    $$\gamma^T + 2\eta_0\alpha R\,U_3(\gamma) - \zeta\,\frac{\eta_0}{2M f_1}\sum_t\gamma^{T-t}E\|v_{t+1}\|^2,
    \qquad \gamma = 1 - \eta_0/\kappa$$

    Without noise one quadratic with $\beta = 0.1$, $\kappa = 1.5$, $T = 5$ has three times this risk, and another makes the right side
    negative.

    Args:
        kappa: $\kappa \ge 1$.
        beta: $\beta \in (0, 1)$.
        relative_step: $\eta_0$ with $\gamma \in (0, 1)$.
        alpha: $\alpha \ge 0$ at that budget.
        budget: $R > 0$.
        variances: $\sigma_t^2 \ge 0$, shape (T,).
        velocity: $\frac{1}{M f_1}\sum_t\gamma^{T-t}E\|v_{t+1}\|^2 \ge 0$; 0 leaves the term out.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, Theorem 4.6 as printed, with zeta of its proof.
    """
    slack = printed_momentum_slack(kappa=kappa, beta=beta, relative_step=relative_step)
    gamma = require_inside("gamma = 1 - relative_step / kappa", 1.0 - relative_step / kappa)
    scale = 2.0 * relative_step * require_nonnegative("alpha", alpha, allow_infinity=False) * require_positive("budget", budget)
    sigma2 = require_vector("variances", variances, low=0.0)
    moved = relative_step / 2.0 * slack * require_nonnegative("velocity", velocity, allow_infinity=False) if velocity else 0.0
    return refuted(
        gamma**sigma2.size + scale * u3(gamma=gamma, beta=beta, variances=sigma2) - moved,
        r"\gamma^T + 2\eta_0\alpha R\,U_3 - \zeta\frac{\eta_0}{2M f_1}\sum_t\gamma^{T-t}E\|v_{t+1}\|^2",
        "its proof doubles the decay (eq. 28); use erub_momentum",
    )


def _closed_form(steps: int, kappa: float, beta: float, relative_step: float, alpha: float) -> tuple[float, int, float]:
    gamma = require_momentum_rate(kappa=kappa, beta=beta, relative_step=relative_step)
    return gamma, require_count("steps", steps, low=0), relative_step * require_nonnegative("alpha", alpha, allow_infinity=False)


def require_momentum_rate(*, kappa: float, beta: float, relative_step: float) -> float:
    r"""$\gamma_c$, where $\zeta_c \ge 0$; HypothesisError where the step is too long for this momentum."""
    if momentum_slack(kappa=kappa, beta=beta, relative_step=relative_step) < 0.0:
        largest = largest_relative_step(kappa=kappa, beta=beta)
        raise HypothesisError(
            f"the bound does not apply: relative_step = {relative_step:g}; with beta = {beta:g} and kappa = {kappa:g} it needs at most "
            f"{largest:.6g}.",
            source="the arguments relative_step and beta",
            remedy="take shorter steps or less momentum; without momentum use erub.",
        )
    return momentum_rate(kappa=kappa, relative_step=relative_step)
