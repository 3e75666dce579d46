r"""Moments of fractional order of one Poisson-sampled Gaussian step, for many noise levels: the trapezoidal rule, its error proven.

With $r(u) = e^{u/z - 1/(2z^2)}$, $V = q(r - 1)$, $W = 1 + V$ and $u \sim N(0,1)$,
$$A_\alpha - 1 = E\,g_\alpha,\qquad g_\alpha = W^\alpha - 1 - \alpha V = \alpha(\alpha-1)V^2\int_0^1(1-s)(1+sV)^{\alpha-2}ds \ge 0.$$

**Error of a step h.** $\varphi g_\alpha$ is analytic for $|\mathrm{Im}\,u| < \pi z$, where $W$ cannot be zero or negative. Let $u$ become
$u + iy$, $\theta = y/z$. Then $|\varphi|$ grows by $e^{y^2/2}$, $|1 + sV|$ does not grow and shrinks at most by $\cos(\theta/2)$, and
$|V|^2$ becomes $q^2[(r-1)^2 + 4r\sin^2(\theta/2)]$. With $F = (1+sV)^{\alpha-2}$ and $b = 1/(2z)$, Chebyshev's inequality for monotone
functions on either side of $r = 1$ bounds the second part by the first:

- $\alpha \ge 2$: $E[rF] \le 2E[rF; r \ge 1] \le 2z^2\,E[(r-1)^2F]/E[(u-b)_+^2]$;
- $\alpha < 2$: $E[rF] \le E[(r-1)^2F]/E[(r-1)^2; r < 1] \le 10\max(1, z^2)\,E[(r-1)^2F]$.

So the rule's relative error is at most $2e^{y^2/2}K/(\cos(\theta/2)(e^{2\pi y/h} - 1))$ for every $y < \pi z$, where $K$ is 1 plus
$4\sin^2(\theta/2)$ times the factor above (Trefethen & Weideman 2014, Theorem 5.1); `_step` makes it e^-36.

**Ends.** Beyond $\max(\alpha,2)/z + s$, and below $-1/z - s$, $\log(\varphi g_\alpha)$ falls at least as fast as $s - 2/s$: what lies more
than 9 away is under 1e-15 of the whole.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.calculus.rounding import count_above

BoolArray = NDArray[np.bool_]
_EPS = float(np.finfo(np.float64).eps)
_REACH = 9.0
_LOG_ERROR = 36.0
# The strip ends at pi z; within nine tenths of it 1 / cos(theta / 2) stays below 6.4.
_STRIP = 0.9 * math.pi
# With this and the largest order below no exponential overflows.
_LARGEST_EXPONENT = 650.0
_LARGEST_ORDER = 64.0
# Closer to 1 the big nodes would cancel more than three digits.
_SMALLEST_ORDER = 1.001
# Below this |V|, W^f - 1 - fV comes from its series, whose next term is 1e-16 of the first; above, it cancels two digits at most.
_SERIES_BELOW = 0.02
_SERIES_TERMS = 9
_NODES_AT_ONCE = 16_384


def quadrature_orders(orders: FloatArray) -> BoolArray:
    """Which orders `fractional_log_moments` can compute at all."""
    return (orders >= _SMALLEST_ORDER) & (orders <= _LARGEST_ORDER)


def quadrature_levels(noise: FloatArray, orders: FloatArray) -> BoolArray:
    """At which levels every exponential of these orders fits in floating point."""
    with np.errstate(over="ignore"):
        return (orders.max(initial=1.0) + 10.0 * noise) / np.square(noise) <= _LARGEST_EXPONENT


def fractional_log_moments(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    r"""$\log A_\alpha$ at orders that need not be whole, rounded up.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, shape (levels,).
        orders: $\alpha$, shape (orders,); as `quadrature_orders` and `quadrature_levels` allow.
    Returns:
        Shape (levels, orders), relative error below 1e-11 of $A_\alpha - 1$ before rounding up; infinity where rounding took over.
    Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530, Section 3.3, for the integral.
    """
    wholes = np.floor(orders)
    # Tenths differ in their last digits; one array of powers serves every order of a fraction (the 1e-12 is within the margin below).
    fractions, which = np.unique(np.round(orders - wholes, 12), return_inverse=True)
    highest = int(wholes.max())
    steps = _step(noise)
    widths = (float(orders.max(initial=2.0)) + 1.0) / noise + 2.0 * _REACH
    counts = count_above(widths / steps, 2**40) + 1
    result = np.empty((noise.size, orders.size))
    ranked = np.argsort(counts)
    first = 0
    with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
        while first < noise.size:
            size = max(1, _NODES_AT_ONCE // int(counts[ranked[first]]))
            chunk = ranked[first : first + size]
            first += size
            nodes = int(counts[chunk].max())
            sums, scales = _sums(probability, noise[chunk], widths[chunk], nodes, highest, fractions)
            rows = wholes.astype(int) - 1
            margin = 1e-12 + 1e-14 / (orders - 1.0) + 4.0 * _EPS * np.square((orders + 1.0) / noise[chunk, None] + _REACH)
            # 1e-300 covers whatever underflowed.
            logs = scales[:, rows] + np.log(sums[:, rows, which] * (1.0 + margin) + 1e-300)
            result[chunk] = np.logaddexp(0.0, logs) * (1.0 + 4.0 * _EPS)
    return np.where(np.isnan(result), np.inf, result)


def _step(noise: FloatArray) -> FloatArray:
    """The longest step whose relative error is e^-36 (module docstring)."""
    half = 0.5 / noise
    upper = (1.0 + np.square(half)) * special.ndtr(-half) - half * np.exp(-0.5 * np.square(half)) / math.sqrt(2.0 * math.pi)
    # y is at most 12 below, so 4 sin^2(theta / 2) is at most the smaller of 4 and (12 / z)^2.
    inflation = 1.0 + np.minimum(4.0 * np.square(noise), 144.0) * np.maximum(2.0 / upper, 10.0 * np.maximum(1.0, 1.0 / np.square(noise)))
    needed = _LOG_ERROR + np.log(2.0 * 6.4 * inflation)
    shift = np.minimum(np.minimum(_STRIP * noise, np.sqrt(2.0 * needed)), 12.0)
    return 2.0 * math.pi * shift / (needed + 0.5 * np.square(shift))


def _sums(
    probability: float, noise: FloatArray, widths: FloatArray, nodes: int, highest: int, fractions: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""$(A_{m+f} - 1)e^{-c_m}$ for m = 1..highest and every fraction f, shape (levels, m, f), and the scales $c_m$, (levels, m).

    A node with $W \le 2$ adds $g_m + fV(W^m - 1) + W^m g_f$, of which nothing but a digit cancels; one with $W > 2$ adds $W^mW^f$ less
    $1 + \alpha V$. The products of a power of m with one of f make one matrix product.
    """
    z, step = noise[:, None], widths[:, None] / (nodes - 1)
    half = 0.5 / z
    shifted = step * np.arange(nodes) - (_REACH + 1.0 / z + half)
    growth = shifted / z
    excess = probability * np.expm1(growth)
    log_ratio = np.where(excess > -0.5, np.log1p(excess), np.log((1.0 - probability) + probability * np.exp(growth)))
    log_weight = -0.5 * np.square(shifted + half) + np.log(step / math.sqrt(2.0 * math.pi))
    small = excess <= 1.0
    weight = np.exp(log_weight)
    small_weight, big_weight = np.where(small, weight, 0.0), np.where(small, 0.0, weight)

    wholes = np.arange(1, highest + 1, dtype=np.float64)
    scales = np.maximum(0.0, wholes * (wholes - 1.0) * 0.5 / np.square(z) + wholes * math.log(probability))
    powers = np.exp(log_weight[:, None, :] + wholes[:, None] * log_ratio[:, None, :] - scales[:, :, None])
    tails = _fraction_parts(excess, log_ratio, small, fractions)
    total = powers @ tails.transpose(0, 2, 1)

    big, big_slope = big_weight.sum(axis=1), (big_weight * excess).sum(axis=1)
    square = np.where(small, np.square(excess), 0.0)
    ratio = np.where(small, 1.0 + excess, 0.0)
    remainder, cross = np.zeros_like(square), square.copy()
    for m in range(1, highest + 1):
        rest = (small_weight * remainder).sum(axis=1)[:, None] + fractions * (small_weight * cross).sum(axis=1)[:, None]
        rest = rest - big[:, None] - (m + fractions) * big_slope[:, None]
        total[:, m - 1, :] += np.exp(-scales[:, m - 1, None]) * rest
        remainder = ratio * remainder + m * square
        cross = ratio * cross + square
    return total, scales


def _fraction_parts(excess: FloatArray, log_ratio: FloatArray, small: BoolArray, fractions: FloatArray) -> FloatArray:
    """W^f at big nodes and W^f - 1 - fV at small ones, shape (levels, f, nodes)."""
    parts = np.empty((excess.shape[0], fractions.size, excess.shape[1]))
    tiny = np.abs(excess) < _SERIES_BELOW
    capped = np.where(tiny, excess, 0.0)
    for k, fraction in enumerate(fractions):
        coefficients = special.binom(float(fraction), np.arange(2, 2 + _SERIES_TERMS))
        series = np.full_like(excess, coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            series = series * capped + coefficient
        exponent = fraction * log_ratio
        near = np.where(tiny, series * np.square(capped), np.expm1(np.minimum(exponent, 1.0)) - fraction * excess)
        parts[:, k, :] = np.where(small, near, np.exp(exponent))
    return parts
