r"""What a noise schedule costs and proves: the exact energy of every position, and a bound below which no schedule can cost.

`cyclic` scales its result by these energies, so that the solver need not be trusted, and shows how near the cheapest noise it is. j is the
record's batch, $w_t$ a step's variance, k a gap between two touches (steps whose batch holds the record); $N_k$, $\rho_k$, $A_k$ as in
`gaps`, f, q as in `cyclic`.

The energy of a position is a minimum over what it leaves unpaid, and by duality a maximum over prices: with $Y_k \ge 0$ the price of a
unit of shift at the end of gap k,

$$E_j(w) = \max_Y \sum_k (2 \rho_k Y_k - N_k Y_k^2) \quad\text{s.t.}\quad Y_{k-1} \le A_k Y_k$$

so for any weights $\lambda_j \ge 0$ of the positions, any such prices and any $w \ge f$ with every $E_j(w) \le 1$

$$\sum_t q_t w_t \;\ge\; \sum_t q_t w_t + \sum_j \lambda_j (E_j(w) - 1)
\;\ge\; \sum_t (q_t - g_t) w_t + \sum_k 2 \lambda_{j(k)} \rho_k Y_k - \sum_j \lambda_j,$$

$$g_t = \sum_{k \ni t} \lambda_{j(k)} Y_k^2 \Big(\prod_{t < i \le \text{end}(k)} L_i\Big)^2$$

where $\sum_k \lambda_{j(k)} Y_k^2 N_k = \sum_t g_t w_t$ was used. If $g_t \le q_t$ at all noisy steps, the first sum is at least
$\sum_t (q_t - g_t) f_t$. That is a lower bound on the optimum, proved by the numbers $\lambda, Y$ alone, however they were found.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lethe.noise_allocation.joint.gaps import Gaps
from lethe.run.schedules.shapes import Array

# Far above the rounding of any sum here, far below every tolerance.
ROUNDING = 1e-11
# Any other evaluation rounds up too, by some ulps a step; what is feasible here is to be feasible there.
_ROUNDINGS_PER_STEP = 16
_NEGLIGIBLE_POSITIONS = (0.0, 1e-6)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DualVariables:
    """Dual variables of the joint problem, from which a lower bound follows."""

    positions: Array
    """$\\lambda$ of each chain, >= 0."""
    prices: Array
    """$Y$ of each gap, in its unit, >= 0."""


def gap_noise(gaps: Gaps, variances: Array) -> Array:
    """$N$ of each gap, in its unit squared."""
    parts = [np.add.reduceat(factor * variances[start:], first) for _, start, first, factor in gaps.chains()]
    return np.concatenate(parts) if parts else np.zeros(0)


def energies(gaps: Gaps, variances: Array) -> Array:
    r"""$E_j(w)$ of each chain, rounded up: the greatest convex minorant, by pooling neighbours whose slopes do not increase."""
    noise = gap_noise(gaps, variances)
    starts = gaps.starts.tolist()
    rises, runs, factors = gaps.rise.tolist(), noise.tolist(), gaps.carry.tolist()
    exact = np.array([_energy(rises[a:b], runs[a:b], factors[a:b]) for a, b in pairwise(starts)])
    return exact * (1.0 + ROUNDING + _ROUNDINGS_PER_STEP * float(np.finfo(np.float64).eps) * gaps.noisy.size)


def _energy(rises: list[float], runs: list[float], factors: list[float]) -> float:
    """$E_j$ of one position: slopes of neighbouring gaps are pooled until they increase."""
    stack: list[tuple[float, float, float]] = []
    for rise, run, factor in zip(rises, runs, factors, strict=True):
        while stack and stack[-1][0] * run >= rise * stack[-1][1] * factor:
            before, noise, through = stack.pop()
            rise, run, factor = factor * before + rise, factor * factor * noise + run, through * factor
        stack.append((rise, run, factor))
    return math.fsum(rise * rise / run if run > 0.0 else math.inf for rise, run, _ in stack)


def feasible(gaps: Gaps, floor: Array, variances: Array) -> Array:
    """Variances $w$, shape (T,), scaled up until no energy exceeds 1, and nowhere below the floor: energies are homogeneous, degree -1."""
    start = np.maximum(variances, floor)
    return np.maximum(start * float(np.max(energies(gaps, start))), floor)


def cost_of_noise(gaps: Gaps, duals: DualVariables) -> Array:
    """$g_t$, shape (T,)."""
    total = np.zeros(gaps.noisy.size)
    value = duals.positions[gaps.chain] * duals.prices**2
    for part, start, first, factor in gaps.chains():
        total[start:] += factor * np.repeat(value[part], np.diff(np.append(first, factor.size)))
    return total


def lower_bound(gaps: Gaps, weights: Array, floor: Array, duals: DualVariables) -> float:
    r"""A proven lower bound, as above, from dual variables that need not be feasible: the prices are lowered until it is.

    At last all prices are divided, and all weights multiplied by the square, by whatever makes the bound largest; g stays as it is.
    A solver knows little about the prices of a position that hardly counts: the bound without these positions is tried as well.

    $q_t > 0$ and $f_t \ge 0$ have shape (T,).
    """
    positions = np.maximum(duals.positions, 0.0)
    limits = float(np.max(positions, initial=0.0)) * np.array(_NEGLIGIBLE_POSITIONS)
    return max(_bound(gaps, weights, floor, positions * (positions >= limit), duals.prices) for limit in limits.tolist())


def _bound(gaps: Gaps, weights: Array, floor: Array, positions: Array, raw_prices: Array) -> float:
    """The lower bound from dual variables, lowered first until they are feasible."""
    prices = _monotone(gaps, np.where(positions[gaps.chain] > 0.0, np.maximum(raw_prices, 0.0), 0.0))
    with np.errstate(divide="ignore", over="ignore"):
        room = weights / cost_of_noise(gaps, DualVariables(positions=positions, prices=prices))
    shrink = np.sqrt(np.minimum(room * (1.0 - ROUNDING), 1.0))
    parts = [np.minimum.reduceat(np.where(factor > 0.0, shrink[start:], 1.0), first) for _, start, first, factor in gaps.chains()]
    prices = _monotone(gaps, prices * np.concatenate(parts))
    spent = cost_of_noise(gaps, DualVariables(positions=positions, prices=prices))
    gain = float(np.sum(positions[gaps.chain] * gaps.rise * prices))
    total = float(np.sum(positions))
    unavoidable = float(np.sum(np.where(gaps.noisy, floor * np.maximum(weights - spent, 0.0), 0.0)))
    return max(0.0, (gain * gain / total if total > 0.0 else 0.0) + unavoidable) * (1.0 - ROUNDING)


def transferred(duals: DualVariables, gaps: Gaps, to: Gaps) -> DualVariables:
    """Dual variables of fewer, longer gaps as those of all gaps of the same run: a shift may wait for the end of the longer gap."""
    starts, ends = gaps.starts.tolist(), to.starts.tolist()
    parts: list[Array] = []
    for (begin, end), (low, high) in zip(pairwise(starts), pairwise(ends), strict=True):
        last = to.last[low:high]
        inside = begin + np.minimum(np.searchsorted(gaps.last[begin:end], last), end - begin - 1)
        logs = gaps.growth[gaps.last[inside]] - gaps.unit[inside] - gaps.growth[last] + to.unit[low:high]
        parts.append(duals.prices[inside] * np.exp(logs.astype(np.float64)))
    return DualVariables(positions=duals.positions, prices=np.concatenate(parts))


def _monotone(gaps: Gaps, prices: Array) -> Array:
    """The prices lowered until none exceeds what the shift would cost at the end of the next gap."""
    result, factors, chain = prices.tolist(), gaps.carry.tolist(), gaps.chain.tolist()
    for k in range(len(result) - 2, -1, -1):
        if chain[k] == chain[k + 1]:
            result[k] = min(result[k], factors[k + 1] * result[k + 1])
    return np.array(result)
