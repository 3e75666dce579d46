r"""Bounded range: what an exponential mechanism satisfies beyond pure differential privacy, and what that is worth in other currencies.

quantile.py draws by the exponential mechanism and takes its guarantee from here; `lethe.accounting.derivations` computes that of a file
again. From $\epsilon$-DP alone its Rényi, GDP and $\delta$ bounds would be larger than need be.

A mechanism is $\epsilon$-BR when on any two neighbouring data sets the logarithm of the ratio of its two densities stays within some
interval of length $\epsilon$, which contains 0: $\epsilon$-BR implies $\epsilon$-DP, and is up to a factor 2 stronger. Largest are all
divergences where the ratio takes two values only, x and $xa$ with $a = e^{-\epsilon}$; what is left is to maximise over x (docs/theory.md,
section 16).

Reference: Durfee & Rogers 2019, arXiv:1905.04273; Dong, Durfee, Rogers 2020, arXiv:1909.13830; Cesar & Rogers 2021, arXiv:2004.07223.
"""

import math

import numpy as np
from scipy import special

from lethe.calculus.composition import require_target
from lethe.calculus.domains import FloatArray, require_nonnegative, require_vector
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, Guarantee, RDPCurve, Tightest
from lethe.calculus.rounding import above, round_down, round_up, square_above
from lethe.mechanisms.base import target_mu

_EPS = float(np.finfo(np.float64).eps)
_ORDERS = 1.0 + np.geomspace(0.05, 1e4, 100)


def range_renyi(epsilon: float, orders: FloatArray | list[float]) -> FloatArray:
    r"""The exact largest Rényi divergence of an $\epsilon$-BR mechanism at each order $\alpha > 1$, rounded up, shape of the orders.

    $$\max_x \frac{x^{\alpha-1}}{1-a}\left[(1-a^\alpha) - x(a - a^\alpha)\right]
      = \frac{1-a^\alpha}{\alpha(1-a)}\,x_*^{\alpha-1},\qquad
      x_* = \frac{(\alpha-1)(1-a^\alpha)}{\alpha a(1-a^{\alpha-1})},\quad a = e^{-\epsilon},$$

    and the divergence is its logarithm over $\alpha - 1$, by Hoeffding's lemma at most $\alpha\epsilon^2/8$ (Cesar & Rogers 2021).
    """
    level = require_nonnegative("epsilon", epsilon, allow_infinity=False)
    alpha = require_vector("orders", orders, low=1.0, strict=True)
    simple = np.minimum(alpha * (level * level / 8.0), level)
    if level < 1e-3:  # the two agree to 1e-8 there, and the exact one cancels
        return above(simple) if level > 0.0 else simple
    excess = alpha - 1.0
    log_rest = np.log(-np.expm1(-alpha * level))
    log_best = np.log(excess / alpha) + log_rest + level - np.log(-np.expm1(-excess * level))
    log_one = math.log(-math.expm1(-level))
    exact = (log_rest - np.log(alpha) - log_one) / excess + log_best
    magnitude = (np.abs(log_rest) + np.log(alpha) + abs(log_one)) / excess + np.abs(log_best) + 2.0 * level + 1.0
    return np.minimum(exact + 16.0 * _EPS * magnitude, above(simple))


def range_delta(epsilon: float, level: float) -> float:
    r"""The exact largest hockey-stick divergence at `level` of an $\epsilon$-BR mechanism, rounded up.

    $$\delta(\epsilon') = \max_x \tfrac{1 - xa}{x(1-a)}\,(x - e^{\epsilon'})
      = \frac{\left(1 - e^{(\epsilon'-\epsilon)/2}\right)^2}{1-e^{-\epsilon}}
      \quad(\epsilon' < \epsilon),\qquad x_* = e^{(\epsilon+\epsilon')/2},$$

    and 0 from $\epsilon' = \epsilon$ on (Dong, Durfee, Rogers 2020, of one mechanism).
    """
    bound, at = require_nonnegative("epsilon", epsilon, allow_infinity=False), require_nonnegative("level", level)
    if at >= bound:
        return 0.0
    return min(round_up(math.expm1(0.5 * (at - bound)) ** 2 / -math.expm1(-bound), 16.0 * _EPS), 1.0)


