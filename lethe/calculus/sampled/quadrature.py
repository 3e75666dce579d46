r"""Rényi moments of one sampled Gaussian step between two mixtures, any order: the trapezoidal rule, its error bounded as it is computed.

`renyi` calls it for orders that are no whole numbers, and for designs without a closed form. $N_x$ is the normal law of mean x, q the
chance that the batch holds the record, z the noise multiplier, $A_\alpha$ the moment whose logarithm over $\alpha - 1$ is the divergence;
V, $g_1$ and $g_2$ are those of docs/theory.md.

In units of the noise, $\mu = 1/z$, the pair is $P = (1-q)N_0 + qN_{b\mu}$ against $Q = (1-q)N_0 + qN_{b'\mu}$:

- **removed**, $b = 1$, $b' = 0$, and **added**, $b = 0$, $b' = -1$: a record of a Poisson batch against nothing, and the other way;
- **opposite**, $b = 1$, $b' = -1$: a record of a Poisson batch is replaced by another;
- **in front**, $b = 2$, $b' = 1$: a record of a fixed-size batch is zeroed out, another one standing in its place where it is not drawn.

With p and r the two densities over that of $N_0$, $x = p/r$, $A_\alpha - 1 = \int f$, $f = \varphi r\,[x^\alpha - 1 - \alpha(x - 1)] \ge
0$. What the rule of step h and the ends can have missed is added to the sum, so the result is an upper bound whatever step and ends were
chosen; they are chosen so that it is a relative $e^{-30}$.

*The rule.* With $t = \mu u$, f is analytic where p and r have no zero, for $|\mathrm{Im}\,u| < \pi z/\max(|b|, |b'|)$. There, y off the
line, $|\varphi|$ grows by $e^{y^2/2}$, $|p|$ and $|r|$ do not grow, and $|r|$ shrinks at most by $c = \cos(b'\mu y/2)$. So it errs by at
most $2e^{y^2/2}(c^{1-\alpha} + 2\alpha)A_\alpha/(e^{2\pi y/h} - 1)$ for every such y (Trefethen & Weideman 2014, Theorem 5.1). *The ends.*
Right of the last node, where $x > 1$, $f \le \varphi rx^\alpha$, whose logarithm falls at least by $u - \alpha b\mu + (\alpha-1)b'\mu w$, w
the share of the second component in r; left of the first, $x < 1$ and $f \le (\alpha-1)\varphi r$, falling at least by $|u| - \mu$:
geometric series.

Where no pair dominates in every direction (docs/theory.md, the section of that name), $A_\alpha - 1 \le U(g_1) + V(g_2)$, and
`replaced_excess` and `zeroed_excess` are $V(g_2)$ from above less what the other direction of the pair has, from below.
"""

import math
from typing import Literal

import numpy as np
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.calculus.rounding import count_above

Pair = Literal["removed", "added", "opposite", "in front"]
_MEANS: dict[Pair, tuple[float, float]] = {"removed": (1.0, 0.0), "added": (0.0, -1.0), "opposite": (1.0, -1.0), "in front": (2.0, 1.0)}
_EPS = float(np.finfo(np.float64).eps)
# Orders of one band share their nodes.
_BANDS = (3.0, 11.0, 32.0, 128.0, 512.0, 2048.0)
_LOG_ERROR = 34.0
_MOST_NODES, _MOST_VALUES, _NODES_AT_ONCE = 20_000, 400_000, 16_384
# Where alpha log x is smaller, x^alpha - 1 - alpha (x - 1) is four terms of its series; above, the difference loses less than
# four digits, and more where the order is close to 1.
_SMALL = 1e-3
_LARGEST_LOSS = 600.0


