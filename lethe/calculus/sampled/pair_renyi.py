r"""Rényi moments of one sampled Gaussian step between two mixtures, any order: the trapezoidal rule, its error bounded as it is computed.

In units of the noise, $\mu = 1/z$, $t = \mu u$, $u \sim N(0, 1)$, the pair is $P = (1-q)N_0 + qN_{b\mu}$ against
$Q = (1-q)N_0 + qN_{b'\mu}$:

- **opposite**, $b = 1$, $b' = -1$: a record of a Poisson batch is replaced by another;
- **in front**, $b = 2$, $b' = 1$: a record of a fixed-size batch is zeroed out, another one standing in its place where it is not drawn;
- **added**, $b = 0$, $b' = -1$: nothing against a record that may be drawn.

With $p = 1 - q + qe^{bt - b^2\mu^2/2}$, $r$ alike with $b'$, $x = p/r$ and the normal density $\varphi$,
$$A_\alpha - 1 = \int f,\qquad f = \varphi r\,[x^\alpha - 1 - \alpha(x - 1)] \ge 0.$$

**Error of a step h.** f is analytic where p and r have no zero, for $|\mathrm{Im}\,u| < \pi z/\max(|b|, |b'|)$. There, y off the line,
$|\varphi|$ grows by $e^{y^2/2}$, $|p|$ and $|r|$ do not grow, and $|r|$ shrinks at most by $c = \cos(b'\mu y/2)$. So the rule errs by
at most
$$\frac{2e^{y^2/2}\,(c^{1-\alpha} + 2\alpha)}{e^{2\pi y/h} - 1}A_\alpha$$
for every such y (Trefethen & Weideman 2014, Theorem 5.1).

**Ends.** Right of the last node, where $x > 1$, $f \le \varphi r x^\alpha$, whose logarithm falls at least by
$\kappa = u - \alpha b\mu + (\alpha-1)b'\mu w$, $w$ the share of the second component in r, from there on; left of the first, $x < 1$ and
$f \le (\alpha-1)\varphi r$, falling at least by $|u| - \mu$. Both are summed as geometric series. All of this is added to the sum, so the
result is an upper bound whatever step and ends were chosen; they are chosen so that it is a relative $e^{-30}$.

Reference: docs/theory.md, section 7.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.calculus.rounding import count_above

Pair = Literal["opposite", "in front", "added"]
_MEANS: dict[Pair, tuple[float, float]] = {"opposite": (1.0, -1.0), "in front": (2.0, 1.0), "added": (0.0, -1.0)}
_EPS = float(np.finfo(np.float64).eps)
# Orders of one band share their nodes.
_BANDS = (3.0, 11.0, 32.0, 128.0, 512.0, 2048.0)
_LOG_ERROR = 34.0
_MOST_NODES, _MOST_VALUES = 20_000, 400_000
# Where alpha log x is smaller, its first term stands for x^alpha - 1 - alpha (x - 1); above, the difference loses four digits at most.
_SMALL = 1e-3
_LARGEST_LOSS = 600.0


def pair_log_moments(probability: float, noise: FloatArray, orders: FloatArray, pair: Pair) -> FloatArray:
    r"""$\log A_\alpha$ of P against Q, rounded up.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, shape (levels,).
        orders: $1 < \alpha \le 2048$, shape (orders,).
        pair: which one.
    Returns:
        Shape (levels, orders), above the exact value by at most 1e-3 of it (1e-9 but where all losses are below 1e-3); infinity where it
        would take too many nodes: high orders with little noise.
    Reference: module docstring.
    """
    result = np.full((noise.size, orders.size), np.inf)
    ranks = np.searchsorted(_BANDS, orders, side="left")
    for row, level in enumerate(noise.tolist()):
        for band in np.unique(ranks).tolist():
            chosen = ranks == band
            with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
                result[row, chosen] = _band(probability, level, orders[chosen], *_MEANS[pair])
    return np.where(np.isnan(result), np.inf, result)


def _band(q: float, z: float, orders: FloatArray, first: float, second: float) -> FloatArray:
    mu = 1.0 / z * (1.0 + 2.0 * _EPS)  # less noise
    highest = float(orders.max())
    step, shift = _step(q, z, highest)
    reach = math.sqrt(2.0 * (_LOG_ERROR - 2.0 * math.log(q) + 2.0 * math.log(max(1.0, z)))) + 1.0
    left = -reach - mu
    # Far enough for the share of r's second component there, which only grows to the right (or, falling, only helps).
    turn = highest * mu if second < 0.0 else (highest + 1.0) * mu + reach
    share = float(_shares(q, second * mu * turn - 0.5 * (second * mu) ** 2))
    right = highest * first * mu - (highest - 1.0) * second * mu * share + reach
    count = int(count_above((right - left) / step, _MOST_NODES)) + 1
    if count > _MOST_NODES or count * orders.size > _MOST_VALUES:
        return np.full(orders.size, np.inf)
    nodes: FloatArray = left + step * np.arange(count, dtype=np.float64)
    log_p, slip_p = _log_density(q, first * mu, nodes)
    log_r, slip_r = _log_density(q, second * mu, nodes)
    loss = log_p - log_r
    if float(np.abs(loss).max()) > _LARGEST_LOSS:
        return np.full(orders.size, np.inf)
    # f grows with |log x| on either side of 0, so that rounding is taken away from 0.
    loss = loss + np.copysign(slip_p + slip_r, loss)
    log_weight = -0.5 * np.square(nodes) - 0.5 * math.log(2.0 * math.pi) + log_r + slip_r
    excess = np.expm1(loss)
    powers = orders[:, None] * loss
    shrunk = np.expm1(-np.abs(powers))
    ahead = -shrunk - orders[:, None] * excess * (1.0 + shrunk)
    behind = shrunk - orders[:, None] * excess
    near = 0.5 * (orders * (orders - 1.0))[:, None] * np.square(excess) * np.exp(np.abs((orders - 2.0)[:, None] * loss))
    small = np.abs(powers) < _SMALL
    grown = ~small & (loss > 0.0)
    value = np.where(small, near, np.where(loss > 0.0, ahead, behind))
    logs = log_weight + np.where(grown, powers, 0.0)
    top = logs.max(axis=1)
    total = (np.exp(logs - top[:, None]) * value).sum(axis=1)
    rounding = 1e-11 + 8.0 * _EPS * (np.abs(logs).max(axis=1) + np.abs(powers).max(axis=1) + count)
    log_sum = top + np.log(total * (1.0 + rounding) + 1e-300) + math.log(step)
    return np.logaddexp(
        0.0, np.logaddexp(log_sum, _remainders(q, mu, orders, nodes, step, shift, log_weight, powers, log_sum, first, second))
    )


def _step(q: float, z: float, highest: float) -> tuple[float, float]:
    """The step and the y of its error, the same for all orders up to `highest`."""
    shift = min(11.0, z * min(1.4, 10.0 / math.sqrt(highest)))
    needed = _LOG_ERROR - 2.0 * math.log(q) + 2.0 * math.log(max(1.0, z)) + _log_growth(z, shift, np.array([highest])).item()
    return 2.0 * math.pi * shift / needed, shift


def _log_growth(z: float, shift: float, orders: FloatArray) -> FloatArray:
    r"""$\log[2e^{y^2/2}(c^{1-\alpha} + 2\alpha)]$, |b'| being 1 in every pair."""
    return math.log(2.0) + 0.5 * shift * shift + np.logaddexp((1.0 - orders) * math.log(math.cos(0.5 * shift / z)), np.log(2.0 * orders))