def range_mu(epsilon: float) -> float:
    r"""The smallest $\mu$ such that every $\epsilon$-BR mechanism is $\mu$-GDP, rounded up.

    $$\mu = 2\Phi^{-1}\!\left(\frac{1}{1+e^{-\epsilon/2}}\right) \approx 0.627\,\epsilon$$

    Proof: docs/theory.md, section 16, by trade-offs (Dong, Roth, Su 2019, arXiv:1905.02383) and van Zwet's order of laws.
    """
    level = require_nonnegative("epsilon", epsilon, allow_infinity=False)
    if level == 0.0:
        return 0.0
    return round_up(-2.0 * float(special.ndtri_exp(special.log_expit(-0.5 * level))), 1e-13) + 4e-15


def range_of_mu(mu: float) -> float:
    r"""The largest $\epsilon$ for which $\epsilon$-BR implies $\mu$-GDP, rounded down: $2\log\frac{\Phi(\mu/2)}{\Phi(-\mu/2)}$."""
    half = 0.5 * require_nonnegative("mu", mu, allow_infinity=False)
    ratio = 2.0 * float(special.log_ndtr(half) - special.log_ndtr(-half))
    return max(round_down(ratio, 4e-13) - 4e-14, 0.0)


def range_guarantee(epsilon: float) -> Tightest:
    r"""All that an $\epsilon$-BR mechanism satisfies: $\epsilon$-DP, $\mu$-GDP, and its exact Rényi curve."""
    curve = RDPCurve(tuple(_ORDERS.tolist()), tuple(range_renyi(epsilon, _ORDERS).tolist()))
    return Tightest((ApproxDP(epsilon, 0.0), GDP(range_mu(epsilon)), curve))


def range_of_target(target: Guarantee) -> float:
    r"""The largest $\epsilon$, rounded down, for which $\epsilon$-BR is known here to imply the target.

    $\mu$-GDP: `range_of_mu`. $\rho$-zCDP: $\sqrt{8\rho}$, and so for a Rényi curve. $(\epsilon,\delta)$: `range_delta` solved,
    $\epsilon_{BR} = 2\log\frac{E + \sqrt{\delta(E^2 - 1 + \delta)}}{1-\delta}$ with $E = e^{\epsilon/2}$; $\epsilon$ for $\delta = 0$.
    """
    goal = require_target(target)
    if isinstance(goal, GDP):
        return range_of_mu(goal.mu)
    if isinstance(goal, ApproxDP):
        if goal.delta_bound == 0.0:
            return goal.epsilon_bound
        half = 0.5 * goal.epsilon_bound
        rest = math.sqrt(goal.delta_bound * (-math.expm1(-goal.epsilon_bound) + goal.delta_bound * math.exp(-goal.epsilon_bound)))
        return round_down(2.0 * (half + math.log1p(rest) - math.log1p(-goal.delta_bound)), 1e-13)
    return round_down(2.0 * target_mu(goal), 1e-14)


def guarantee_for(epsilon: float, target: Guarantee) -> Guarantee:
    r"""What an $\epsilon$-BR mechanism made for a target satisfies, in the target's own currency, in which it composes without loss."""
    if isinstance(target, GDP):
        return GDP(range_mu(epsilon))
    if isinstance(target, ZCDP):
        return ZCDP(float(above(square_above(epsilon) / 8.0, 4e-16)) if epsilon > 0.0 else 0.0)
    everything = range_guarantee(epsilon)
    if isinstance(target, ApproxDP) and target.delta_bound > 0.0:
        return Tightest((ApproxDP(target.epsilon_bound, range_delta(epsilon, target.epsilon_bound)), *everything.parts))
    return everything
