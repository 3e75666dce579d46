"""Discrete privacy losses and Poisson-sampled Gaussian steps in 45 digits, for the tests of several modules."""

from typing import Literal

import mpmath
import numpy as np
from exact_numbers import Exact

from lethe.calculus.privacy_losses.distributions import Losses

DIGITS = 45
Way = Literal["removed", "added", "replaced"]


def profile_on_grid(losses: Losses, interval: float) -> dict[int, Exact]:
    """The hockey-stick divergence of stored masses at each of their places and one beyond, without any rounding."""
    ratio = mpmath.exp(-mpmath.mpf(interval))
    place = losses.lowest + losses.masses.size
    value = mpmath.mpf(losses.infinite)
    values = {place: value}
    reached = mpmath.mpf(0)  # the sum of p e^{-l} over masses p at distances l >= 0 above the place before
    for mass in losses.masses[::-1].tolist():
        # From a place to the one below, a mass p at distance l gains p (e^{-l} - e^{-l-h}).
        value += reached * (1 - ratio)
        reached = reached * ratio + mpmath.mpf(mass)
        place -= 1
        values[place] = value
    values[place - 1] = value + reached * (1 - ratio)
    return values


def exact_delta(way: Way, q: float, z: float, epsilon: Exact) -> Exact:
    """The divergence of one step by its two laws' tails beyond the point where their ratio is $e^epsilon$, at any real epsilon."""
    if way != "replaced" and epsilon < 0:
        return 1 - mpmath.exp(epsilon) * (1 - exact_delta("added" if way == "removed" else "removed", q, z, -epsilon))
    chance, unit, order = mpmath.mpf(q), 1 / mpmath.mpf(z), mpmath.exp(epsilon)
    rest = 1 - chance
    if way == "added":  # the nearer tail, where the record is less likely
        factor = (1 / order - rest) / chance
        if factor <= 0:
            return mpmath.mpf(0)
        x = mpmath.log(factor) / unit + unit / 2
        return mpmath.ncdf(x) - order * (rest * mpmath.ncdf(x) + chance * mpmath.ncdf(x - unit))
    if way == "removed":
        x = mpmath.log((order - rest) / chance) / unit + unit / 2
        return rest * mpmath.ncdf(-x) + chance * mpmath.ncdf(unit - x) - order * mpmath.ncdf(-x)
    # e^{unit x} is the positive root of a u^2 - b u - c.
    a, b = chance * mpmath.exp(-unit * unit / 2), rest * (order - 1)
    x = mpmath.log((b + mpmath.sqrt(b * b + 4 * a * a * order)) / (2 * a)) / unit
    larger, smaller = (rest * mpmath.ncdf(-x) + chance * mpmath.ncdf(side - x) for side in (unit, -unit))
    return larger - order * smaller


def loss_at(way: Way, q: float, z: float, x: float) -> float:
    """The loss where the noise is at x of its standard deviations, for choosing epsilons that matter."""

    def log_ratio(place: float) -> float:
        return float(np.logaddexp(np.log1p(-q), np.log(q) + (place - 0.5 / z) / z))

    return {"removed": log_ratio(x), "added": -log_ratio(-x), "replaced": log_ratio(x) - log_ratio(-x)}[way]
