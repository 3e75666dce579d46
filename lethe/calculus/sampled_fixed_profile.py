r"""Privacy profile of one Gaussian step on a batch of fixed size, and its discretisation upwards.

**The step.** Given the rest of the batch, any two of "with the record", "with its neighbour" and "with another record in its place" have
sums at distance at most 2 (in units of one record's gradient bound), for replace_one and zero_out alike; so each two are
$f = T(N(0,1), N(\mu,1))$, $\mu = 2/z$, apart, and Theorem 4.2 of Dong, Roth and Su makes the step $C_q(f)$-DP, with
$C_q(f) = \min\{f_q, f_q^{-1}\}^{**}$ and $f_q = qf + (1-q)\mathrm{Id} = T(N, M)$, $N = N(0,1)$, $M = (1-q)N + qN(\mu,1)$.

**Its profile at $\epsilon \ge 0$.** The profile of a trade-off function g is $\sup_a 1 - g(a) - e^\epsilon a$: it does not see the convex
hull, and that of a minimum is the maximum of the two. So it is $\max\{H(M\|N), H(N\|M)\}$, H being the hockey-stick divergence of order
$s = e^\epsilon$, and the first is the larger: reflection swaps N and $N_\mu = N(\mu,1)$ in $H(M\|N) = \sup_A qN_\mu(A) - (s-1+q)N(A)$, and
$$[qN(A) - (s-1+q)N_\mu(A)] - [(1 - s(1-q))N(A) - sqN_\mu(A)] = (s-1)(1-q)[N(A) - N_\mu(A)],$$
which is $\ge 0$ at the half-line A, on the far side from $\mu$, that attains $H(N\|M)$. Hence, with $k = 1 + (e^\epsilon - 1)/q$ and
$t = \log(k)/\mu + \mu/2$,
$$\delta(\epsilon) = q\{\Phi(\mu - t) - k\Phi(-t)\}.$$

**At $\epsilon < 0$.** $C_q(f)$ is its own inverse, so $H_s(P\|Q) = 1 - s + sH_{1/s}(Q\|P)$ gives
$\delta(-\epsilon) = 1 - e^{-\epsilon}(1 - \delta(\epsilon))$.

Reference: Dong, Roth, Su 2022, Gaussian differential privacy, J. R. Statist. Soc. B 84, Theorem 4.2; arXiv:1905.02383.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.calculus.normal import log_mixture

_EPS = float(np.finfo(np.float64).eps)
# Beyond ten standard deviations a normal has 8e-24 of its mass.
_REACH = 10.0


def fixed_size_delta(probability: float, noise: float, epsilon: ArrayLike) -> FloatArray:
    r"""The profile of one step at any real $\epsilon$, rounded up; elementwise.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, the noise multiplier.
        epsilon: real numbers.
    Returns:
        $\delta$, same shape: above the exact value by at most 1e-14 q plus a few units in the last place.
    Reference: module docstring.
    """
    level = np.asarray(epsilon, dtype=np.float64)
    size = np.abs(level)
    mu = 2.0 / noise * (1.0 + 2.0 * _EPS)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        near = np.log1p(np.expm1(np.minimum(size, 1.0)) / probability)
        far = size + np.log1p(-(1.0 - probability) * np.exp(-np.maximum(size, 1.0))) - math.log(probability)
        log_k = np.where(size <= 1.0, near, far)
        threshold = log_k / mu + 0.5 * mu
        # A threshold that is off changes the difference in second order only: it is the one that maximises it.
        more, less = special.ndtr(mu - threshold), np.exp(log_k + special.log_ndtr(-threshold))
        rounding = 8.0 * _EPS * (1.0 + size - math.log(probability) + np.square(threshold) + np.square(mu - threshold))
        delta = probability * np.clip(more - less + rounding * (more + less), 0.0, 1.0)
        upper = np.minimum(np.maximum(delta * (1.0 + 4.0 * _EPS), 5e-324), probability)  # a product that underflowed is not 0
        mirrored = -np.expm1(-size) + np.exp(-size) * upper + 2.0 * _EPS
    return np.where(level >= 0.0, upper, np.minimum(mirrored, 1.0))


def largest_loss(probability: float, noise: float) -> float:
    """The privacy loss that a step exceeds with probability below 1e-23."""
    mu = 2.0 / noise
    return float(log_mixture(probability, _REACH * mu + 0.5 * mu * mu))


def fixed_size_masses(probability: float, noise: float, interval: float) -> tuple[FloatArray, float]:
    r"""A privacy loss distribution on multiples of `interval` whose profile is nowhere below that of one step.

    Connect the dots: the profile as a function of $e^\epsilon$ is convex, so the chords between its values on the grid are above it, and
    the masses are their changes of slope: with $d_i = \delta(ih)$, $p_i = [(d_{i+1} - d_i) - e^h(d_i - d_{i-1})]/(e^h - 1)$. The
    profile being symmetric, $p_{-i} = e^{-ih}p_i$, which spares the differences of numbers close to 1.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$.
        interval: $h > 0$.
    Returns:
        Masses at $-nh, \dots, nh$ and the mass at infinity.
    Reference: Doroshenko et al. 2022, arXiv:2207.04380, Algorithm 1; and the module docstring.
    """
    points = max(2, math.ceil(largest_loss(probability, noise) / interval))
    places = np.arange(points + 1, dtype=np.float64)
    deltas = fixed_size_delta(probability, noise, places * interval)
    # Rounding may not make the profile rise.
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]
    drops = -np.diff(deltas)
    positive = np.empty(points)
    positive[:-1] = (math.exp(interval) * drops[:-1] - drops[1:]) / math.expm1(interval)
    positive[-1] = drops[-1] / -math.expm1(-interval)
    centre = 1.0 - deltas[0] - 2.0 * drops[0] / math.expm1(interval)
    # A mass made negative by rounding becomes 0, which only adds mass.
    positive = np.maximum(positive, 0.0)
    masses = np.concatenate(((positive * np.exp(-places[1:] * interval))[::-1], [max(centre, 0.0)], positive))
    # Each mass is rounded a few times, and a value of the profile is a sum of them.
    return masses * (1.0 + 4.0 * _EPS * points), float(deltas[-1])
