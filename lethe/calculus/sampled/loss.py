r"""The privacy losses of sampled Gaussian steps, discretised upwards.

Both kinds of step by connecting the dots of their profiles: `sampled_poisson_profile`, both directions, and `sampled_fixed_profile`.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.calculus.guarantees import GDP
from lethe.calculus.normal import log_mixture
from lethe.calculus.privacy_losses.distributions import (
    LARGEST_LOSS,
    SMALLEST_LOSS,
    USUAL_TAIL,
    Factor,
    LossProfile,
    compose_losses,
)
from lethe.calculus.privacy_losses.dominating import dominating_factor
from lethe.calculus.sampled.profiles import fixed_size_losses, fixed_size_width, poisson_losses, poisson_width
from lethe.calculus.sampled.renyi import Design, Relation

MOST_LEVELS = 128
# A Gaussian part smaller than this is counted as this large, for the same reason as SMALLEST_LOSS.
_SMALLEST_MU = SMALLEST_LOSS


def round_levels_down(noise: FloatArray, counts: FloatArray, most: int = MOST_LEVELS) -> tuple[FloatArray, FloatArray]:
    """At most `most` noise levels: equal bins of the logarithm, each bin at its smallest level. Less noise is sound.

    Args:
        noise: noise multipliers > 0, shape (levels,).
        counts: numbers of steps, shape (levels,).
        most: the largest number of levels to return, >= 1.
    """
    if noise.size <= most:
        return noise, counts
    ranked = np.argsort(noise, kind="stable")
    noise, counts = noise[ranked], counts[ranked]
    logs = np.log(noise)
    bins = np.minimum(np.floor(most * (logs - logs[0]) / (logs[-1] - logs[0])), most - 1)
    # Sorted, so that each bin's first level is its smallest.
    firsts = np.flatnonzero(np.diff(bins, prepend=-1.0) > 0.0)
    return noise[firsts], np.add.reduceat(counts, firsts)


def loss_profile(
    probability: float, noise: FloatArray, counts: FloatArray, relation: Relation, design: Design, gaussian_mu: float
) -> LossProfile | None:
    """The privacy profile of the composition of `sampled_factors`, or None where it would not fit in floating point.

    Args: as `sampled_factors`.
    """
    factors = sampled_factors(probability, noise, counts, relation, design, gaussian_mu)
    return None if factors is None else compose_losses(factors)


def sampled_factors(
    probability: float, noise: FloatArray, counts: FloatArray, relation: Relation, design: Design, gaussian_mu: float
) -> list[Factor] | None:
    r"""One factor a noise level, and one for the Gaussian; None where a step's losses are too narrow or too wide for floating point.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, shape (levels,); more than 128 are rounded down to at most 128.
        counts: whole numbers of steps, shape (levels,).
        relation: replace_one, zero_out or add_or_remove.
        design: poisson or without_replacement.
        gaussian_mu: $\mu \ge 0$ of one Gaussian mechanism composed with the steps.
    Reference: Doroshenko et al. 2022, arXiv:2207.04380.
    """
    levels, steps = round_levels_down(noise, counts)
    factors = [_factor(probability, float(level), int(count), relation, design) for level, count in zip(levels, steps, strict=True)]
    if not all(SMALLEST_LOSS < factor.width(USUAL_TAIL) < LARGEST_LOSS for factor in factors):
        return None
    return factors if gaussian_mu == 0.0 else [*factors, dominating_factor(GDP(max(gaussian_mu, _SMALLEST_MU)), 1)]


def _factor(probability: float, noise: float, count: int, relation: Relation, design: Design) -> Factor:
    width, losses = (poisson_width, poisson_losses) if design == "poisson" else (fixed_size_width, fixed_size_losses)
    with np.errstate(all="ignore"):
        deviation = _deviation(probability, noise, relation, design)
    return Factor(
        width=partial(width, probability, noise, relation),
        deviation=deviation,
        count=count,
        losses=partial(losses, probability, noise, relation),
    )


def _deviation(probability: float, noise: float, relation: Relation, design: Design) -> float:
    """Standard deviation of one step's privacy loss: it chooses the discretisation, whose soundness does not depend on it."""
    fixed_size = design == "without_replacement"
    spread = 0.5 * noise if fixed_size else noise
    points = np.linspace(-10.0 * spread - 1.0, 10.0 * spread + 1.0, 4001)
    loss = log_mixture(probability, (points - 0.5) / (spread * spread))
    if relation == "replace_one" and not fixed_size:
        loss = loss - log_mixture(probability, (-points - 0.5) / (spread * spread))
    density = (1.0 - probability) * np.exp(-0.5 * (points / spread) ** 2) + probability * np.exp(-0.5 * ((points - 1.0) / spread) ** 2)
    weights = density / density.sum()
    mean = float(weights @ loss)
    return math.sqrt(float(weights @ np.square(loss - mean)))
