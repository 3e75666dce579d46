"""Noise multipliers for steps on secretly drawn batches."""

from __future__ import annotations

import math
from functools import lru_cache

from lethe.calculus.conversions import gdp_mu
from lethe.calculus.crossing import crossing, log_gap
from lethe.calculus.domains import require_count, require_positive, require_probability
from lethe.calculus.large_delta import open_delta
from lethe.calculus.sampled.gaussian import SampledGaussian

_LEAST_NOISE = 0.4  # of one record's part of a sum: accounting for less takes many seconds, and no target worth the name asks for it
_TOLERANCE = 1e-3


@lru_cache(maxsize=256)
def sampled_noise(rate: float, steps: int, epsilon: float, delta: float) -> tuple[float, float]:
    r"""The smallest noise multiplier $z \ge 0.4$, within a thousandth, of T steps that are $(\epsilon, \delta)$-DP, and their $\epsilon$.

    An evaluation of the exact price takes up to seconds, so the search starts where a central limit says: $\mu^2 = 4q^2T\sinh(1/z^2)$, from
    $\int\frac{(qN(1,z^2)-qN(-1,z^2))^2}{N(0,z^2)}$ a step. Nothing depends on it but the time: the z that is returned was itself priced
    and meets the target.

    Args:
        rate: q, each record's chance to be in a batch.
        steps: T.
        epsilon: > 0.
        delta: in (0, 1).
    Raises:
        InputError: an argument is outside its range.
    """
    count, chance = require_count("steps", steps), require_probability("rate", rate)
    target, slack = require_positive("epsilon", epsilon), open_delta(delta)
    prices = dict[float, float]()

    def gap(logarithm: float) -> float:
        noise = math.exp(logarithm)
        together = SampledGaussian(sampling_probability=chance, noise=(noise,), counts=(count,), relation="replace_one", design="poisson")
        prices[logarithm] = together.epsilon(slack)
        return log_gap(prices[logarithm], target)

    least = math.log(_LEAST_NOISE)
    here = max(math.log(_normal_limit(chance, count, gdp_mu(target, slack))), least)
    gap_here = gap(here)
    shortest = _TOLERANCE
    while True:
        if gap_here <= 0.0 and here == least:
            return math.exp(here), prices[here]
        # Epsilon falls at least as fast as the noise grows, so this far is most often beyond the end.
        stride = min(max(1.2 * abs(gap_here), shortest), 0.25)
        there = max(here - stride, least) if gap_here <= 0.0 else here + stride
        gap_there = gap(there)
        if (gap_there <= 0.0) != (gap_here <= 0.0):
            break
        here, gap_here, shortest = there, gap_there, 2.0 * shortest
    (failing, gap_failing), (passing, gap_passing) = sorted(((here, gap_here), (there, gap_there)), key=lambda end: -end[1])
    found = crossing(gap, failing, passing, resolution=math.log1p(_TOLERANCE), gap_failing=gap_failing, gap_passing=gap_passing)
    return math.exp(found), prices[found]


def _normal_limit(rate: float, steps: int, mu: float) -> float:
    r"""The z at which $4q^2T\sinh(1/z^2) = \mu^2$, within a range of positive numbers."""
    ratio = 2.0 * rate * math.sqrt(steps) / max(mu, 1e-100)
    return math.asinh(min(max(ratio, 1e-2), 1e100) ** -2.0) ** -0.5
