r"""Rényi divergence of one sampled Gaussian step, for many noise levels at once.

A Rényi curve is quick and reaches every $\delta$; a privacy loss distribution is tighter but stops at tiny deltas. So `gaussian` takes the
better of the two, `windowed_gaussian` chooses by it, and published bounds in Rényi terms are computed with it. q is the chance that a batch
holds the record, $\alpha$ the order, $A_\alpha$ the moment whose logarithm over $\alpha - 1$ is the divergence.

Noise levels $z$ are noise multipliers: the standard deviation of the noise on the batch SUM is $z$ times one record's gradient bound.

**Whole orders of a Poisson step** are a binomial sum. Leaving out the 1 that every moment holds keeps each digit where the divergence is
tiny: all terms are positive, so nothing cancels.

$$A_\alpha - 1 = \sum_{k=2}^{\alpha}\binom{\alpha}{k}q^k(1-q)^{\alpha-k}\left(e^{k(k-1)/(2z^2)} - 1\right)$$

**All other moments** are integrals by the trapezoidal rule with a proven error (`quadrature`), or, where those would take too long, bounded
by convexity.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.calculus.domains import FloatArray, outside, require_probability, require_vector
from lethe.calculus.normal import log_mixture
from lethe.calculus.sampled.quadrature import pair_log_moments, replaced_excess, zeroed_excess

_EPS = float(np.finfo(np.float64).eps)
# Exponents up to this one are summed as numbers, in one matrix product for all orders; above it, as logarithms, order by order.
_LARGEST_EXPONENT = 500.0
# What the products may lose: probabilities below 1e-308 count as 0, times at most 1e4 terms of e^500 each.
_UNDERFLOW = 1e-86
# Terms below e^-50 of the largest are left out: 1e4 of them weigh 2e-18.
_NEGLIGIBLE = -50.0
_CHUNK = 256


@lru_cache(maxsize=8192)
def _log_binomials(order: int) -> FloatArray:
    r"""$\log\binom{\alpha}{k}$, k = 0..order, each from the exact whole number."""
    values = np.empty(order + 1)
    number = 1
    for k in range(order // 2 + 1):
        values[k] = values[order - k] = math.log(number)
        number = number * (order - k) // (k + 1)
    values.setflags(write=False)
    return values


def _integer_log_moments(probability: float, noise: FloatArray, orders: tuple[int, ...]) -> FloatArray:
    r"""$\log A_\alpha$ at integer orders, rounded up, shape (levels, orders); $1/z^2$ must not overflow."""
    highest = max(orders)
    log_terms = np.full((len(orders), highest + 1), -np.inf)
    for row, order in enumerate(orders):
        k = np.arange(order + 1)
        log_terms[row, : order + 1] = _log_binomials(order) + k * math.log(probability) + (order - k) * math.log1p(-probability)
    # k = 0 and k = 1 carry nothing beyond the 1.
    log_terms[:, :2] = -np.inf
    pairs = np.arange(highest + 1, dtype=np.float64) * (np.arange(highest + 1) - 1.0)
    halves = 0.5 / np.square(noise)
    result = np.empty((noise.size, len(orders)))
    # Sorted, so that within a chunk the same few terms matter.
    ranked = np.argsort(noise)
    with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
        probabilities = np.exp(log_terms)
        for first in range(0, noise.size, _CHUNK):
            chunk = ranked[first : first + _CHUNK]
            result[chunk] = _chunk_log_sums(log_terms, probabilities, pairs, halves[chunk])
    # Each exponent is a sum of products of these sizes, each rounded; so are the exponent of the last term and the sum itself.
    alphas = np.array(orders, dtype=np.float64)
    sizes = alphas * (1.0 - math.log(probability) - math.log1p(-probability)) + 50.0
    rounding = 8.0 * _EPS * (sizes + alphas * (alphas - 1.0) * halves[:, None])
    return np.logaddexp(0.0, result + rounding) * (1.0 + 4.0 * _EPS)


def _chunk_log_sums(log_terms: FloatArray, probabilities: FloatArray, pairs: FloatArray, halves: FloatArray) -> FloatArray:
    r"""$\log(A_\alpha - 1)$ for a few neighbouring levels: the matrix product, and the large exponents where there are any."""
    # One k too many on either side: the comparisons below decide which sum a term belongs to, so that rounding here cannot lose one.
    small = int(np.searchsorted(pairs[1:], _LARGEST_EXPONENT / float(halves.min()), side="right")) + 2
    exponents = halves[:, None] * pairs[:small]
    growth = np.where(exponents > _LARGEST_EXPONENT, 0.0, np.expm1(np.minimum(exponents, _LARGEST_EXPONENT)))
    sums = np.log(growth @ probabilities[:, :small].T + _UNDERFLOW)
    large = max(2, int(np.searchsorted(pairs[1:], _LARGEST_EXPONENT / float(halves.max()), side="right")))
    if large >= pairs.size:
        return sums
    for row in range(log_terms.shape[0]):
        significant = _significant_terms(log_terms[row, large:], pairs[large:], float(halves.min()), float(halves.max())) + large
        if significant.size:
            exponents = halves[:, None] * pairs[significant]
            # Above e^500 the 1 taken off does not matter; below, the matrix product has the term already.
            logs = np.where(exponents <= _LARGEST_EXPONENT, -np.inf, log_terms[row, significant] + exponents)
            top = np.maximum(logs.max(axis=1), -1e300)
            sums[:, row] = np.logaddexp(sums[:, row], top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) + 1e-17)
    return sums


def _significant_terms(logs: FloatArray, pairs: FloatArray, low: float, high: float) -> NDArray[np.intp]:
    """The terms that matter for some half in [low, high]: one term against another is linear in the half, so both ends decide."""
    alive = np.flatnonzero(np.isfinite(logs))
    if alive.size == 0:
        return alive
    logs, pairs = logs[alive], pairs[alive]
    dead = np.zeros(alive.size, dtype=bool)
    for end in (low, high):
        best = int(np.argmax(logs + pairs * end))
        gaps = logs - logs[best]
        slopes = pairs - pairs[best]
        dead |= np.maximum(gaps + slopes * low, gaps + slopes * high) < _NEGLIGIBLE
    return alive[~dead]


Design = Literal["poisson", "without_replacement"]
Relation = Literal["replace_one", "zero_out", "add_or_remove"]

# Tenths up to 11, where the best order of a useful guarantee is; then ever sparser. Between 64 and 512 divergences jump where a rare draw
# begins to dominate, and small deltas are answered just below.
ORDERS: tuple[float, ...] = tuple(
    [1.0 + k / 10 for k in range(1, 100)]
    + [float(k) for k in [*range(11, 20), *range(20, 32, 2), *range(32, 64, 4), *range(64, 128, 16), *range(128, 256, 32)]]
    + [256.0, 320.0, 512.0, 1024.0, 2048.0]
)

_Bound = Callable[[float, FloatArray, FloatArray], FloatArray]
WEAKEST_NOISE, _STRONGEST_NOISE = 1e-100, 1e100
_HIGHEST_ORDER = 8192.0
# A quadrature takes 1 to 10 milliseconds a level, and a tenth of that where orders are low and noise is not.
_MOST_QUADRATURES, _MOST_FRACTIONAL = 256, 2048
_HIGHEST_FRACTIONAL = 64.0


def require_design(design: object, relation: object) -> None:
    """Raise InputError unless design and relation are known and go together."""
    if design not in ("poisson", "without_replacement"):
        raise outside("design", design, "poisson or without_replacement")
    if relation not in ("replace_one", "zero_out", "add_or_remove"):
        raise outside("relation", relation, "replace_one, zero_out or add_or_remove")
    if design == "without_replacement" and relation == "add_or_remove":
        raise outside("relation", relation, "Poisson batches, or replace_one or zero_out: adding a record changes batches of fixed size")


def distance(relation: Relation) -> float:
    """How far one step moves between neighbours, in units of one record's gradient bound."""
    return 2.0 if relation == "replace_one" else 1.0


