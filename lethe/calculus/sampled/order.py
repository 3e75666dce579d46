r"""Up to which Rényi order the sampled Gaussian is as private as $2\alpha q^2/z^2$: the closed form of Mironov, Talwar & Zhang.

`theorems.literature.mironov_2019` and `liang_2025`, both kept to compare, hold at these orders only. $\alpha$ is the order, q the sampling
rate, z the noise multiplier.

$$K = \log\Big(1 + \frac{1}{q(\alpha-1)}\Big),\qquad \alpha \le \frac{K z^2}{2} - 2\log z,\qquad
\alpha \le \frac{K^2 z^2/2 - \log 5 - 2\log z}{K + \log(q\alpha) + 1/(2z^2)}$$

with $q \le 1/5$ and $z \ge 4$. Where the first holds, $Kz^2 > 2$; there the difference of the two sides of the second, times its
denominator, falls in $\alpha$, and both conditions only become easier as $z$ grows. So the orders allowed at one noise are an interval
$(1, \alpha^*]$, and the noises allowed at one order are one $[z^*, \infty)$: bisection finds either.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import FloatArray, require_positive, require_probability

LARGEST_PROBABILITY = 0.2
SMALLEST_NOISE = 4.0
# Enough halvings for every bit of a double, whatever the bracket.
_HALVINGS = 110
# More noise allows more orders; beyond this their squares overflow.
_MOST_NOISE = 1e100


def order_allowed(probability: float, noise: ArrayLike, order: ArrayLike) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    r"""Whether $D_\alpha \le 2\alpha q^2/z^2$ is proved for one sampled Gaussian step, elementwise over noise and order.

    $q \in (0, 1]$ is each record's chance to enter the batch; $z > 0$, the standard deviation of the noise on the sum in units of one
    record's influence, and $\alpha > 1$ have shapes that broadcast. Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530, Theorem 11.
    """
    q = require_probability("probability", probability)
    z, alpha = np.broadcast_arrays(np.asarray(noise, dtype=np.float64), np.asarray(order, dtype=np.float64))
    if q == 0.0 or q > LARGEST_PROBABILITY:
        return np.full(z.shape, q == 0.0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        growth = np.log1p(1.0 / (q * (alpha - 1.0)))
        # K + log(q alpha), without the cancellation.
        weight = np.log(q * alpha + alpha / (alpha - 1.0)) + 0.5 / (z * z)
        first = alpha <= 0.5 * growth * z * z - 2.0 * np.log(z)
        second = alpha * weight <= 0.5 * (growth * z) ** 2 - math.log(5.0) - 2.0 * np.log(z)
        return (alpha > 1.0) & (z >= SMALLEST_NOISE) & first & second


def largest_order(probability: float, noise: float) -> float:
    r"""$\alpha^*(q, z)$, the largest order that `order_allowed` allows, rounded down; 1 where $q > 1/5$ or $z < 4$, that is: no order."""
    q, z = require_positive("probability", require_probability("probability", probability)), require_positive("noise", noise)
    if q > LARGEST_PROBABILITY or z < SMALLEST_NOISE:
        return 1.0
    z = min(z, _MOST_NOISE)
    # In u = log(alpha - 1), for which orders near 1 and huge ones are alike. At alpha - 1 = 1e-9 K is large enough for every z >= 4.
    low, high = math.log(1e-9), 0.0
    while bool(order_allowed(q, z, 1.0 + math.exp(high))):
        low, high = high, high + 8.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if bool(order_allowed(q, z, 1.0 + math.exp(middle))) else (low, middle)
    return 1.0 + math.exp(low)


def smallest_noise(probability: float, orders: ArrayLike) -> FloatArray:
    r"""$z^*(q, \alpha) \ge 4$: from which noise on `order_allowed` allows finite orders, shape (K,), rounded up; infinity where $q >
    1/5$."""
    q, alpha = require_positive("probability", require_probability("probability", probability)), np.asarray(orders, dtype=np.float64)
    if q > LARGEST_PROBABILITY:
        return np.full(alpha.shape, np.inf)
    # alpha <= K z^2 / 2 - ... is all but met at z^2 = alpha / K; doubling takes care of the rest.
    low = np.full(alpha.shape, SMALLEST_NOISE)
    high = np.full(alpha.shape, SMALLEST_NOISE)
    while not bool(np.all(allowed := order_allowed(q, high, alpha))):
        low, high = np.where(allowed, low, high), np.where(allowed, high, 2.0 * high)
    for _ in range(_HALVINGS // 2):
        middle = 0.5 * (low + high)
        allowed = order_allowed(q, middle, alpha)
        low, high = np.where(allowed, low, middle), np.where(allowed, middle, high)
    return high
