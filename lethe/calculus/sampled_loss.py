r"""The privacy loss distribution of composed sampled Gaussian steps, discretised upwards, on top of `dp_accounting`.

Poisson steps are `dp_accounting`'s own pairs, both directions. A step on a batch of fixed size comes from `sampled_fixed_profile`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.calculus.normal import log_mixture, round_down
from lethe.calculus.sampled_fixed_profile import fixed_size_masses, largest_loss
from lethe.calculus.sampled_renyi import Design, Relation

MOST_LEVELS = 32
_FINEST_INTERVAL = 1e-4
_MOST_POINTS_TO_BUILD = 300_000
_MOST_POINTS = 2_000_000
# Beyond this one-step privacy loss no epsilon of interest is left and exponentials overflow: the other bounds answer.
_LARGEST_LOSS = 500.0
# Below this one, rounding of the one-step profile outweighs the profile.
_SMALLEST_LOSS = 1e-8
# One hundred thousandth of an epsilon is what discretisation may cost where the number of points allows it.
_DISCRETISATION = 1e-5
# Mass lost to a T-fold convolution by Fourier transform: at most 1.8e-16 T over nine cases against extended precision; ten times that.
_FOURIER_ERROR_A_STEP = 2e-15
# A Gaussian part smaller than this is counted as this large, for the same reason as _SMALLEST_LOSS.
_SMALLEST_MU = 1e-8


@contextmanager
def _quiet() -> Generator[None]:
    """Silence dp_accounting's own log lines and numpy's flags for one call."""
    logger = logging.getLogger("absl")

    def refuse(_: logging.LogRecord) -> bool:
        return False

    logger.addFilter(refuse)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        logger.removeFilter(refuse)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossProfile:
    """The privacy profile of a privacy loss distribution, with an allowance for the floating point that made it."""

    distribution: Any
    allowance: float

    def __call__(self, epsilon: float) -> float:
        """The smallest delta at `epsilon`, rounded up."""
        with _quiet():
            delta = float(self.distribution.get_delta_for_epsilon(float(epsilon))) if math.isfinite(epsilon) else 0.0
        return 1.0 if math.isnan(delta) else min(max(delta, 0.0) + self.allowance, 1.0)


def round_levels_down(noise: FloatArray, counts: FloatArray, most: int = MOST_LEVELS) -> tuple[FloatArray, FloatArray]:
    """At most `most` levels: equal bins of the logarithm, every level lowered to the smallest in its bin. Less noise is sound."""
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
    r"""The privacy profile of the composed privacy loss distribution, or None where it would not fit in floating point.

    Args:
        probability: $q \in (0, 1)$.
        noise: $z > 0$, shape (levels,); more than 32 are rounded down to at most 32.
        counts: whole numbers of steps, shape (levels,).
        relation: replace_one, zero_out or add_or_remove.
        design: poisson or without_replacement.
        gaussian_mu: $\mu \ge 0$ of one Gaussian mechanism composed with the steps.
    Reference: Doroshenko et al. 2022, arXiv:2207.04380.
    """
    levels, steps = round_levels_down(noise, counts)
    with np.errstate(all="ignore"):
        scales = [_loss_scale(probability, float(level), relation, design) for level in levels]
    if not all(_SMALLEST_LOSS < width < _LARGEST_LOSS for width, _ in scales):
        return None
    how_many = [int(step) for step in steps]
    mu = max(gaussian_mu, _SMALLEST_MU) if gaussian_mu > 0.0 else 0.0
    if mu > 0.0:
        scales, how_many = [*scales, (20.0 * mu + mu * mu, mu)], [*how_many, 1]
        if scales[-1][0] >= _LARGEST_LOSS:
            return None
    # dp_accounting takes most of a second to import, and most certificates never need it.
    from dp_accounting.pld import privacy_loss_distribution  # pyright: ignore[reportMissingTypeStubs]

    interval = _interval(scales, how_many)
    composed: Any = privacy_loss_distribution.identity(interval)
    with _quiet():
        for level, count in zip(levels, how_many, strict=False):
            composed = composed.compose(_one_step(probability, float(level), relation, design, interval).self_compose(count))
        if mu > 0.0:
            composed = composed.compose(
                privacy_loss_distribution.from_gaussian_mechanism(round_down(1.0 / mu), value_discretization_interval=interval)
            )
    return LossProfile(distribution=composed, allowance=_FOURIER_ERROR_A_STEP * (sum(how_many) + 100))


def _one_step(probability: float, noise: float, relation: Relation, design: Design, interval: float) -> Any:
    # As above: a slow import.
    from dp_accounting import privacy_accountant  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution  # pyright: ignore[reportMissingTypeStubs]

    if design == "without_replacement":
        masses, unbounded = fixed_size_masses(probability, noise, interval)
        # One mass function without a second one: the same in both directions.
        return privacy_loss_distribution.PrivacyLossDistribution(
            pld_pmf.DensePLDPmf(interval, -(masses.size // 2), masses, unbounded, True)
        )
    relations = privacy_accountant.NeighboringRelation
    neighbours: Any = relations.REPLACE_ONE if relation == "replace_one" else relations.ADD_OR_REMOVE_ONE
    # The class doubles the distance by itself under REPLACE_ONE: +1 on one data set, -1 on the other.
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=probability, neighboring_relation=neighbours
    )


def _loss_scale(probability: float, noise: float, relation: Relation, design: Design) -> tuple[float, float]:
    """Width and standard deviation of one step's privacy loss: they choose the discretisation, whose soundness does not depend on them."""
    fixed_size = design == "without_replacement"
    spread = 0.5 * noise if fixed_size else noise
    points = np.linspace(-10.0 * spread - 1.0, 10.0 * spread + 1.0, 4001)
    loss = log_mixture(probability, (points - 0.5) / (spread * spread))
    if relation == "replace_one" and not fixed_size:
        loss = loss - log_mixture(probability, (-points - 0.5) / (spread * spread))
    density = (1.0 - probability) * np.exp(-0.5 * (points / spread) ** 2) + probability * np.exp(-0.5 * ((points - 1.0) / spread) ** 2)
    weights = density / density.sum()
    mean = float(weights @ loss)
    width = 2.0 * largest_loss(probability, noise) if fixed_size else float(np.ptp(loss))
    return width, math.sqrt(float(weights @ np.square(loss - mean)))


def _interval(scales: list[tuple[float, float]], counts: list[int]) -> float:
    """Length of a discretisation interval: as fine as is useful, as coarse as memory needs. Coarser is only more pessimistic."""
    spread = math.sqrt(math.fsum(count * deviation**2 for (_, deviation), count in zip(scales, counts, strict=True)))
    width = max(width for width, _ in scales)
    useful = min(_FINEST_INTERVAL, math.sqrt(8.0 * _DISCRETISATION * spread / sum(counts)), width / 200.0)
    return max(useful, 1e-6 * width, width * len(counts) / _MOST_POINTS_TO_BUILD, (16.0 * spread + 2.0 * width) / _MOST_POINTS)