def round_levels_down(noise: FloatArray, counts: FloatArray, max_levels: int) -> tuple[FloatArray, FloatArray]:
    """At most `max_levels` noise levels: equal bins of the logarithm, each bin at its smallest level. Less noise is sound.

    Noise and counts have shape (levels,).
    """
    if noise.size <= max_levels:
        return noise, counts
    ranked = np.argsort(noise, kind="stable")
    noise, counts = noise[ranked], counts[ranked]
    logs = np.log(noise)
    bins = np.minimum(np.floor(max_levels * (logs - logs[0]) / (logs[-1] - logs[0])), max_levels - 1)
    # Sorted, so that each bin's first level is its smallest.
    firsts = np.flatnonzero(np.diff(bins, prepend=-1.0) > 0.0)
    return noise[firsts], np.add.reduceat(counts, firsts)


def renyi_values(probability: float, noise_multipliers: ArrayLike, relation: Relation, design: Design) -> FloatArray:
    r"""Rényi divergence of one step at `ORDERS`, the worse of both directions, rounded up.

    Poisson, zero_out or add_or_remove: exact, `poisson_renyi`. Poisson, replace_one: exact, gradients of +1 and -1. Without replacement:
    from the profiles that dominate a step (`quadrature`). Where those would take too long (high orders with little noise), and where it is
    smaller: joint convexity, $\log(1 - q + q e^{2\alpha(\alpha-1)/z^2})/(\alpha-1)$. More than 256 levels are rounded down. Never above the
    step without sampling, $\alpha d^2/(2z^2)$ with $d = 2$ for replace_one and else 1. $q \in [0, 1]$ is each record's chance to enter a
    batch, or the share of the records in one; $z \ge 0$, finite, has shape (levels,). Shape (levels, len(ORDERS)); 0 for q = 0, infinity
    for q > 0 = z, never nan. Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530; docs/theory.md, section 7.
    """
    sampling, noise = require_probability("probability", probability), require_vector("noise_multipliers", noise_multipliers, low=0.0)
    require_design(design, relation)
    orders = np.array(ORDERS)
    unsampled = _gaussian_renyi(noise / distance(relation), orders)
    if sampling == 0.0:
        return np.zeros_like(unsampled)
    if sampling == 1.0:
        return unsampled
    if design == "without_replacement":
        dominated = _zeroed_logs if relation == "zero_out" else _replaced_logs
        bound = _at_few_levels(dominated, sampling, noise, orders)
    elif relation == "replace_one":
        with np.errstate(over="ignore", divide="ignore"):
            exponents = 2.0 * orders * (orders - 1.0) / np.square(noise[:, None]) * (1.0 + 4.0 * _EPS)
            bound = log_mixture(sampling, exponents) / (orders - 1.0) * (1.0 + 8.0 * _EPS) + 5e-324
        bound = np.fmin(bound, _at_few_levels(partial(pair_log_moments, pair="opposite"), sampling, noise, orders))
    else:
        bound = poisson_renyi(sampling, noise, orders)
    # The divergence grows with its order, so a bound at a higher one holds at a lower one too.
    return np.minimum.accumulate(np.fmin(unsampled, bound)[:, ::-1], axis=1)[:, ::-1]


