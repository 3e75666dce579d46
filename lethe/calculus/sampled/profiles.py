r"""Privacy profiles of one sampled Gaussian step in closed form, rounded up, and its losses, discretised upwards by connecting the dots.

# Batches of fixed size

**The step.** Given the rest of the batch, any two of "with the record", "with its neighbour" and "with another record in its place" have
sums at distance at most 2 (in units of one record's gradient bound); so each two are
$f = T(N(0,1), N(\mu,1))$, $\mu = 2/z$, apart, and Theorem 4.2 of Dong, Roth and Su makes the step $C_q(f)$-DP, with
$C_q(f) = \min\{f_q, f_q^{-1}\}^{**}$ and $f_q = qf + (1-q)\mathrm{Id} = T(N, M)$, $N = N(0,1)$, $M = (1-q)N + qN(\mu,1)$.

**Its profile at $\epsilon \ge 0$.** The profile of a trade-off function g is $\sup_a 1 - g(a) - e^\epsilon a$: it does not see the convex
hull, and that of a minimum is the maximum of the two. So it is $\max\{H(M\|N), H(N\|M)\}$, H being the hockey-stick divergence of order
$s = e^\epsilon$, and the first is the larger: reflection swaps N and $N_\mu = N(\mu,1)$ in $H(M\|N) = \sup_A qN_\mu(A) - (s-1+q)N(A)$, and
$$[qN(A) - (s-1+q)N_\mu(A)] - [(1 - s(1-q))N(A) - sqN_\mu(A)] = (s-1)(1-q)[N(A) - N_\mu(A)],$$
which is $\ge 0$ at the half-line A, on the far side from $\mu$, that attains $H(N\|M)$. Hence, with $k = 1 + (e^\epsilon - 1)/q$ and
$t = \log(k)/\mu + \mu/2$,
$$\delta(\epsilon) = q\{\Phi(\mu - t) - k\Phi(-t)\}.$$

**Zero out.** One of the two data sets has no record to draw: with the record at $b$, another in its place at $a$, both of norm at most 1,
the step is $(1-q)N(a, z^2) + qN(b, z^2)$ against $(1-q)N(a, z^2) + qN(0, z^2)$. By Lemma 6 of docs/theory.md neither direction is
easier to tell apart at $\epsilon \ge 0$ than where $\|a-b\|^2$, $\|b\|^2$ and $\langle a-b, -b\rangle$ are 4, 1 and 2: $b = 1$, $a = -1$
on a line, the record in front (in the other direction they are at most 1, 1 and 1). There the likelihood ratio exceeds $e^\epsilon$
beyond one point $x$, and
$$\delta(\epsilon) = q\{\bar\Phi(\tfrac{x-1}z) - e^\epsilon\bar\Phi(\tfrac xz)
  - \tfrac{1-q}q(e^\epsilon-1)\bar\Phi(\tfrac{x+1}z)\}.$$
Both directions are counted as the larger one, which makes the profile symmetric.

**At $\epsilon < 0$.** $C_q(f)$ is its own inverse, so $H_s(P\|Q) = 1 - s + sH_{1/s}(Q\|P)$ gives
$\delta(-\epsilon) = 1 - e^{-\epsilon}(1 - \delta(\epsilon))$.

# Poisson batches

In units of the noise, $\mu = 1/z$, $N_a = N(a, 1)$, and $M_\pm = (1-q)N_0 + qN_{\pm\mu}$. At $\epsilon \ge 0$:

**Removing a record,** $H(M_+\|N_0)$: the likelihood ratio exceeds $e^\epsilon$ where that of $N_\mu$ and $N_0$ exceeds
$k = 1 + (e^\epsilon-1)/q$, so that it is the profile of a batch of fixed size with twice the noise.

**Adding one,** $H(N_0\|M_+)$: with $\kappa = 1 - (1 - e^{-\epsilon})/q$ and $x = \log(\kappa)/\mu + \mu/2$,
$$\delta(\epsilon) = e^\epsilon q\{\kappa\Phi(x) - \Phi(x - \mu)\},$$
and 0 where $\kappa \le 0$, because no loss exceeds $-\log(1-q)$.

**Replacing one,** $H(M_+\|M_-)$, in both directions the same by reflection: the ratio exceeds $e^\epsilon$ beyond
$x = \{\epsilon/2 + \mathrm{arsinh}[\tfrac{1-q}q e^{\mu^2/2}\sinh(\epsilon/2)]\}/\mu$, and
$$\delta(\epsilon) = q\{\Phi(\mu - x) - e^\epsilon\Phi(-\mu-x) - \tfrac{1-q}q(e^\epsilon-1)\Phi(-x)\}.$$

**Rounding.** Each profile is a supremum over half-lines which x attains, so that an x that is off costs in second order only. Terms are
off by a few units, and by as many as the square of the argument of $\Phi$; differences of terms get that much on top. Rounding of
$\epsilon$ to a float is in it: it costs $e^\epsilon\epsilon$ times a tail, and $\epsilon e^\epsilon \le (1 + \epsilon)(e^\epsilon - 1)$.

Reference: Dong, Roth, Su 2022, Gaussian differential privacy, J. R. Statist. Soc. B 84, Theorem 4.2; arXiv:1905.02383;
Zhu, Dong, Wang 2022, arXiv:2106.08567; Doroshenko et al. 2022, arXiv:2207.04380.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.calculus.normal import log_mixture
from lethe.calculus.privacy_losses.connected import connected_losses, even_dots
from lethe.calculus.privacy_losses.distributions import MOST_INTERVALS, Losses
from lethe.calculus.rounding import count_above
from lethe.calculus.sampled.renyi import Relation

_EPS = float(np.finfo(np.float64).eps)


def fixed_size_delta(probability: float, noise: float, epsilon: ArrayLike, relation: Relation = "replace_one") -> FloatArray:
    r"""The profile of one step at any real $\epsilon$, rounded up; elementwise.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, the noise multiplier.
        epsilon: real numbers.
        relation: replace_one or zero_out.
    Returns:
        $\delta$, same shape: above the exact value by at most 1e-14 q plus a few units in the last place.
    Reference: module docstring.
    """
    level = np.asarray(epsilon, dtype=np.float64)
    size = np.abs(level)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        more, less, rounding = (_replaced if relation == "replace_one" else _zeroed)(probability, noise, size)
        delta = probability * np.clip(more - less + rounding * (more + less), 0.0, 1.0)
        upper = np.minimum(np.maximum(delta * (1.0 + 4.0 * _EPS), 5e-324), probability)  # a product that underflowed is not 0
        mirrored = -np.expm1(-size) + np.exp(-size) * upper + 2.0 * _EPS
    return np.where(level >= 0.0, upper, np.minimum(mirrored, 1.0))


_Parts = tuple[FloatArray, FloatArray, FloatArray]


def _replaced(probability: float, noise: float, size: FloatArray) -> _Parts:
    """The two terms of the profile over q at an epsilon >= 0, and their relative rounding."""
    mu = 2.0 / noise * (1.0 + 2.0 * _EPS)
    near = np.log1p(np.expm1(np.minimum(size, 1.0)) / probability)
    far = size + np.log1p(-(1.0 - probability) * np.exp(-np.maximum(size, 1.0))) - math.log(probability)
    log_k = np.where(size <= 1.0, near, far)
    threshold = log_k / mu + 0.5 * mu
    # A threshold that is off changes the difference in second order only: it is the one that maximises it.
    more, less = special.ndtr(mu - threshold), np.exp(log_k + special.log_ndtr(-threshold))
    return more, less, 8.0 * _EPS * (1.0 + size - math.log(probability) + np.square(threshold) + np.square(mu - threshold))


def _zeroed(probability: float, noise: float, size: FloatArray) -> _Parts:
    """As `_replaced`, in units of the noise."""
    unit = 1.0 / noise * (1.0 + 2.0 * _EPS)
    other = (1.0 - probability) / probability
    # The larger root of t^2 - e^eps k t - other (e^eps - 1), k = exp(unit^2 / 2), with t = exp(unit x).
    log_linear = size + 0.5 * unit * unit
    inside = 4.0 * other * np.exp(-size - unit * unit) * -np.expm1(-size)
    threshold = (log_linear + np.log1p(np.sqrt(1.0 + inside)) - math.log(2.0)) / unit
    more = special.ndtr(unit - threshold)
    here = np.exp(size + special.log_ndtr(-threshold))
    beyond = other * -np.expm1(-size) * np.exp(size + special.log_ndtr(-threshold - unit))
    rounding = 8.0 * _EPS * (4.0 + size - math.log(probability) + np.square(threshold) + np.square(threshold + unit))
    return more, here + beyond, rounding


def fixed_size_width(probability: float, noise: float, relation: Relation, tail: float) -> float:
    """How wide the losses of one step are, but for a mass below `tail`.

    Args:
        probability, noise, relation: as `fixed_size_losses`.
        tail: in (0, 1/2).
    """
    return 2.0 * _largest_loss(probability, noise, tail)


def _largest_loss(probability: float, noise: float, tail: float) -> float:
    mu = 2.0 / noise
    return float(log_mixture(probability, -float(special.ndtri(tail)) * mu + 0.5 * mu * mu))


def fixed_size_losses(probability: float, noise: float, relation: Relation, interval: float, tail: float) -> tuple[Losses]:
    r"""The losses of a discrete pair on multiples of `interval` that dominates one step, the same in both directions.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$.
        relation: replace_one or zero_out.
        interval: $h > 0$.
        tail: at most about this mass is at infinity, in (0, 1/2).
    """
    points = max(2, int(count_above(_largest_loss(probability, noise, tail) / interval, MOST_INTERVALS)))
    dots = even_dots(fixed_size_delta(probability, noise, interval * np.arange(points + 1.0), relation))
    return connected_losses(dots, dots, interval)[:1]


# Beyond this an exponential overflows, and arsinh(e^l) is l + log 2 long before.
_LARGE = 700.0


def removed_delta(probability: float, noise: float, epsilon: FloatArray) -> FloatArray:
    r"""The profile of removing a record at $\epsilon \ge 0$, rounded up; elementwise.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, the noise multiplier.
        epsilon: real numbers >= 0.
    Returns:
        $\delta$, same shape: above the exact value by at most 5e-12 q at z = 0.05, 2e-13 q from z = 0.3 on, and a few units in the last
        place.
    Reference: module docstring.
    """
    return fixed_size_delta(probability, 2.0 * noise, epsilon)


def added_delta(probability: float, noise: float, epsilon: FloatArray) -> FloatArray:
    """The profile of adding a record, rounded up; elementwise.

    Args, Returns: as `removed_delta`.
    """
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        mu, log_rest = _distance(noise), math.log1p(-probability)
        away = epsilon + log_rest
        left = np.maximum(-np.expm1(away), 0.0) * np.exp(-epsilon) / probability
        # A larger kappa is a smaller epsilon. Its error is relative, but for that of the sum above and of epsilon itself.
        kappa = left * (1.0 + 8.0 * _EPS * (1.0 + epsilon)) - 8.0 * _EPS * log_rest * (1.0 - probability) / probability
        place = np.log(kappa) / mu + 0.5 * mu
        more, less = kappa * special.ndtr(place), special.ndtr(place - mu)
        rounding = 8.0 * _EPS * (4.0 + np.square(place) + np.square(place - mu))
        delta = _scaled(more, less, rounding, probability, probability * np.exp(epsilon) * (1.0 + 2.0 * _EPS * epsilon))
        return np.where(away > 4.0 * _EPS * (epsilon - log_rest), 0.0, delta)


def replaced_delta(probability: float, noise: float, epsilon: FloatArray) -> FloatArray:
    """The profile of replacing a record, in either direction, rounded up; elementwise.

    Args, Returns: as `removed_delta`.
    """
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        mu = _distance(noise)
        log_odds = math.log1p(-probability) - math.log(probability)
        risen = -np.expm1(-epsilon)
        log_sine = log_odds + 0.5 * mu * mu + 0.5 * epsilon + np.log(0.5 * risen)
        place = (0.5 * epsilon + np.arcsinh(np.exp(np.minimum(log_sine, _LARGE))) + np.maximum(log_sine - _LARGE, 0.0)) / mu
        more = special.ndtr(mu - place)
        other = np.exp(epsilon + special.log_ndtr(-mu - place))
        neither = risen * np.exp(log_odds + epsilon + special.log_ndtr(-place))
        rounding = 8.0 * _EPS * (4.0 + epsilon + abs(log_odds) + np.square(place) + np.square(place + mu))
        return _scaled(more, other + neither, rounding, probability, probability)


def _distance(noise: float) -> float:
    """Rounded up, which is the exact profile with less noise."""
    return 1.0 / noise * (1.0 + 2.0 * _EPS)


def _scaled(more: FloatArray, less: FloatArray, rounding: FloatArray, most: float, scale: FloatArray | float) -> FloatArray:
    delta = scale * np.maximum(more - less + rounding * (more + less), 0.0) * (1.0 + 4.0 * _EPS)
    # No profile is above the chance that the record is drawn, and a product that underflowed is not 0.
    return np.clip(delta, 5e-324, most)


def poisson_losses(probability: float, noise: float, relation: Relation, interval: float, tail: float) -> tuple[Losses, ...]:
    r"""The losses of a discrete pair on multiples of `interval` that dominates one step.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, relative to one record's gradient bound.
        relation: replace_one doubles the distance: +1 on one data set, -1 on the other; zero_out and add_or_remove are one pair.
        interval: $h > 0$.
        tail: at most about this mass is at infinity, in (0, 1/2).
    Returns:
        Removing and adding, or one direction for replace_one, where both are the same.
    """
    upward, downward = _largest_losses(probability, noise, relation, tail)
    if relation == "replace_one":
        dots = even_dots(replaced_delta(probability, noise, _levels(upward, interval)))
        return connected_losses(dots, dots, interval)[:1]
    above = even_dots(removed_delta(probability, noise, _levels(upward, interval)))
    return connected_losses(above, even_dots(added_delta(probability, noise, _levels(downward, interval))), interval)


def poisson_width(probability: float, noise: float, relation: Relation, tail: float) -> float:
    """How wide the losses of one step are, but for a mass of about `tail`.

    Args:
        probability, noise, relation, tail: as `poisson_losses`.
    """
    return sum(_largest_losses(probability, noise, relation, tail))


def _largest_losses(probability: float, noise: float, relation: Relation, tail: float) -> tuple[float, float]:
    mu, reach = 1.0 / noise, -float(special.ndtri(tail))
    upward = float(log_mixture(probability, mu * (reach + 0.5 * mu)))
    if relation == "replace_one":
        widest = upward - _log_mixture_below(probability, -mu * (reach + 1.5 * mu))
        return widest, widest
    return upward, -_log_mixture_below(probability, -mu * (reach + 0.5 * mu))


def _log_mixture_below(weight: float, exponent: float) -> float:
    """`log_mixture` for negative exponents, where it cannot tell weights from 1 that the sum of logarithms can."""
    return min(float(log_mixture(weight, exponent)), float(np.logaddexp(math.log1p(-weight), math.log(weight) + exponent)))


def _levels(widest: float, interval: float) -> FloatArray:
    return interval * np.arange(max(2, int(count_above(widest / interval, MOST_INTERVALS))) + 1.0)
