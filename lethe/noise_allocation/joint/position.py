r"""The best noise when only the last iterate is released, for one known position of the record, in closed form.

Noise multipliers and sensitivities are in one unit; step t is $L_t$-Lipschitz and moves by $s_t$ more when the record changes. The last
iterate is $\mu$-GDP with $\mu^2 = \sum a_t^2/\sigma_t^2$ for any payments $a_t \ge 0$ with

$$z_t = L_t z_{t-1} + s_t - a_t \ge 0, \qquad z_0 = z_T = 0.$$

For fixed payments the best noise is `optimal_schedule` with costs $a_t$, whose value is $(\sum a_t\sqrt{q_t})^2$. What remains is linear.
Payments are feasible exactly if they split each shift $s_j$ over the steps $t \ge j$, a share $p$ of it adding $p\,s_j L_{j+1}\cdots L_t$
to $a_t$. No share limits another, so all of $s_j$ is paid at the step where $\sqrt{q_t}\,L_{j+1}\cdots L_t$ is least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_nonnegative, require_positive, require_vector
from lethe.errors import InputError
from lethe.run.schedules.allocation import optimal_schedule
from lethe.run.schedules.base import Array

Regime = Literal["composition-optimal", "degenerate", "output-perturbation", "mixed"]

_EPS = float(np.finfo(np.float64).eps)
# Costs this near in logarithm are equal: what rounding leaves of a tie. Ties are paid at once, and never reset.
_TIE = 1e-13
# Shifts are kept above the first, which is sound because larger ones cost more; payments below the second are refused.
_FAINTEST_SHIFT, _SMALLEST_PAYMENT = 1e-290, 1e-280


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointSchedule:
    r"""Noise and payments that are optimal together."""

    value: float
    r"""$R \sum_t q_t \sigma_t^2 = (\sum_t a_t \sqrt{q_t})^2$, the least there is; it does not depend on R."""
    payments: Array
    r"""$a_t$, shape (T,), units of the sensitivity; rounded up where a shift was carried."""
    variances: Array
    r"""$\sigma_t^2$, shape (T,), squared units of the sensitivity, rounded up: $\sum a_t^2/\sigma_t^2 \le R$. 0 where $a_t = 0$."""
    window: int = 0
    r"""$\tau$: up to this step there is no noise, and the diameter stands for all that came before; 0 if the diameter is not used."""


def joint_schedule(weights: ArrayLike, sensitivity: ArrayLike, lipschitz: ArrayLike, budget: float = 1.0) -> JointSchedule:
    r"""Noise of least harm whose last iterate is $\sqrt R$-GDP, for one known position of the record (all of them, in full batches).

    $$\min_\sigma \sum_t q_t\sigma_t^2 \ \text{ s.t. } \mu^2(\sigma) \le R, \qquad
    R \cdot \min = \Big(\sum_j s_j \min_{t \ge j} \sqrt{q_t}\,L_{j+1}\cdots L_t\Big)^2$$

    O(T). With $\mu^2 = R$ this is $R/2$-zCDP: $R = 2\rho$.

    Args:
        weights: $q_t > 0$, shape (T,): what one unit of $\sigma_t^2$ does to the final loss.
        sensitivity: $s_t \ge 0$, a number or shape (T,): how far step t moves when the record changes; 0 where it is not touched.
        lipschitz: $L_t \ge 0$, a number or shape (T,): of each step before its noise, for every data set. 0 forgets what came before.
        budget: $R > 0$.
    Returns:
        The optimal JointSchedule; of equally good ones, that which pays soonest.
    Raises:
        InputError: an argument is outside its range, lengths differ, or a result is beyond what doubles hold.
    Reference: the privacy of given noise is Bok, Su & Altschuler 2024, arXiv:2403.00278, Lemma C.3; the proof of the optimum is the one
        at the head of this module.
    """
    run = _Steps(weights, sensitivity, lipschitz)
    return _solved(run, run.cheapest(), budget)


def joint_schedule_reset(
    weights: ArrayLike, sensitivity: ArrayLike, lipschitz: ArrayLike, diameter: ArrayLike, budget: float = 1.0
) -> JointSchedule:
    r"""As `joint_schedule`, where the two runs are also never further apart than a diameter, as on a bounded domain.

    After one step $\tau$ the shift may be taken as $\min(D_\tau, f_\tau)$ with $f_t = \min(D_t, L_t f_{t-1} + s_t)$, whatever was paid
    before; so steps $1..\tau$ need no noise. With $m_j = \min_{t \ge j}\sqrt{q_t}\,L_{j+1}\cdots L_t$:

    $$R \cdot \min = \min_\tau \Big(\min(D_\tau, f_\tau)\,L_{\tau+1} m_{\tau+1} + \sum_{j>\tau} s_j m_j\Big)^2$$

    Args:
        weights, sensitivity, lipschitz, budget: as `joint_schedule`.
        diameter: $D_t \ge 0$, a number or shape (T,), units of the sensitivity, after step t; inf: no bound.
    Returns:
        The optimal JointSchedule; `window` is the best $\tau$, 0 if no reset is better than none.
    Raises:
        InputError: as `joint_schedule`, or a diameter that is negative, nan or of another shape.
    """
    run = _Steps(weights, sensitivity, lipschitz)
    bound = _each_step("diameter", diameter, run.count, allow_infinity=True)
    cheapest = run.cheapest()
    tracked = _tracked(run, bound)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        touched = run.sensitivity * np.exp(cheapest)
        later = np.append(np.cumsum(touched[::-1])[::-1], 0.0)
        carried = np.array(tracked[:-1]) * np.exp(np.log(run.lipschitz) + cheapest)
        # inf * 0: an unbounded distance that is forgotten later, where no reset is as good.
        totals = np.nan_to_num(carried, nan=np.inf, posinf=np.inf) + later[:-1]
    window = int(np.argmin(totals))
    if not totals[window] < totals[0] * (1.0 - run.count * _TIE):
        window = 0
    return _solved(run, cheapest, budget, window=window, start=tracked[window])


def regime(weights: ArrayLike, lipschitz: ArrayLike) -> Regime:
    r"""The form of the optimum of `joint_schedule` when every step touches the record.

    Decided by $c_t = \sqrt{q_t}/\prod_{j>t} L_j$ (for constant L: $\sqrt{q_t}\,L^t$ up to a constant). Nondecreasing: each touch is
    paid by its own step, $a_t = s_t$, and hiding the iterates gains nothing over composition. Smallest at the end: all noise at the
    last step. For $q_t = \gamma^{T-t}$ and constant L these are $L \ge \sqrt\gamma$ and $L \le \sqrt\gamma$.

    Args:
        weights: $q_t > 0$, shape (T,).
        lipschitz: $L_t \ge 0$, a number or shape (T,).
    Returns:
        "composition-optimal"; "output-perturbation"; "degenerate" if it is both, so that every feasible payment is optimal; "mixed" if
        it is neither.
    Raises:
        InputError: an argument is outside its range, or lengths differ.
    """
    run = _Steps(weights, 0.0, lipschitz)
    with np.errstate(divide="ignore"):
        changes = np.diff(run.log_roots) + np.log(run.lipschitz[1:])
    allowance = _TIE * np.arange(changes.size, 0, -1)
    composition = bool(np.all(changes >= -_TIE))
    output = bool(np.all(np.cumsum(changes[::-1])[::-1] <= allowance))
    if composition and output:
        return "degenerate"
    return "composition-optimal" if composition else "output-perturbation" if output else "mixed"


class _Steps:
    """The checked arguments, one entry a step."""

    def __init__(self, weights: ArrayLike, sensitivity: ArrayLike, lipschitz: ArrayLike) -> None:
        self.weights = require_vector("weights", weights, low=0.0, strict=True)
        self.count = self.weights.size
        self.sensitivity = _each_step("sensitivity", sensitivity, self.count)
        self.lipschitz = _each_step("lipschitz", lipschitz, self.count)
        self.log_roots = 0.5 * np.log(self.weights)

    def cheapest(self) -> Array:
        r"""$\log m_j$, $m_j = \min_{t \ge j}\sqrt{q_t}\,L_{j+1}\cdots L_t$, shape (T,); -inf where all is forgotten later.

        A step pays exactly where this is its own $\log\sqrt{q_j}$.
        """
        result = self.log_roots.copy()
        own, factors = self.log_roots.tolist(), self.lipschitz.tolist()
        cost = own[-1]
        for j in range(self.count - 2, -1, -1):
            cost = cost + math.log(factors[j + 1]) if factors[j + 1] > 0.0 else -math.inf
            if own[j] <= cost + _TIE:
                cost = own[j]
            result[j] = cost
        return result


def _solved(run: _Steps, cheapest: Array, budget: float, *, window: int = 0, start: float = 0.0) -> JointSchedule:
    payments = _payments(run, cheapest == run.log_roots, window, start)
    allocation = optimal_schedule(run.weights, require_positive("budget", budget), payments)
    return JointSchedule(value=allocation.value, payments=payments, variances=allocation.variances, window=window)


def _payments(run: _Steps, pays: np.ndarray[tuple[int], np.dtype[np.bool_]], window: int, start: float) -> Array:
    """Carry the shift forward and pay all of it wherever it is cheapest. Any choice of steps would be sound: this one is optimal."""
    payments = np.zeros(run.count)
    shift, error = start, 0.0
    for t in range(window, run.count):
        factor = float(run.lipschitz[t])
        arriving = _grown(factor, shift)
        shift = arriving + float(run.sensitivity[t])
        # A product, a sum and the sum below: three roundings of half an epsilon each, and what is left for their own rounding.
        error = factor * error + 2.0 * _EPS * shift if arriving > 0.0 else 0.0
        if not bool(pays[t]) or shift == 0.0:
            continue
        payments[t] = shift + error
        if not _SMALLEST_PAYMENT <= payments[t] < math.inf:
            raise InputError(
                f"the shift to be paid at step {t + 1} would be {payments[t]:g}; it needs to stay between {_SMALLEST_PAYMENT:g} and 1e308.",
                source="sensitivity and the product of the Lipschitz constants after it",
                remedy="take fewer steps, or another unit.",
            )
        shift, error = 0.0, 0.0
    return payments


def _tracked(run: _Steps, diameter: Array) -> list[float]:
    """f_0 .. f_T: the largest distance between the two runs when nothing has been paid."""
    result = [0.0]
    for factor, added, cap in zip(run.lipschitz.tolist(), run.sensitivity.tolist(), diameter.tolist(), strict=True):
        # Three roundings of half an epsilon, upward.
        result.append(min(cap, (_grown(factor, result[-1]) + added) * (1.0 + 2.0 * _EPS)))
    return result


def _grown(factor: float, shift: float) -> float:
    return max(factor * shift, _FAINTEST_SHIFT) if factor > 0.0 and shift > 0.0 else 0.0


def _each_step(name: str, given: ArrayLike, count: int, *, allow_infinity: bool = False) -> Array:
    try:
        single = np.ndim(given) == 0
    except ValueError:
        single = False
    if single:
        return np.full(count, require_nonnegative(name, given, allow_infinity=allow_infinity))
    values = require_vector(name, given, low=0.0, allow_infinity=allow_infinity)
    if values.size != count:
        raise outside(name, f"a list of {values.size} numbers", f"a number, or one entry for each of the {count} weights")
    return values
