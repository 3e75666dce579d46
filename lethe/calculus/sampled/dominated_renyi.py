r"""Rényi moments of sampled Gaussian steps from the privacy profiles that dominate them, where no single pair does in every direction.

For $\gamma \ge 1$ let $H_\gamma(P\|Q) \le g_1(\gamma)$ and $H_\gamma(Q\|P) \le g_2(\gamma)$. As an f-divergence is a mixture of
hockey-stick divergences,
$$A_\alpha(P\|Q) - 1 \le U(g_1) + V(g_2),\qquad U(g) = \alpha(\alpha-1)\int_1^\infty\gamma^{\alpha-2}g,\quad
  V(g) = \alpha(\alpha-1)\int_1^\infty\gamma^{-\alpha-1}g .$$
If $g_1$ is the profile of a pair $(P^*, Q^*)$, then $U(g_1) = A_\alpha(P^*\|Q^*) - 1 - V(H(Q^*\|P^*))$. With
$M = (1-q)N_0 + qN_m$, $r = N_m/N_0$ and $V(H(M\|N_0)) = E_{N_0}[y^{1-\alpha} - 1 + (\alpha-1)(y-1);\ y > 1]$, $y = 1 + q(r-1)$,
$$V(H(M\|N_0)) \le \min\{\tfrac{\alpha(\alpha-1)}2q^2E[(r-1)^2;\,r>1],\ (\alpha-1)qE[r-1;\,r>1],\
  A_\alpha(N_0\|M) - 1 - \tfrac{\alpha(\alpha-1)}2q^2E[(r-1)^2;\,r<1]\}.$$
The other direction of the pair is subtracted by a bound from below: $V(H(Q^*\|P^*)) = E_{Q^*}[x^\alpha - 1 - \alpha(x-1);\ x < 1]$ is at
least $\tfrac{\alpha(\alpha-1)}2\min(1, \ell^{\alpha-2})E_{Q^*}[(x-1)^2;\ x<1]$ for $x = P^*/Q^* \ge \ell$.

- **Replace one,** batches of fixed size: $g_1 = g_2 = H(M\|N_0)$, $m = 2/z$ (`sampled_fixed_profile`); $x = y \ge 1 - q$.
- **Zero out:** $g_1$ is the profile of the pair in front (`sampled_pair_renyi`), $g_2 = H(M\|N_0)$ with $m = 1/z$; the worse direction is
  this one, because $g_1 \ge g_2$. There $x \ge (1-q)/R$ and $Q^* \le R\,N_0$ where $x < 1$, $R = 1 - q + qe^{\mu^2}$, $\mu = 1/z$.

Proof: docs/theory.md, section 7.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.calculus.sampled.pair_renyi import pair_log_moments

_EPS = float(np.finfo(np.float64).eps)


def replaced_excess(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    r"""By how much a step's moment may exceed $A_\alpha(M\|N_0)$, where a record of a fixed-size batch is replaced; rounded up.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, shape (levels,).
        orders: $\alpha > 1$, shape (orders,).
    Returns:
        Shape (levels, orders), >= 0.
    """
    distance = (2.0 / noise * (1.0 + 2.0 * _EPS))[:, None]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        kept = np.minimum(1.0, np.exp((orders - 2.0) * math.log1p(-probability)))
        return _difference(probability, orders, distance, kept * _below(distance))


def zeroed_excess(probability: float, noise: FloatArray, orders: FloatArray) -> FloatArray:
    """By how much a step's moment may exceed that of the dominating pair, where a record is zeroed out; rounded up.

    Args, Returns: as `replaced_excess`.
    """
    distance = (1.0 / noise * (1.0 + 2.0 * _EPS))[:, None]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        square = distance * distance
        largest = 1.0 - probability + probability * np.exp(square)
        kept = np.minimum(1.0, np.exp((orders - 2.0) * (math.log1p(-probability) - np.log(largest)))) / largest
        parts = (
            np.exp(4.0 * square) * special.ndtr(-2.5 * distance)
            - 2.0 * np.exp(2.0 * square) * special.ndtr(-1.5 * distance)
            + np.exp(square) * special.ndtr(-0.5 * distance)
        )
        slack = (
            64.0 * _EPS * (1.0 + square) * (np.exp(4.0 * square) * special.ndtr(-2.5 * distance) + np.exp(2.0 * square) + np.exp(square))
        )
        spared = kept * np.maximum(parts - slack, 0.0)
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
    other = np.expm1(pair_log_moments(probability, 1.0 / distance[:, 0], orders, "added")) - half * _below(distance) * (1.0 - 8.0 * _EPS)
    least = plain  # a number always; the others where they are one
    for bound in (half * above, other * (1.0 + 1e-12)):
        least = np.minimum(least, np.where(bound >= 0.0, bound, np.inf))
    # What is spared is never more than V, but for rounding; V itself is never negative.
    return np.maximum(least - half * spared * (1.0 - 8.0 * _EPS), 0.0) * (1.0 + 16.0 * _EPS)
