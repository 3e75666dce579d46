r"""How many steps make the bounds of `gradient_descent` smallest: exactly, and as printed.

Both bounds fall and then rise in T. For the uniform schedule $E_u'(T)$ has the sign of $e^{gT} + gT - 1 - g/(\alpha\kappa)$, which
increases; $E_d$ is a convex parabola in $\gamma^{T/2}$, which decreases. So the best whole T is a neighbour of the real minimiser, $T = 0$
(do not train at all: the bound is 1) included.

Reference: Hong, Wang, Zhou 2022, FAccT, Theorems 4.3 and 4.5; doi:10.1145/3531146.3533070.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import wrightomega

from lethe.calculus.domains import require_positive
from lethe.errors import InputError
from lethe_experiments.risk.gradient_descent import decay, erub_dyn, erub_uni


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSteps:
    """The whole number of steps with the smallest bound.

    Args:
        steps: $T \\ge 0$; 0 means that no training has a smaller bound than the starting point.
        value: the relative bound there, at most 1.
        continuous: the minimiser over real T.
    """

    steps: int
    value: float
    continuous: float


def t_uni_exact(kappa: float, alpha: float) -> float:
    r"""The real T that minimises $E_u$, by Wright's omega function ($\omega + \ln\omega = x$).

    $$T_u = \frac1g\ln\omega\Big(1 + \frac{g}{\alpha\kappa}\Big)$$

    The paper says that there is no closed form. At $\kappa = 1$ the first step ends the descent: 1 is returned.

    Args:
        kappa: $\kappa \ge 1$.
        alpha: $\alpha > 0$.
    Raises:
        InputError: an argument is outside its range, or alpha too small for the range of numbers.
    """
    rate, alpha = decay(kappa), require_positive("alpha", alpha)
    return 1.0 if math.isinf(rate) else _finite(math.log(float(wrightomega(1.0 + rate / (alpha * kappa)))) / rate, alpha)


def t_dyn_exact(kappa: float, alpha: float) -> float:
    r"""The real T that minimises $E_d$.

    $$T_d = \frac2g\ln\Big(1 + \frac{(1 - \sqrt\gamma)^2}{\alpha}\Big)$$

    At $\kappa = 1$ the first step ends the descent: 1 is returned.

    Args, Raises: as `t_uni_exact`.

    Reference: Hong et al. 2022, eq. (27).
    """
    rate, alpha = decay(kappa), require_positive("alpha", alpha)
    return 1.0 if math.isinf(rate) else _finite(2.0 / rate * math.log1p(math.expm1(-rate / 2.0) ** 2 / alpha), alpha)


def best_steps_uniform(kappa: float, alpha: float) -> BestSteps:
    """The exact whole minimiser of $E_u$ over T = 0, 1, 2, ...; of equal ones the smallest.

    Args, Raises: as `t_uni_exact`.
    """
    return _best(erub_uni, t_uni_exact(kappa, alpha), kappa, alpha)


def best_steps_dynamic(kappa: float, alpha: float) -> BestSteps:
    """The exact whole minimiser of $E_d$ over T = 0, 1, 2, ...; of equal ones the smallest.

    Args, Raises: as `t_uni_exact`.
    """
    return _best(erub_dyn, t_dyn_exact(kappa, alpha), kappa, alpha)


def t_uni_printed(kappa: float, alpha: float) -> float:
    r"""As printed, not the minimiser: eq. (24), $T = \frac1g\ln(1 + g/\alpha)$; too long by about $\kappa\ln\kappa$.

    Its bound can exceed 1 by any factor (87.6 at $\kappa = 1000$, $\alpha = 0.01$), where no training at all has 1.

    Args:
        kappa: $\kappa > 1$.
        alpha: $\alpha > 0$.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, eq. (24).
    """
    rate, alpha = _slower_than_one_step(kappa), require_positive("alpha", alpha)
    return _finite(math.log1p(rate / alpha) / rate, alpha)


def t_uni_stated(kappa: float, alpha: float) -> int:
    r"""As printed, not the minimiser: Theorem 4.3 with its unnamed constant 1, $T = \lceil\kappa\ln(1 + 1/(\kappa\alpha))\rceil$.

    Args, Raises: as `t_uni_printed`.
    """
    return _ceiling(1.0, kappa, alpha)


def t_dyn_stated(kappa: float, alpha: float) -> int:
    r"""As printed, not the minimiser: Theorem 4.5, $T = \lceil2\kappa\ln(1 + 1/(\kappa\alpha))\rceil$; its proof has `t_dyn_exact`.

    Args, Raises: as `t_uni_printed`.
    """
    return _ceiling(2.0, kappa, alpha)


def _best(bound: Callable[[float, float, float], float], continuous: float, kappa: float, alpha: float) -> BestSteps:
    # One more on either side: rounding may put the real minimiser across a whole number.
    below = math.floor(continuous)
    candidates = {max(below + offset, 0) for offset in (-1, 0, 1, 2)}
    value, steps = min((bound(steps, kappa, alpha), steps) for steps in candidates)
    return BestSteps(steps=steps, value=value, continuous=continuous)


def _ceiling(factor: float, kappa: float, alpha: float) -> int:
    _slower_than_one_step(kappa)
    return math.ceil(_finite(factor * kappa * math.log1p(1.0 / (kappa * require_positive("alpha", alpha))), alpha))


def _slower_than_one_step(kappa: float) -> float:
    rate = decay(kappa)
    if math.isinf(rate):
        raise InputError(
            "kappa = 1; the printed formulas need kappa > 1.",
            source="the argument kappa",
            remedy="one step ends the descent: use best_steps_uniform.",
        )
    return rate


def _finite(steps: float, alpha: float) -> float:
    if not math.isfinite(steps):
        raise InputError(
            f"alpha = {alpha!r}; it is too small for a number of steps to be computed.",
            source="the argument alpha",
            remedy="check the units of alpha's factors.",
        )
    return steps