def poisson_renyi(probability: float, noise_multipliers: ArrayLike, orders: ArrayLike) -> FloatArray:
    r"""Rényi divergence of one Poisson-sampled Gaussian step for zero_out or add_or_remove, rounded up.

    $$D_\alpha\{(1-q)N(0,z^2) + qN(1,z^2) \,\|\, N(0,z^2)\} = \frac{\log A_\alpha}{\alpha-1},$$

    never below the other direction. Whole orders: the binomial sum. Others: quadrature, up to 2048 levels, where it fits in floating point
    (z at least 0.15 up to order 11); elsewhere $\log A_\alpha$, convex in $\alpha$, is bounded by its chord between whole orders. $q \in
    [0, 1]$; $z \ge 0$, finite, has shape (levels,), $1 < \alpha \le 8192$ shape (orders,). Shape (levels, orders), above the exact value by
    at most 1e-9 of it, except on chords; infinity for q > 0 = z; never nan. Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530,
    Section 3.3 and Theorem 5.
    """
    sampling, noise = require_probability("probability", probability), require_vector("noise_multipliers", noise_multipliers, low=0.0)
    alphas = require_vector("orders", orders, low=1.0, strict=True)
    if float(alphas.max()) > _HIGHEST_ORDER:
        raise outside("orders", float(alphas.max()), f"orders at most {_HIGHEST_ORDER:g}")
    unsampled = _gaussian_renyi(noise, alphas)
    if sampling in (0.0, 1.0):
        return unsampled if sampling == 1.0 else np.zeros_like(unsampled)
    return np.fmin(unsampled, _each_level(_poisson_logs, sampling, noise, alphas))


