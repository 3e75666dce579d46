r"""Rényi moments of one Gaussian step on a batch of fixed size, for many noise levels at once: Theorem 27 of Wang et al.

$$A_\alpha \le 1 + \sum_{j=2}^{\alpha}\binom{\alpha}{j}q^j e^{G_j},\qquad
  e^{G_2} = \min\{4(e^{1/z^2} - 1), 2e^{1/z^2}\},\quad
  e^{G_j} = \min\{4\sqrt{B_{2\lfloor j/2\rfloor}B_{2\lceil j/2\rceil}}, 2e^{j(j-1)/(2z^2)}\}$$

The finite difference $B_l$ of the theorem is the moment $E(r-1)^l$, $r = e^{u/z - 1/(2z^2)}$, $u \sim N(0,1)$: a positive integral, of
which nothing cancels, where the difference loses every digit. $(r-1)^l$ is entire, so the trapezoidal rule of step h errs by at most
$2e^{y^2/2}(1 + y\sqrt{e/l})^l/(e^{2\pi y/h} - 1)$ of it for every y: by Minkowski, since $r - 1 = 2\sqrt r\sinh(\log(r)/2)$, and the
$l$-th moment of a shifted normal is at least $(l-1)!! \ge (l/e)^{l/2}$.
"""

from __future__ import annotations

import math

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.calculus.rounding import count_above
from lethe.calculus.sampled.integer import log_binomials

_EPS = float(np.finfo(np.float64).eps)
_LOG_ERROR = 36.0
_SHIFT = 5.0
# For higher j the second form of G_j answers alone, as it does beyond 8 z^2 terms, where it is the smaller one.
_HIGHEST_MOMENT = 256
_MOST_NOISE = 1e6
# Rounding of 128 products and a sum, with room.
_MARGIN = 1e-12
# Powers are multiplied up from a fresh logarithm every so often: meanwhile a peak moves by at most 32 / z <= 16 deviations (moments
# beyond 32 are for z >= 2 only), while a node underflows 38 from the peak, so none that matters is ever lost.
_BLOCK = 16
_CHUNK = 64


def fixed_size_log_moments(probability: float, noise: FloatArray, orders: tuple[int, ...]) -> FloatArray:
    r"""The bound on $\log A_\alpha$ at integer orders, rounded up.

    Args:
        probability: $q \in (0, 1)$, share of the records in a batch.
        noise: $z > 0$, noise over the largest distance of two batches that differ in one record, shape (levels,).
        orders: $\alpha \ge 2$, whole numbers.
    Returns:
        Shape (levels, orders).
    Reference: Wang, Balle, Kasiviswanathan 2019, arXiv:1808.00087, Theorem 27.
    """
    # Less noise than there is, and squares that do not vanish.
    noise = np.minimum(noise, _MOST_NOISE)
    highest = max(orders)
    places = np.arange(highest + 1, dtype=np.float64)
    result = np.empty((noise.size, len(orders)))
    ranked = np.argsort(noise)
    with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
        for first in range(0, noise.size, _CHUNK):
            chunk = ranked[first : first + _CHUNK]
            growth = _log_terms(noise[chunk], highest) + places * math.log(probability)
            for column, order in enumerate(orders):
                logs = growth[:, 2 : order + 1] + log_binomials(order)[2:]
                top = logs.max(axis=1)
                sizes = order * (2.0 - math.log(probability)) + np.abs(growth[:, order])
                total = top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) + _MARGIN + 8.0 * _EPS * sizes
                result[chunk, column] = np.logaddexp(0.0, total) * (1.0 + 4.0 * _EPS)
    return np.where(np.isnan(result), np.inf, result)


def _log_terms(noise: FloatArray, highest: int) -> FloatArray:
    """G_j for j = 0..highest, shape (levels, j); the first two are not used."""
    places = np.arange(highest + 1, dtype=np.float64)
    inverse = 1.0 / np.square(noise)[:, None]
    plain = math.log(2.0) + 0.5 * places * (places - 1.0) * inverse
    moments = _log_even_moments(noise, highest)
    # moments[:, i] is B of 2 i; j needs the even numbers next to it on both sides.
    below, above = np.arange(highest + 1) // 2, (np.arange(highest + 1) + 1) // 2
    known = above < moments.shape[1]
    sharp = np.full_like(plain, np.inf)
    sharp[:, known] = math.log(4.0) + 0.5 * (moments[:, below[known]] + moments[:, above[known]])
    sharp[:, 2] = math.log(4.0) + inverse[:, 0] + np.log(-np.expm1(-inverse[:, 0]))
    return np.minimum(plain, sharp)


def _log_even_moments(noise: FloatArray, highest: int) -> FloatArray:
    r"""$\log E(r-1)^l$ for l = 0, 2, 4, ... up to what the largest level needs, shape (levels, l / 2); infinity where not computed."""
    top = int(min(float(_HIGHEST_MOMENT), highest + 1.0, 8.0 * float(noise.max()) ** 2)) // 2 * 2
    # Smaller levels have less use for high moments, whose integrands would not fit in floating point.
    usable = 2.0 * np.arange(top // 2 + 1) <= 8.0 * np.square(noise)[:, None]
    moments = np.where(usable, 0.0, np.inf)
    if top < 2:
        return moments
    z = noise[:, None]
    step = 2.0 * math.pi * _SHIFT / (_LOG_ERROR + 0.5 * _SHIFT**2 + top * math.log1p(_SHIFT * math.sqrt(math.e / top)))
    # log(phi (r-1)^l) falls as s - l / s at a distance s beyond [0, l / z]: 8 past the root of l, what is left is below e^-40 of the whole.
    reach = math.sqrt(top) + 8.0
    ends = np.minimum(float(top), 8.0 * np.square(z)) / z
    nodes = int(count_above((ends + 2.0 * reach).max() / step, 2**40)) + 1
    normal = (ends + 2.0 * reach) / (nodes - 1) * np.arange(nodes) - reach
    weight = (ends + 2.0 * reach) / (nodes - 1) / math.sqrt(2.0 * math.pi)
    log_normal = np.log(weight) - 0.5 * np.square(normal)
    log_square = np.maximum(2.0 * np.log(np.abs(np.expm1(normal / z - 0.5 / np.square(z)))), -1e4)
    rows = np.arange(noise.size)
    for start in range(0, top // 2, _BLOCK):
        logs = log_normal + start * log_square
        shift = logs.max(axis=1)
        unit = log_square[rows, np.argmax(logs + 0.5 * _BLOCK * log_square, axis=1)]
        power, square = np.exp(logs - shift[:, None]), np.exp(log_square - unit[:, None])
        for half in range(start + 1, min(start + _BLOCK, top // 2) + 1):
            power = power * square
            total = np.log(power.sum(axis=1)) + shift + (half - start) * unit
            moments[:, half] = np.where(usable[:, half], total, np.inf)
    return np.where(np.isfinite(moments), moments, np.inf)
