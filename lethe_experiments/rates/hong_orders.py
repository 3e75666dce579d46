r"""The orders of Theorems 4.3, 4.5, 4.7 and 4.8 in kappa and alpha, with constants 1: to compare, never as guarantees.

The bounds themselves are exact and no harder: `best_steps`, `momentum_risk`.

Reference: Hong, Wang, Zhou 2022, FAccT; doi:10.1145/3531146.3533070.
"""

from __future__ import annotations

import math

from lethe.calculus.domains import require_count, require_positive
from lethe_experiments.ranges import require_condition_number, require_inside
from lethe_experiments.standing import PublishedNumber, order


def uniform_order(kappa: float, alpha: float) -> PublishedNumber:
    r"""Theorem 4.3: $\frac{\kappa^2}{\kappa + 1/\alpha}\ln(1 + \frac1{\kappa\alpha})$.

    Beyond 1 it says nothing; the exact minimum never exceeds 1.

    Args:
        kappa: $\kappa \ge 1$.
        alpha: $\alpha > 0$.
    Raises:
        InputError: an argument is outside its range.
    """
    kappa, alpha = require_condition_number(kappa), require_positive("alpha", alpha)
    value = kappa * kappa / (kappa + 1.0 / alpha) * math.log1p(1.0 / (kappa * alpha))
    return order(value, r"\frac{\kappa^2}{\kappa+1/\alpha}\ln(1+\frac1{\kappa\alpha})")


def dynamic_order(kappa: float, alpha: float) -> PublishedNumber:
    r"""Theorem 4.5: $\kappa^2/(\kappa^2 + 1/\alpha)$.

    Args, Raises: as `uniform_order`.
    """
    kappa, alpha = require_condition_number(kappa), require_positive("alpha", alpha)
    return order(kappa * kappa / (kappa * kappa + 1.0 / alpha), r"\kappa^2/(\kappa^2 + 1/\alpha)")


def momentum_uniform_order(kappa: float, alpha: float, *, relative_step: float, gamma: float, turn: int) -> PublishedNumber:
    r"""Theorem 4.7, in its two cases.

    $$\frac{\kappa^2}{\kappa + \eta_0/\alpha}\big[1(T\le\hat T) + \gamma^{\hat T-1}\ell\,1(T>\hat T)\big],
    \qquad \ell = \ln\Big(1 + \frac{\eta_0}{\kappa\alpha}\Big),\ T = \ell/\ln(1/\gamma)$$

    Args:
        kappa: $\kappa \ge 1$.
        alpha: $\alpha > 0$.
        relative_step: $\eta_0 > 0$.
        gamma: $\gamma \in (0, 1)$.
        turn: $\hat T \ge 1$.
    Raises:
        InputError: an argument is outside its range.
    """
    kappa, alpha, step, rate = _momentum(kappa, alpha, relative_step, gamma)
    log, turn = math.log1p(step / (kappa * alpha)), require_count("turn", turn)
    bracket = 1.0 if log / rate <= turn else math.exp(-rate * (turn - 1)) * log
    formula = r"\frac{\kappa^2}{\kappa+\eta_0/\alpha}[1(T\le\hat T)+\gamma^{\hat T-1}\ln(1+\frac{\eta_0}{\kappa\alpha})1(T>\hat T)]"
    return order(kappa * kappa / (kappa + step / alpha) * bracket, formula)


def momentum_dynamic_order(kappa: float, alpha: float, *, relative_step: float, gamma: float, turn: int) -> PublishedNumber:
    r"""Theorem 4.8, in its two cases.

    $$r\big(r\,1(T\le\hat T) + 1(T>\hat T)\big), \qquad r = \frac{\kappa\alpha}{\kappa\alpha + \eta_0},\ T = 2\ell/\ln(1/\gamma)$$

    Args, Raises: as `momentum_uniform_order`.
    """
    kappa, alpha, step, rate = _momentum(kappa, alpha, relative_step, gamma)
    share = kappa * alpha / (kappa * alpha + step)
    short = 2.0 / rate * math.log1p(step / (kappa * alpha)) <= require_count("turn", turn)
    return order(share * share if short else share, r"r(r\,1(T\le\hat T)+1(T>\hat T)),\ r=\kappa\alpha/(\kappa\alpha+\eta_0)")


def _momentum(kappa: float, alpha: float, relative_step: float, gamma: float) -> tuple[float, float, float, float]:
    return (
        require_condition_number(kappa),
        require_positive("alpha", alpha),
        require_positive("relative_step", relative_step),
        -math.log(require_inside("gamma", gamma)),
    )