def _remainders(
    q: float,
    mu: float,
    orders: FloatArray,
    nodes: FloatArray,
    step: float,
    shift: float,
    log_weight: FloatArray,
    powers: FloatArray,
    log_sum: FloatArray,
    first: float,
    second: float,
) -> FloatArray:
    """The logarithm of what the rule and the ends can have missed."""
    share = float(_shares(q, second * mu * float(nodes[-1]) - 0.5 * (second * mu) ** 2))
    slope = nodes[-1] - orders * (first * mu) + (orders - 1.0) * (second * mu * share)
    right = np.where(slope > 0.0, log_weight[-1] + np.maximum(powers[:, -1], 0.0) - _log_expm1(slope * step), np.inf)
    left = np.log(orders - 1.0) + log_weight[0] - _log_expm1((-nodes[0] - mu) * step)
    ends = np.logaddexp(right, left) + math.log(step) + 1e-9
    # Analytic for 1/z a little above mu's own, too: the strip is far from its limit.
    log_error = _log_growth(1.0 / mu, shift, orders) - _log_expm1(np.float64(2.0 * math.pi * shift / step)) + 1e-9
    certain = np.logaddexp(0.0, np.logaddexp(log_sum, ends)) + 1e-9
    spared = np.where(log_error < -1.0, log_error - np.log1p(-np.exp(np.minimum(log_error, -1.0))), np.inf)
    return np.logaddexp(ends, spared + certain)


def _log_expm1(x: Any) -> Any:
    """log(e^x - 1) without overflow, for x > 0."""
    return x + np.log(-np.expm1(-x))


def _shares(q: float, exponent: float) -> float:
    """The share of the second component in 1 - q + q e^x."""
    return float(np.exp(math.log(q) + exponent - np.logaddexp(math.log1p(-q), math.log(q) + exponent)))


def _log_density(q: float, mean: float, nodes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log(1 - q + q e^x), x the log ratio of the two components, and how far it may be off."""
    exponent = mean * nodes - 0.5 * mean * mean
    excess = q * np.expm1(np.minimum(exponent, 700.0))
    near = np.abs(excess) < 0.5
    logs = np.where(near, np.log1p(np.where(near, excess, 0.0)), np.logaddexp(math.log1p(-q), math.log(q) + exponent))
    # The error of the exponent, some eps of its terms, moves the logarithm by at most q e^x (that much), and by at most that much.
    moved = 4.0 * _EPS * (np.abs(mean * nodes) + mean * mean + 1.0)
    slip = 8.0 * _EPS * np.abs(logs) + moved * np.minimum(1.0, 2.0 * q * np.exp(np.minimum(exponent, 700.0)))
    return logs, slip + np.where(near, 0.0, 8.0 * _EPS * (1.0 - math.log(q) + np.abs(exponent)))