def pair_log_moments(probability: float, noise: FloatArray, orders: FloatArray, pair: Pair) -> FloatArray:
    r"""$\log A_\alpha$ of P against Q, rounded up.

    $q \in (0, 1)$, $z > 0$ of shape (levels,), $1 < \alpha \le 2048$ of shape (orders,). Shape (levels, orders), above the exact value by
    at most 1e-9 of it; infinity where it would take too many nodes: high orders with little noise.
    """
    result = np.full((noise.size, orders.size), np.inf)
    ranks = np.searchsorted(_BANDS, orders, side="left")
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        for band in np.unique(ranks).tolist():
            chosen = ranks == band
            result[:, chosen] = _band(probability, noise, orders[chosen], *_MEANS[pair])
    return np.where(np.isnan(result), np.inf, result)


def _band(q: float, noise: FloatArray, orders: FloatArray, first: float, second: float) -> FloatArray:
    """Moments of orders that share their nodes, of levels with about as many nodes together."""
    mu = 1.0 / noise * (1.0 + 2.0 * _EPS)  # less noise
    highest = float(orders.max())
    needed = _LOG_ERROR - 2.0 * math.log(q) + 2.0 * np.log(np.maximum(1.0, noise))
    # Well within the strip where p and r have no zero, and where r does not shrink much.
    shift = np.minimum(11.0, noise * (2.8 if second == 0.0 else min(1.4, 10.0 / math.sqrt(highest))))
    step = 2.0 * math.pi * shift / (needed + _log_growth(second / noise, shift, np.array([highest]))[:, 0])
    reach = np.sqrt(2.0 * needed) + 1.0
    lower = -reach - mu
    # Far enough for the share of r's second component there, which only grows to the right (or, falling, only helps).
    turn = highest * mu if second < 0.0 else (highest + 1.0) * mu + reach
    right = highest * first * mu - (highest - 1.0) * second * mu * _shares(q, second * mu, turn) + reach
    counts = count_above((right - lower) / step, _MOST_NODES) + 1
    result = np.full((noise.size, orders.size), np.inf)
    ranked = np.flatnonzero((counts <= _MOST_NODES) & (counts * orders.size <= _MOST_VALUES))
    ranked = ranked[np.argsort(-counts[ranked], kind="stable")]
    while ranked.size:
        nodes = int(counts[ranked[0]])
        rows, ranked = np.split(ranked, [max(1, _NODES_AT_ONCE // nodes)])
        steps = (right[rows] - lower[rows]) / (nodes - 1)  # a little shorter than they need be
        nodes_at = lower[rows, None] + steps[:, None] * np.arange(nodes, dtype=np.float64)
        result[rows] = _moments(q, mu[rows], nodes_at, steps, shift[rows], orders, first, second)
    return result


def _moments(
    q: float, mu: FloatArray, nodes: FloatArray, step: FloatArray, shift: FloatArray, orders: FloatArray, first: float, second: float
) -> FloatArray:
    """By the rule with these nodes, shape (levels, nodes), raised by what it and the ends can have missed."""
    log_p, slip_p = _log_density(q, first * mu[:, None], nodes)
    log_r, slip_r = _log_density(q, second * mu[:, None], nodes)
    loss = log_p - log_r
    # f grows with |log x| on either side of 0, so that rounding is taken away from 0.
    loss = loss + np.copysign(slip_p + slip_r, loss)
    log_weight = -0.5 * np.square(nodes) - 0.5 * math.log(2.0 * math.pi) + log_r + slip_r
    excess, shrink, gain, largest = np.expm1(loss), -np.expm1(-loss), loss > 0.0, np.abs(loss).max(axis=1)
    log_sums, last = np.empty((mu.size, orders.size)), np.maximum(loss[:, -1], 0.0)
    for column, order in enumerate(orders.tolist()):
        powers = order * loss
        small = np.abs(powers) < _SMALL
        shrunk = np.expm1(-np.abs(powers))
        series = 1.0 + (order - 3.0) / 4.0 * excess * (1.0 + (order - 4.0) / 5.0 * excess)
        near = 0.5 * order * (order - 1.0) * np.square(excess) * (1.0 + (order - 2.0) / 3.0 * excess * series)
        # Where x > 1 as shares of x^alpha: 1 - x^-alpha - alpha (x - 1) x^-alpha, no factor of which is a difference of like numbers.
        ahead: FloatArray = -shrunk - order * shrink * np.exp(np.minimum((1.0 - order) * loss, 0.0))
        value = np.where(small, near, np.where(gain, ahead, shrunk - order * excess))
        logs = log_weight + np.where(gain & ~small, powers, 0.0)
        top = logs.max(axis=1)
        total = (np.exp(logs - top[:, None]) * value).sum(axis=1)
        rounding = 1e-11 + 4e-12 / (order - 1.0) + 8.0 * _EPS * (np.abs(logs).max(axis=1) + order * largest + nodes.shape[1])
        log_sums[:, column] = top + np.log(total * (1.0 + rounding) + 1e-300) + np.log(step)
    # The ends, as geometric series.
    share = _shares(q, second * mu, nodes[:, -1])
    slope = (nodes[:, -1])[:, None] - np.multiply.outer(first * mu, orders) + np.multiply.outer(second * mu * share, orders - 1.0)
    beyond = log_weight[:, -1:] + np.multiply.outer(last, orders) - _log_expm1(slope * step[:, None])
    before = np.log(orders - 1.0) + (log_weight[:, 0] - _log_expm1((-nodes[:, 0] - mu) * step))[:, None]
    ends = np.logaddexp(np.where(slope > 0.0, beyond, np.inf), before) + np.log(step)[:, None] + 1e-9
    # Analytic for 1/z a little above mu's own, too: the strip is far from its limit.
    log_error = _log_growth(second * mu, shift, orders) - _log_expm1(2.0 * math.pi * shift / step)[:, None] + 1e-9
    certain = np.logaddexp(0.0, np.logaddexp(log_sums, ends)) + 1e-9
    spared = np.where(log_error < -1.0, log_error - np.log1p(-np.exp(np.minimum(log_error, -1.0))), np.inf)
    moments = np.logaddexp(0.0, np.logaddexp(log_sums, np.logaddexp(ends, spared + certain)))
    return np.where(largest[:, None] > _LARGEST_LOSS, np.inf, moments)


def _log_growth(mean: FloatArray, shift: FloatArray, orders: FloatArray) -> FloatArray:
    r"""$\log[2e^{y^2/2}(c^{1-\alpha} + 2\alpha)]$, shape (levels, orders)."""
    shrunk = np.log(np.cos(0.5 * mean * shift))
    return math.log(2.0) + 0.5 * np.square(shift)[:, None] + np.logaddexp(np.multiply.outer(shrunk, 1.0 - orders), np.log(2.0 * orders))


def _log_expm1(x: FloatArray) -> FloatArray:
    """log(e^x - 1) without overflow, for x > 0."""
    return x + np.log(-np.expm1(-x))


def _shares(q: float, mean: FloatArray, points: FloatArray) -> FloatArray:
    """The share of the second component in 1 - q + q e^x, x its log ratio at these places."""
    exponent = math.log(q) + mean * points - 0.5 * np.square(mean)
    return np.exp(exponent - np.logaddexp(math.log1p(-q), exponent))


def _log_density(q: float, mean: FloatArray, nodes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log(1 - q + q e^x), x the log ratio of the two components, and how far it may be off."""
    exponent = mean * nodes - 0.5 * mean * mean
    excess = q * np.expm1(np.minimum(exponent, 700.0))
    near = np.abs(excess) < 0.5
    logs = np.where(near, np.log1p(np.where(near, excess, 0.0)), np.logaddexp(math.log1p(-q), math.log(q) + exponent))
    # The error of the exponent, some eps of its terms, moves the logarithm by at most q e^x (that much), and by at most that much.
    moved = 4.0 * _EPS * (np.abs(mean * nodes) + mean * mean)
    slip = 8.0 * _EPS * np.abs(logs) + moved * np.minimum(1.0, 2.0 * q * np.exp(np.minimum(exponent, 700.0)))
    return logs, np.where(mean == 0.0, 0.0, slip + np.where(near, 0.0, 8.0 * _EPS * (1.0 - math.log(q) + np.abs(exponent))))


def replaced_excess(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    r"""By how much a step's moment may exceed $A_\alpha(M\|N_0)$, where a record of a fixed-size batch is replaced; rounded up.

    $q \in (0, 1)$, $z > 0$ of shape (levels,), $\alpha > 1$ of shape (orders,). Shape (levels, orders), >= 0.
    """
    distance = (2.0 / noise * (1.0 + 2.0 * _EPS))[:, None]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        survival = np.minimum(1.0, np.exp((orders - 2.0) * math.log1p(-probability)))
        return _difference(probability, orders, distance, survival * _below(distance))


def zeroed_excess(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    """By how much a step's moment may exceed that of the dominating pair, where a record is zeroed out; rounded up.

    Shapes as `replaced_excess`.
    """
    distance = (1.0 / noise * (1.0 + 2.0 * _EPS))[:, None]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        square = distance * distance
        largest = 1.0 - probability + probability * np.exp(square)
        survival = np.minimum(1.0, np.exp((orders - 2.0) * (math.log1p(-probability) - np.log(largest)))) / largest
        parts = (
            np.exp(4.0 * square) * special.ndtr(-2.5 * distance)
            - 2.0 * np.exp(2.0 * square) * special.ndtr(-1.5 * distance)
            + np.exp(square) * special.ndtr(-0.5 * distance)
        )
        slack = (
            64.0 * _EPS * (1.0 + square) * (np.exp(4.0 * square) * special.ndtr(-2.5 * distance) + np.exp(2.0 * square) + np.exp(square))
        )
        spared = survival * np.maximum(parts - slack, 0.0)
        return _difference(probability, orders, distance, np.where(np.isfinite(spared), spared, 0.0))


def _below(distance: FloatArray) -> FloatArray:
    """E[(r - 1)^2; r < 1], rounded down."""
    square = distance * distance
    parts = np.exp(square) * special.ndtr(-1.5 * distance) - 2.0 * special.ndtr(-0.5 * distance) + special.ndtr(0.5 * distance)
    floor = np.maximum(parts - 256.0 * _EPS * (1.0 + square), 0.0)
    return np.where(np.isfinite(floor), floor, 0.0)


def _difference(probability: float, orders: FloatArray, distance: FloatArray, spared: FloatArray) -> FloatArray:
    """V from above, less the half times q^2 times what is spared."""
    square = distance * distance
    above = np.exp(square) * special.ndtr(1.5 * distance) - 2.0 * special.ndtr(0.5 * distance) + special.ndtr(-0.5 * distance)
    above = above + 64.0 * _EPS * (1.0 + square) * (np.exp(square) + 3.0)
    half = 0.5 * orders * (orders - 1.0) * probability * probability
    plain = (orders - 1.0) * probability * (special.ndtr(0.5 * distance) - special.ndtr(-0.5 * distance) + 8.0 * _EPS)
    alternative = np.expm1(pair_log_moments(probability, 1.0 / distance[:, 0], orders, "added")) - half * _below(distance) * (
        1.0 - 8.0 * _EPS
    )
    smallest = plain  # a number always; the others where they are one
    for bound in (half * above, alternative * (1.0 + 1e-12)):
        smallest = np.minimum(smallest, np.where(bound >= 0.0, bound, np.inf))
    # What is spared is never more than V, but for rounding; V itself is never negative.
    return np.maximum(smallest - half * spared * (1.0 - 8.0 * _EPS), 0.0) * (1.0 + 16.0 * _EPS)
