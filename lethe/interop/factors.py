"""One mechanism's part in a composition of privacy losses: how wide they are, how often they come, and their distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf  # pyright: ignore[reportMissingTypeStubs]
from dp_accounting.pld.privacy_loss_distribution import (  # pyright: ignore[reportMissingTypeStubs]
    PrivacyLossDistribution,
    from_gaussian_mechanism,
)

from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.normal import log_mixture
from lethe.calculus.sampled_fixed_profile import fixed_size_masses
from lethe.calculus.sampled_gaussian import SampledGaussian
from lethe.interop.losses import WIDEST, dominating_losses, width
from lethe.interop.relations import RELATIONS

# Below this one-step loss, rounding of the one-step profile outweighs the profile.
_NARROWEST = 1e-8
_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Equal mechanisms in a composition.

    Args:
        width: the largest privacy loss of one of them that counts.
        deviation: about the standard deviation of one's loss; only chooses the discretisation.
        count: how many there are.
        losses: interval -> a pessimistic privacy loss distribution of one of them.
    """

    width: float
    deviation: float
    count: int
    losses: Callable[[float], PrivacyLossDistribution]


def factors_of(guarantee: Guarantee, count: int) -> list[Factor]:
    """The factors of `count` mechanisms with this guarantee: each level of a sampled Gaussian by itself; of all else the profile."""
    if isinstance(guarantee, SampledGaussian) and 0.0 < guarantee.sampling_probability < 1.0:
        levels = _levels(guarantee)
        scales = [_loss_scale(guarantee, level) for level, _ in levels]
        if all(_NARROWEST < widest < WIDEST for widest, _ in scales):
            steps = [
                Factor(width=widest, deviation=deviation, count=count * times, losses=_step(guarantee, level))
                for (level, times), (widest, deviation) in zip(levels, scales, strict=True)
            ]
            return steps if guarantee.gaussian_mu == 0.0 else [*steps, *factors_of(GDP(guarantee.gaussian_mu), count)]
    widest = width(guarantee)
    # A Gaussian pair at distance mu has losses up to about 8 mu, and mu is their standard deviation.
    return [
        Factor(
            width=widest,
            deviation=widest / 8.0,
            count=count,
            losses=lambda interval: dominating_losses(guarantee, interval, widest),
        )
    ]


def _step(guarantee: SampledGaussian, level: float) -> Callable[[float], PrivacyLossDistribution]:
    """One step's losses: Poisson, removing a record and adding one apart; of fixed size, the same in both directions."""
    probability = guarantee.sampling_probability

    def poisson(interval: float) -> PrivacyLossDistribution:
        # Under REPLACE_ONE dp_accounting doubles the distance by itself.
        return from_gaussian_mechanism(
            level,
            value_discretization_interval=interval,
            sampling_prob=probability,
            neighboring_relation=RELATIONS[guarantee.relation],
        )

    def fixed_size(interval: float) -> PrivacyLossDistribution:
        masses, infinite = fixed_size_masses(probability, level, interval)
        return PrivacyLossDistribution(DensePLDPmf(interval, -(masses.size // 2), masses, infinite, True))

    return poisson if guarantee.design == "poisson" else fixed_size


def _loss_scale(guarantee: SampledGaussian, noise: float) -> tuple[float, float]:
    """Width and standard deviation of one step's loss, doubled to cover replaced records as well."""
    probability, spread = guarantee.sampling_probability, noise if guarantee.design == "poisson" else 0.5 * noise
    points = np.linspace(-10.0 * spread - 1.0, 10.0 * spread + 1.0, 4001)
    with np.errstate(all="ignore"):
        loss = log_mixture(probability, (points - 0.5) / (spread * spread))
        weights = np.exp(-0.5 * (points / spread) ** 2)
        mean = float(weights @ loss) / float(weights.sum())
        deviation = math.sqrt(float(weights @ np.square(loss - mean)) / float(weights.sum()))
        return 2.0 * float(np.ptp(loss)), 2.0 * deviation


def _levels(guarantee: SampledGaussian) -> list[tuple[float, int]]:
    """At most sixteen noise levels with their numbers of steps, each lowered to the smallest of its group: less noise is sound."""
    pairs = sorted(zip(guarantee.noise, guarantee.counts, strict=True))
    size = -(-len(pairs) // _MOST_LEVELS)
    groups = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return [(group[0][0], sum(count for _, count in group)) for group in groups]
