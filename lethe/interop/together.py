"""Several guarantees at once: what mechanisms on the same data spend together, whatever kinds their guarantees are of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import identity  # pyright: ignore[reportMissingTypeStubs]

from lethe.calculus.composition import compose_gdp, compose_zcdp
from lethe.calculus.guarantees import GDP, ZCDP, Guarantee, NotPrivate, Profile, Tightest
from lethe.calculus.normal import round_up
from lethe.calculus.sampled_gaussian import SampledGaussian
from lethe.interop.factors import Factor, factors_of
from lethe.interop.renyi import renyi_curve

_MOST_STEPS = 20_000_000
# Larger than any finite loss, and finite, as differences with it must be.
_BEYOND = 1e300
_MOST_LEVELS = 1_000
_FINEST_INTERVAL = 1e-4
_MOST_POINTS = 1_000_000
# One hundred thousandth of an epsilon is what discretisation may cost where the number of points allows it.
_DISCRETISATION = 1e-5
# Mass that Fourier transforms lose: at most 1.8e-16 a step of a self-composition over nine cases against extended precision, and less than
# 1e-14 a convolution of two; ten times that.
_ERROR_A_STEP, _ERROR_A_CONVOLUTION = 2e-15, 1e-13


@dataclass(frozen=True, slots=True)
class _Losses(Profile):
    """The privacy profile of composed losses, with an allowance for the floating point that composed them."""

    distribution: Any
    allowance: float
    kind: ClassVar[str] = "privacy_losses"

    def delta(self, epsilon: float) -> float:
        with np.errstate(all="ignore"):
            delta = float(self.distribution.get_delta_for_epsilon(float(min(epsilon, _BEYOND))))
        return 1.0 if math.isnan(delta) else min(max(delta, 0.0) + self.allowance, 1.0)

    def describe(self) -> str:
        return "composed privacy losses"


def together(parts: Sequence[tuple[Guarantee, int]]) -> Guarantee:
    r"""The guarantee of an adaptive composition.

    - What is alone keeps its own guarantee, and what is all Gaussian its exact one, $\mu = \sqrt{\sum \mu_i^2}$.
    - Otherwise the smaller of two bounds counts: the sum of Rényi curves, where every part has one, and the convolution of the privacy
      losses of pairs that dominate the parts (`losses.py`), which every part has.

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
    bounds = [bound for bound in (renyi_curve(merged), _convolved(merged)) if bound is not None]
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
    """Steps at at most a thousand levels, the lowest of each group standing for it: less noise is sound."""
    pairs = sorted(levels.items())
    size = -(-len(pairs) // _MOST_LEVELS)
    groups = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return replace(
        family,
        noise=tuple(group[0][0] for group in groups),
        counts=tuple(sum(count for _, count in group) for group in groups),
        levels_before_rounding=len(pairs) if size > 1 else 0,
        gaussian_mu=mu,
    )


def _convolved(merged: dict[Guarantee, int]) -> Guarantee | None:
    """The convolution of dominating losses, or None where they say nothing or a Fourier transform cannot be trusted."""
    factors = [factor for guarantee, count in merged.items() for factor in factors_of(guarantee, count)]
    steps = sum(factor.count for factor in factors)
    if steps > _MOST_STEPS:
        return None
    interval = _interval(factors)
    with np.errstate(all="ignore"):
        composed: Any = identity(interval)
        for factor in factors:
            one: Any = factor.losses(interval)
            if not one.get_delta_for_epsilon(_BEYOND) < 1.0:
                return None  # every loss counts as infinite, and a power of that mass is not defined there
            composed = composed.compose(one.self_compose(factor.count))
    return _Losses(composed, _ERROR_A_STEP * (steps + 100) + _ERROR_A_CONVOLUTION * len(factors))


def _interval(factors: list[Factor]) -> float:
    """Length of a discretisation interval: as fine as is useful, as coarse as memory needs. Coarser is only more pessimistic."""
    spread = math.sqrt(math.fsum(factor.count * factor.deviation**2 for factor in factors))
    widest, total = max(factor.width for factor in factors), math.fsum(factor.width for factor in factors)
    steps = sum(factor.count for factor in factors)
    useful = min(_FINEST_INTERVAL, math.sqrt(8.0 * _DISCRETISATION * spread / steps), widest / 1000.0)
    return max(useful, 1e-300, (8.0 * spread + 2.0 * total) / _MOST_POINTS)