def _gaussian_renyi(noise: FloatArray, orders: FloatArray) -> FloatArray:
    """The step without sampling: alpha / (2 z^2), rounded up."""
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        return 0.5 * orders * np.square(1.0 / noise)[:, None] * (1.0 + 8.0 * _EPS) + 5e-324


def _each_level(bound: _Bound, probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    """`bound` at each distinct level that floating point can hold, infinity below them; more noise than 1e100 counts as 1e100."""
    levels, where = np.unique(np.minimum(noise, _STRONGEST_NOISE), return_inverse=True)
    values = np.full((levels.size, orders.size), np.inf)
    bounded = levels >= WEAKEST_NOISE
    if np.any(bounded):
        with np.errstate(over="ignore", under="ignore"):
            values[bounded] = bound(probability, levels[bounded], orders) / (orders - 1.0) * (1.0 + 2.0 * _EPS) + 5e-324
    return values[where]


def _at_few_levels(bound: _Bound, probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    """`_each_level` at no more than a few levels: of many, each is lowered to the smallest in its bin of the logarithm."""
    levels = np.unique(noise[noise >= WEAKEST_NOISE])
    if levels.size <= _MOST_QUADRATURES:
        return _each_level(bound, probability, noise, orders)
    coarse, _ = round_levels_down(levels, np.ones(levels.size), _MOST_QUADRATURES)
    lower = np.searchsorted(coarse, noise, side="right") - 1
    return _each_level(bound, probability, np.where(lower < 0, 0.0, coarse[lower]), orders)


def _replaced_logs(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    r"""$\log A_\alpha$ of fixed-size batches where one record replaces another: twice the distance, and what no pair dominates."""
    plain = _poisson_logs(probability, 0.5 * noise, orders)
    return np.logaddexp(plain, np.log(replaced_excess(probability, noise, orders) + 5e-324)) * (1.0 + 4.0 * _EPS)


def _zeroed_logs(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    r"""$\log A_\alpha$ of fixed-size batches where a record is zeroed out: the pair "in front", and what it leaves undominated."""
    plain = pair_log_moments(probability, noise, orders, "in front")
    return np.logaddexp(plain, np.log(zeroed_excess(probability, noise, orders) + 5e-324)) * (1.0 + 4.0 * _EPS)


def _poisson_logs(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    """Whole orders by the sum; others by quadrature, or by the chord of the whole orders next to them: the logarithm is convex in order."""
    below, above = np.floor(orders).astype(int), np.ceil(orders).astype(int)
    wholes = np.unique(np.concatenate((below, above)))
    # The logarithm is 0 at order 1, exactly.
    log_moments = np.zeros((noise.size, wholes.size))
    log_moments[:, wholes > 1] = _integer_log_moments(probability, noise, tuple(wholes[wholes > 1].tolist()))
    low, high = log_moments[:, np.searchsorted(wholes, below)], log_moments[:, np.searchsorted(wholes, above)]
    share = orders - below
    with np.errstate(invalid="ignore"):
        logs = np.where(share == 0.0, low, ((1.0 - share) * low + share * high) * (1.0 + 8.0 * _EPS))
    between = (share > 0.0) & (orders <= _HIGHEST_FRACTIONAL)
    if np.any(between) and noise.size <= _MOST_FRACTIONAL:
        logs[:, between] = np.fmin(logs[:, between], pair_log_moments(probability, noise, orders[between], "removed"))
    return logs
