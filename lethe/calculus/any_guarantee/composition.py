"""Composition of guarantees of different kinds on the same data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lethe.calculus.composition.composition import compose_gdp, compose_zcdp
from lethe.calculus.composition.renyi import renyi_curve
from lethe.calculus.guarantees import GDP, ZCDP, Guarantee, NotPrivate, Tightest
from lethe.calculus.privacy_losses.distributions import Factor, LossProfile, compose_losses
from lethe.calculus.privacy_losses.dominating import dominating_factor
from lethe.calculus.rounding import round_up
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.calculus.sampled.loss import round_levels_down, sampled_factors

# A Rényi curve takes 40 to 150 microseconds a level.
_MOST_LEVELS = 1_000


def together(parts: Sequence[tuple[Guarantee, int]]) -> Guarantee:
    r"""The guarantee of an adaptive composition of mechanisms whose guarantees were fixed beforehand.

    - What is alone keeps its own guarantee, and what is all Gaussian its exact one, $\mu = \sqrt{\sum \mu_i^2}$.
    - Otherwise the smaller of two bounds counts: the sum of Rényi curves, where every part has one, and the convolution of the privacy
      losses of pairs that dominate the parts (`dominating_losses`), which every part has.

    Args:
        parts: guarantees of mechanisms on the same data under the same relation, with how many independent ones there are, >= 1.
    Returns:
        One guarantee; `GDP(0)` for no parts.
    Reference: Zhu, Dong, Wang 2022, arXiv:2106.08567, Theorem 10; Mironov 2017, arXiv:1702.07476, Proposition 1.
    """
    merged = _merged(parts)
    if any(isinstance(guarantee, NotPrivate) for guarantee in merged):
        return NotPrivate()
    if not merged:
        return GDP(0.0)
    if len(merged) == 1:
        (alone,) = merged
        if merged[alone] == 1:
            return alone
    bounds = [bound for bound in (renyi_curve(merged), convolved(merged)) if bound is not None]
    return Tightest(tuple(bounds)) if bounds else NotPrivate()


def _merged(parts: Sequence[tuple[Guarantee, int]]) -> dict[Guarantee, int]:
    """Equal parts counted together, and parts that compose exactly within their kind made into one."""
    mus: list[float] = []
    rhos: list[float] = []
    sampled: dict[SampledGaussian, Counter[float]] = {}
    merged: Counter[Guarantee] = Counter()
    for guarantee, count in parts:
        if isinstance(guarantee, GDP):
            mus.append(_times(guarantee.mu, count))
        elif isinstance(guarantee, ZCDP):
            rhos.append(guarantee.rho if count == 1 else round_up(guarantee.rho * count))
        elif isinstance(guarantee, SampledGaussian):
            mus.append(_times(guarantee.gaussian_mu, count))
            levels = sampled.setdefault(_without_steps(guarantee), Counter())
            for level, times in zip(guarantee.noise, guarantee.counts, strict=True):
                levels[level] += times * count
        else:
            merged[guarantee] += count
    mu = compose_gdp(mus) if mus else 0.0
    if math.isinf(mu) or math.inf in rhos:
        return {NotPrivate(): 1}
    for family, levels in sampled.items():
        # A sampled Gaussian composes with a Gaussian mechanism by itself; one of them takes it.
        merged[_with_steps(family, levels, mu)] += 1
        mu = 0.0
    if mu > 0.0:
        merged[GDP(mu)] += 1
    if rhos and (rho := compose_zcdp(rhos)) > 0.0:
        merged[ZCDP(rho) if rho < math.inf else NotPrivate()] += 1
    return dict(merged)


def _times(mu: float, count: int) -> float:
    return mu if count == 1 else round_up(mu * math.sqrt(count), 1e-15)


def _without_steps(guarantee: SampledGaussian) -> SampledGaussian:
    """What steps must share to be merged: everything but their noise, so that a field added to the class is not lost here."""
    return replace(guarantee, noise=(1.0,), counts=(1,), levels_before_rounding=0, gaussian_mu=0.0)


def _with_steps(family: SampledGaussian, levels: Counter[float], mu: float) -> SampledGaussian:
    """Steps at at most a thousand levels. Counts as floats, because a whole number may be too large for numpy."""
    noise, counts = np.array(list(levels)), np.array([float(count) for count in levels.values()])
    kept, steps = round_levels_down(noise, counts, _MOST_LEVELS)
    return replace(
        family,
        noise=tuple(kept.tolist()),
        counts=tuple(steps.tolist()),
        levels_before_rounding=noise.size if kept.size < noise.size else 0,
        gaussian_mu=mu,
    )


def convolved(parts: Mapping[Guarantee, int]) -> LossProfile | None:
    """The convolution of losses that dominate the parts, or None where it would say nothing or not fit in floating point."""
    return compose_losses([factor for guarantee, count in parts.items() for factor in _factors(guarantee, count)])


def _factors(guarantee: Guarantee, count: int) -> list[Factor]:
    """Each level of a sampled Gaussian by itself; of all else the profile."""
    if isinstance(guarantee, SampledGaussian) and 0.0 < guarantee.sampling_probability < 1.0:
        steps = sampled_factors(
            guarantee.sampling_probability,
            np.array(guarantee.noise),
            np.array(guarantee.counts, dtype=np.float64),
            guarantee.relation,
            guarantee.design,
            guarantee.gaussian_mu,
        )
        if steps is not None:
            return [replace(factor, count=count * factor.count) for factor in steps]
    return [dominating_factor(guarantee, count)]
