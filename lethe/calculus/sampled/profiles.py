r"""Privacy profiles of one sampled Gaussian step in closed form, rounded up, and its losses, discretised upwards by connecting the dots.

`gaussian` makes the losses of each of its steps here before it composes them. q is the chance that the batch holds the record, z the noise
multiplier, $\Phi$ the normal distribution function.

Proofs are in docs/theory.md, section 7. In units of the noise, $\mu = 1/z$, at $\epsilon \ge 0$:

- fixed size, replace one, both directions ($\mu = 2/z$ here, $k = 1 + (e^\epsilon - 1)/q$, $t = \log(k)/\mu + \mu/2$):
  $\delta = q\{\Phi(\mu - t) - k\Phi(-t)\}$; at $-\epsilon$ it is $1 - e^{-\epsilon}(1 - \delta(\epsilon))$. Poisson, removing a record:
  the same with half the distance.
- fixed size, zero out, where another record stands at -1: beyond one point x,
  $\delta = q\{\bar\Phi(\tfrac{x-1}z) - e^\epsilon\bar\Phi(\tfrac xz) - \tfrac{1-q}q(e^\epsilon-1)\bar\Phi(\tfrac{x+1}z)\}$.
- Poisson, adding a record ($\kappa = 1 - (1 - e^{-\epsilon})/q$, $x = \log(\kappa)/\mu + \mu/2$):
  $\delta = e^\epsilon q\{\kappa\Phi(x) - \Phi(x - \mu)\}$, 0 where $\kappa \le 0$.
- Poisson, replace one ($x = \{\epsilon/2 + \mathrm{arsinh}[\tfrac{1-q}q e^{\mu^2/2}\sinh(\epsilon/2)]\}/\mu$):
  $\delta = q\{\Phi(\mu - x) - e^\epsilon\Phi(-\mu-x) - \tfrac{1-q}q(e^\epsilon-1)\Phi(-x)\}$.

Each is a supremum over half-lines which x attains, so that an x that is off costs in second order only. Terms are off by a few units, and
by as many as the square of the argument of $\Phi$; differences get that much on top. Rounding of $\epsilon$ to a float is in it: it costs
$e^\epsilon\epsilon$ times a tail, and $\epsilon e^\epsilon \le (1 + \epsilon)(e^\epsilon - 1)$.

Reference: Dong, Roth, Su 2022, arXiv:1905.02383, Theorem 4.2; Zhu, Dong, Wang 2022, arXiv:2106.08567; Doroshenko et al. 2022,
arXiv:2207.04380.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.calculus.domains import FloatArray
from lethe.calculus.normal import log_mixture
from lethe.calculus.privacy_losses.distributions import MOST_INTERVALS, Losses
from lethe.calculus.privacy_losses.dominating import connected_losses, even_dots
from lethe.calculus.rounding import above, count_above
from lethe.calculus.sampled.renyi import Design, Relation

_EPS = float(np.finfo(np.float64).eps)


def fixed_size_delta(probability: float, noise: float, epsilon: ArrayLike, relation: Relation = "replace_one") -> FloatArray:
    r"""The profile of one step at any real $\epsilon$, rounded up; elementwise.

    $q \in (0, 1)$ and $z > 0$, the noise multiplier, are numbers. Above the exact value by at most 1e-14 q plus a few units in the last
    place.
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
    odds = (1.0 - probability) / probability
    # The larger root of t^2 - e^eps k t - other (e^eps - 1), k = exp(unit^2 / 2), with t = exp(unit x).
    log_linear = size + 0.5 * unit * unit
    inside = 4.0 * odds * np.exp(-size - unit * unit) * -np.expm1(-size)
    threshold = (log_linear + np.log1p(np.sqrt(1.0 + inside)) - math.log(2.0)) / unit
    more = special.ndtr(unit - threshold)
    excess = np.exp(size + special.log_ndtr(-threshold))
    beyond = odds * -np.expm1(-size) * np.exp(size + special.log_ndtr(-threshold - unit))
    rounding = 8.0 * _EPS * (4.0 + size - math.log(probability) + np.square(threshold) + np.square(threshold + unit))
    return more, excess + beyond, rounding


# Beyond this an exponential overflows, and arsinh(e^l) is l + log 2 long before.
_LARGE = 700.0


def removed_delta(probability: float, noise: float, epsilon: FloatArray) -> FloatArray:
    r"""The profile of removing a record at $\epsilon \ge 0$, rounded up; elementwise.

    $q \in (0, 1)$ and $z > 0$ are numbers. Above the exact value by at most 5e-12 q at z = 0.05, 2e-13 q from z = 0.3 on, and a few units
    in the last place.
    """
    return fixed_size_delta(probability, 2.0 * noise, epsilon)


def added_delta(probability: float, noise: float, epsilon: FloatArray) -> FloatArray:
    """The profile of adding a record, rounded up; elementwise.

    Shape and error as `removed_delta`.
    """
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        mu, log_rest = _distance(noise), math.log1p(-probability)
        away = epsilon + log_rest
        ratio = np.maximum(-np.expm1(away), 0.0) * np.exp(-epsilon) / probability
        # A larger kappa is a smaller epsilon. Its error is relative, but for that of the sum above and of epsilon itself.
        kappa = ratio * (1.0 + 8.0 * _EPS * (1.0 + epsilon)) - 8.0 * _EPS * log_rest * (1.0 - probability) / probability
        threshold = np.log(kappa) / mu + 0.5 * mu
        more, less = kappa * special.ndtr(threshold), special.ndtr(threshold - mu)
        rounding = 8.0 * _EPS * (4.0 + np.square(threshold) + np.square(threshold - mu))
        delta = _scaled(more, less, rounding, probability, probability * np.exp(epsilon) * (1.0 + 2.0 * _EPS * epsilon))
        return np.where(away > 4.0 * _EPS * (epsilon - log_rest), 0.0, delta)


