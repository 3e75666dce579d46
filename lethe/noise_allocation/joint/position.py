r"""The best noise when only the last iterate is released, in closed form: for one known position of the record, or steps without growth.

`noise_shapes` calls it for full batches, for one known batch and for noise at pass ends; no solver is needed there. $q_t$ is the harm of a
unit of noise variance at step t.

Noise multipliers and sensitivities are in one unit; step t is $L_t$-Lipschitz and moves by $s_t$ more when the record changes. The last
iterate is $\mu$-GDP with $\mu^2 = \sum a_t^2/\sigma_t^2$ for any payments $a_t \ge 0$ with

$$z_t = L_t z_{t-1} + s_t - a_t \ge 0, \qquad z_0 = z_T = 0.$$

For fixed payments the best noise is `optimal_schedule` with costs $a_t$, whose value is $(\sum a_t\sqrt{q_t})^2$. What remains is linear.
Payments are feasible exactly if they split each shift $s_j$ over the steps $t \ge j$, a share $p$ of it adding $p\,s_j L_{j+1}\cdots L_t$
to $a_t$. No share limits another, so all of $s_j$ is paid at the step where $\sqrt{q_t}\,L_{j+1}\cdots L_t$ is least.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import InputError
from lethe.run.schedules.allocation import optimal_schedule
from lethe.run.schedules.shapes import Array

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


def joint_schedule(
    weights: ArrayLike, sensitivity: ArrayLike, lipschitz: ArrayLike, budget: float = 1.0, *, diameter: ArrayLike = math.inf
) -> JointSchedule:
    r"""Noise of least harm whose last iterate is $\sqrt R$-GDP, for one known position of the record (all of them, in full batches).

    $$\min_\sigma \sum_t q_t\sigma_t^2 \ \text{ s.t. } \mu^2(\sigma) \le R, \qquad
    R \cdot \min = \Big(\sum_j s_j m_j\Big)^2, \quad m_j = \min_{t \ge j} \sqrt{q_t}\,L_{j+1}\cdots L_t$$

    O(T). With $\mu^2 = R$ this is $R/2$-zCDP: $R = 2\rho$. Where the two runs are also never further apart than a diameter, as on a bounded
    domain, the shift after one step $\tau$ may be taken as $\min(D_\tau, f_\tau)$ with $f_t = \min(D_t, L_t f_{t-1} + s_t)$, whatever was
    paid before; so steps $1..\tau$ need no noise, and

    $$R \cdot \min = \min_\tau \Big(\min(D_\tau, f_\tau)\,L_{\tau+1} m_{\tau+1} + \sum_{j>\tau} s_j m_j\Big)^2$$

    Args:
        weights: $q_t > 0$, shape (T,): what one unit of $\sigma_t^2$ does to the final loss.
        sensitivity: $s_t \ge 0$, a number or shape (T,): how far step t moves when the record changes; 0 where it is not touched.
        lipschitz: $L_t \ge 0$, a number or shape (T,): of each step before its noise, for every data set. 0 forgets what came before.
        budget: $R > 0$.
        diameter: $D_t \ge 0$ after step t, a number or shape (T,), in units of the sensitivity; inf: no bound.
    Returns:
        The optimal JointSchedule; of equally good ones, that which pays soonest. `window` is the best $\tau$, 0 if no reset is better than
        none.
    Raises:
        InputError: a result is beyond what doubles hold.
    Reference: the privacy of given noise is Bok, Su & Altschuler 2024, arXiv:2403.00278, Lemma C.3; the proof of the optimum is the one
        at the head of this module.
    """
    run = _Steps(weights, sensitivity, lipschitz)
    bound = _each_step(diameter, run.count)
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
    payments = _payments(run, cheapest == run.log_roots, window, tracked[window])
    allocation = optimal_schedule(run.weights, budget, payments)
    return JointSchedule(value=allocation.value, payments=payments, variances=allocation.variances, window=window)


class _Steps:
    """The arguments, one entry a step."""

    def __init__(self, weights: ArrayLike, sensitivity: ArrayLike, lipschitz: ArrayLike) -> None:
        self.weights = np.asarray(weights, dtype=np.float64)
        self.count = self.weights.size
        self.sensitivity, self.lipschitz = _each_step(sensitivity, self.count), _each_step(lipschitz, self.count)
        self.log_roots = 0.5 * np.log(self.weights)

    def cheapest(self) -> Array:
        r"""$\log m_j$, $m_j = \min_{t \ge j}\sqrt{q_t}\,L_{j+1}\cdots L_t$, shape (T,); -inf where all is forgotten later.

        A step pays exactly where this is its own $\log\sqrt{q_j}$.
        """
        result = self.log_roots.copy()
        log_roots, factors = self.log_roots.tolist(), self.lipschitz.tolist()
        cost = log_roots[-1]
        for j in range(self.count - 2, -1, -1):
            cost = cost + math.log(factors[j + 1]) if factors[j + 1] > 0.0 else -math.inf
            if log_roots[j] <= cost + _TIE:
                cost = log_roots[j]
            result[j] = cost
        return result


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


def _each_step(values: ArrayLike, count: int) -> Array:
    return np.broadcast_to(np.asarray(values, dtype=np.float64), (count,))


def joint_passes(
    weights: ArrayLike, lipschitz: ArrayLike, sensitivity: ArrayLike, batches_per_pass: int, budget: float = 1.0
) -> Array | None:
    r"""The optimum of `joint_cyclic` in closed form, for $L_t = 1$, nondecreasing $q_t$ and no touch above that of its pass's end.

    With ends $t_e \equiv T \bmod \ell$ the noise is zero but there, and there as in Lemma 4.4,

    $$\tau_{t_e}^2 = \frac1R \frac{s_{t_e}}{\sqrt{q_{t_e}}}\sum_i s_{t_i}\sqrt{q_{t_i}}.$$

    Noise between two ends serves the record of the last batch no better than the same noise at the first of the two, where it does no
    more harm; and with noise at ends only, every record pays for each touch at the next end, none more than that of the last batch.

    All of shape (T,), sensitivities in parameter units; the budget is $R = \mu^2 > 0$.

    Returns:
        $\tau_t^2$, shape (T,), or None where the hypotheses fail.
    Reference: docs/theory.md, "Joint schedules".
    """
    influence, factors, touches = (np.asarray(column, dtype=np.float64) for column in (weights, lipschitz, sensitivity))
    slots, steps = batches_per_pass, influence.size
    ends = np.arange((steps - 1) % slots, steps, slots)
    following = np.minimum(ends[np.searchsorted(ends, np.arange(steps))], steps - 1)
    if not (np.all(factors == 1.0) and np.all(np.diff(influence) >= 0.0) and np.all(touches <= touches[following])):
        return None
    variances = np.zeros(steps)
    variances[ends] = optimal_schedule(influence[ends], budget, touches[ends]).variances
    return variances
