r"""Moments of integer order of one Poisson-sampled Gaussian step: a binomial sum, for many noise levels at once.

$$A_\alpha - 1 = \sum_{k=2}^{\alpha}\binom{\alpha}{k}q^k(1-q)^{\alpha-k}\left(e^{k(k-1)/(2z^2)} - 1\right)$$

Leaving out the 1 that every moment holds keeps each digit where the divergence is tiny: all terms are positive, so nothing cancels.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import FloatArray

_EPS = float(np.finfo(np.float64).eps)
# Exponents up to this one are summed as numbers, in one matrix product for all orders; above it, as logarithms, order by order.
_LARGEST_EXPONENT = 500.0
# What the products may lose: probabilities below 1e-308 count as 0, times at most 1e4 terms of e^500 each.
_UNDERFLOW = 1e-86
# Terms below e^-50 of the largest are left out: 1e4 of them weigh 2e-18.
_NEGLIGIBLE = -50.0
_CHUNK = 256


@lru_cache(maxsize=8192)
def log_binomials(order: int) -> FloatArray:
    r"""$\log\binom{\alpha}{k}$, k = 0..order, each from the exact whole number."""
    values = np.empty(order + 1)
    number = 1
    for k in range(order // 2 + 1):
        values[k] = values[order - k] = math.log(number)
        number = number * (order - k) // (k + 1)
    values.setflags(write=False)
    return values


def integer_log_moments(probability: float, noise: FloatArray, orders: tuple[int, ...]) -> FloatArray:
    r"""$\log A_\alpha$ at integer orders, rounded up.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, shape (levels,); $1/z^2$ must not overflow.
        orders: $\alpha \ge 2$, whole numbers.
    Returns:
        Shape (levels, orders); relative error below 1e-15 $\alpha(2 + |\log q(1-q)|)$ before rounding up.
    Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530, Section 3.3.
    """
    highest = max(orders)
    log_terms = np.full((len(orders), highest + 1), -np.inf)
    for row, order in enumerate(orders):
        k = np.arange(order + 1)
        log_terms[row, : order + 1] = log_binomials(order) + k * math.log(probability) + (order - k) * math.log1p(-probability)
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
        kept = _kept(log_terms[row, large:], pairs[large:], float(halves.min()), float(halves.max())) + large
        if kept.size:
            exponents = halves[:, None] * pairs[kept]
            # Above e^500 the 1 taken off does not matter; below, the matrix product has the term already.
            logs = np.where(exponents <= _LARGEST_EXPONENT, -np.inf, log_terms[row, kept] + exponents)
            top = np.maximum(logs.max(axis=1), -1e300)
            sums[:, row] = np.logaddexp(sums[:, row], top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) + 1e-17)
    return sums


def _kept(logs: FloatArray, pairs: FloatArray, low: float, high: float) -> NDArray[np.intp]:
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