def replaced_delta(probability: float, noise: float, epsilon: FloatArray) -> FloatArray:
    """The profile of replacing a record, in either direction, rounded up; elementwise.

    Shape and error as `removed_delta`.
    """
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        mu = _distance(noise)
        log_odds = math.log1p(-probability) - math.log(probability)
        risen = -np.expm1(-epsilon)
        log_sine = log_odds + 0.5 * mu * mu + 0.5 * epsilon + np.log(0.5 * risen)
        threshold = (0.5 * epsilon + np.arcsinh(np.exp(np.minimum(log_sine, _LARGE))) + np.maximum(log_sine - _LARGE, 0.0)) / mu
        more = special.ndtr(mu - threshold)
        subtracted = np.exp(epsilon + special.log_ndtr(-mu - threshold))
        neither = risen * np.exp(log_odds + epsilon + special.log_ndtr(-threshold))
        rounding = 8.0 * _EPS * (4.0 + epsilon + abs(log_odds) + np.square(threshold) + np.square(threshold + mu))
        return _scaled(more, subtracted + neither, rounding, probability, probability)


def _distance(noise: float) -> float:
    """1/z, rounded up, which is the exact profile with less noise."""
    return 1.0 / noise * (1.0 + 2.0 * _EPS)


def _scaled(more: FloatArray, less: FloatArray, rounding: FloatArray, largest: float, scale: FloatArray | float) -> FloatArray:
    """A difference of two terms, raised by its rounding and kept in the range of a delta."""
    delta = scale * np.maximum(more - less + rounding * (more + less), 0.0) * (1.0 + 4.0 * _EPS)
    # No profile is above the chance that the record is drawn, and a product that underflowed is not 0.
    return np.clip(delta, 5e-324, largest)


_Profile = Callable[[FloatArray], FloatArray]


class SampledStep(NamedTuple):
    r"""A sampled Gaussian step; or, with a weight, what a step is with that chance, the same on both data sets and public.

    $q \in (0, 1)$; $z > 0$ relative to one record's gradient bound; weights are > 0, and those of one step have sum 1.
    """

    probability: float
    noise: float
    relation: Relation
    design: Design
    weight: float = 1.0


def step_losses(step: Sequence[SampledStep], interval: float, tail: float) -> tuple[Losses, ...]:
    """The losses of a discrete pair on multiples of `interval` that dominates one step, given as what it is with each chance.

    At most about the tail, in (0, 1/2), is at infinity. Removing and adding; one direction where both are the same.
    """
    dots = [
        even_dots(profile(interval * np.arange(max(2, int(count_above(widest / interval, MOST_INTERVALS))) + 1.0)))
        for profile, widest in _directions(step, tail)
    ]
    return connected_losses(dots[0], dots[-1], interval)[: len(dots)]


def step_width(step: Sequence[SampledStep], tail: float) -> float:
    """How wide the losses of one step are, but for a mass of about `tail`."""
    directions = _directions(step, tail)
    return directions[0][1] + directions[-1][1]


def _directions(step: Sequence[SampledStep], tail: float) -> list[tuple[_Profile, float]]:
    """Each direction's profile and largest loss; one that both share where there is no other."""
    each = [_directions_of(part, min(tail / part.weight, 0.5)) for part in step]
    if len(each) == 1:
        return each[0]
    ways = [[profiles[way % len(profiles)] for profiles in each] for way in range(max(map(len, each)))]
    return [(partial(_mixed, step, [profile for profile, _ in way]), max(widest for _, widest in way)) for way in ways]


def _mixed(step: Sequence[SampledStep], profiles: Sequence[_Profile], epsilon: FloatArray) -> FloatArray:
    """The mean of the profiles of what a step is with each chance, rounded up."""
    return above(sum(part.weight * profile(epsilon) for part, profile in zip(step, profiles, strict=True)), 8.0 * _EPS)


def _directions_of(step: SampledStep, tail: float) -> list[tuple[_Profile, float]]:
    """Zero out and add or remove are one pair of Poisson batches."""
    probability, noise, relation, design, _ = step
    mu, reach = 1.0 / noise, -float(special.ndtri(tail))
    if design == "without_replacement":
        profile = partial(fixed_size_delta, probability, noise, relation=relation)
        return [(profile, float(log_mixture(probability, 2.0 * (reach * mu + mu * mu))))]
    upward = float(log_mixture(probability, mu * (reach + 0.5 * mu)))
    if relation == "replace_one":
        return [(partial(replaced_delta, probability, noise), upward - _log_mixture_below(probability, -mu * (reach + 1.5 * mu)))]
    downward = -_log_mixture_below(probability, -mu * (reach + 0.5 * mu))
    return [(partial(removed_delta, probability, noise), upward), (partial(added_delta, probability, noise), downward)]


def _log_mixture_below(weight: float, exponent: float) -> float:
    """`log_mixture` for negative exponents, where it cannot tell weights from 1 that the sum of logarithms can."""
    return min(float(log_mixture(weight, exponent)), float(np.logaddexp(math.log1p(-weight), math.log(weight) + exponent)))
