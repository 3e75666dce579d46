r"""Privacy profiles of one Poisson-sampled Gaussian step in closed form, rounded up, and its discretised losses.

In units of the noise, $\mu = 1/z$, $N_a = N(a, 1)$, and $M_\pm = (1-q)N_0 + qN_{\pm\mu}$. At $\epsilon \ge 0$:

**Removing a record,** $H(M_+\|N_0)$: the likelihood ratio exceeds $e^\epsilon$ where that of $N_\mu$ and $N_0$ exceeds
$k = 1 + (e^\epsilon-1)/q$, so that it is the profile of a batch of fixed size with twice the noise (`sampled_fixed_profile`).

**Adding one,** $H(N_0\|M_+)$: with $\kappa = 1 - (1 - e^{-\epsilon})/q$ and $x = \log(\kappa)/\mu + \mu/2$,
$$\delta(\epsilon) = e^\epsilon q\{\kappa\Phi(x) - \Phi(x - \mu)\},$$
and 0 where $\kappa \le 0$, because no loss exceeds $-\log(1-q)$.

**Replacing one,** $H(M_+\|M_-)$, in both directions the same by reflection: the ratio exceeds $e^\epsilon$ beyond
$x = \{\epsilon/2 + \mathrm{arsinh}[\tfrac{1-q}q e^{\mu^2/2}\sinh(\epsilon/2)]\}/\mu$, and
$$\delta(\epsilon) = q\{\Phi(\mu - x) - e^\epsilon\Phi(-\mu-x) - \tfrac{1-q}q(e^\epsilon-1)\Phi(-x)\}.$$

**Rounding.** Each profile is a supremum over half-lines which x attains, so that an x that is off costs in second order only. Terms are
off by a few units, and by as many as the square of the argument of $\Phi$; differences of terms get that much on top. Rounding of
$\epsilon$ to a float is in it: it costs $e^\epsilon\epsilon$ times a tail, and $\epsilon e^\epsilon \le (1 + \epsilon)(e^\epsilon - 1)$.

Reference: Zhu, Dong, Wang 2022, arXiv:2106.08567; Doroshenko et al. 2022, arXiv:2207.04380.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.calculus.normal import log_mixture
from lethe.calculus.privacy_losses.connected import connected_losses, even_dots
from lethe.calculus.privacy_losses.distributions import MOST_INTERVALS, Losses
from lethe.calculus.rounding import count_above
from lethe.calculus.sampled.fixed_profile import fixed_size_delta
from lethe.calculus.sampled.renyi import Relation

_EPS = float(np.finfo(np.float64).eps)
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
