"""Composition of guarantees of different kinds on the same data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from lethe.calculus.composition import compose_gdp, compose_zcdp, renyi_curve
from lethe.calculus.domains import outside
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, Guarantee, NotPrivate, Tightest, freeze
from lethe.calculus.perturbed_minimiser import PerturbedMinimiser, beside_gaussian
from lethe.calculus.privacy_losses.distributions import Factor, LossProfile, compose_losses
from lethe.calculus.privacy_losses.dominating import dominating_factor
from lethe.calculus.rounding import round_up
from lethe.calculus.sampled.gaussian import SampledGaussian, round_levels_down, sampled_factors

# A Rényi curve takes 40 to 150 microseconds a level.
_MOST_LEVELS = 1_000
_MOST_OF_ONE = 10**15  # below 2^53: counts are exact as floats too

Parts = tuple[tuple[Guarantee, int], ...]


@dataclass(frozen=True, slots=True)
class Composition(Guarantee):
    """Several mechanisms on the same data, kept as what they are: see `together`.

    A composition of compositions is that of all their parts, so what is added to it later loses nothing. `parts` are guarantees, all for
    one relation, each with how many independent mechanisms have it, >= 1.
    """

    parts: Parts
    kind: ClassVar[str] = "composition"

    def __post_init__(self) -> None:
        listed = list(self.parts)
        for part in listed:
            known = isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], Guarantee)  # pyright: ignore[reportUnnecessaryIsInstance]
            if not known or type(part[1]) is not int or not 1 <= part[1] <= _MOST_OF_ONE:
                raise outside("parts", part, "pairs of a guarantee and a whole number from 1 to 1e15")
        freeze(self, parts=tuple(_flat(listed)))

    def epsilon(self, delta: float) -> float:
        """The smallest that `together` proves."""
        return _together_once(self.parts).epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """The smallest that `together` proves."""
        return _together_once(self.parts).delta(epsilon)

    def describe(self) -> str:
        """The first parts."""
        named = [f"{count} times {guarantee.describe()}" if count > 1 else guarantee.describe() for guarantee, count in self.parts]
        return "composition of " + "; ".join(named[:3]) + (f"; {len(named) - 3} more" if len(named) > 3 else "")


def _flat(parts: Sequence[tuple[Guarantee, int]]) -> Iterator[tuple[Guarantee, int]]:
    """The parts, with those of compositions among them in their place."""
    for guarantee, count in parts:
        if isinstance(guarantee, Composition):
            yield from ((inner, times * count) for inner, times in guarantee.parts)
        else:
            yield guarantee, count


def joined(parts: Sequence[tuple[Guarantee, int]]) -> Guarantee:
    """`together`, as one guarantee of its parts' kind where there is one, and otherwise as a `Composition`, which a file can hold."""
    flat = tuple(_flat(parts))
    found = _together_once(flat)
    return Composition(flat) if _has_losses(found) else found


def _has_losses(guarantee: Guarantee) -> bool:
    if isinstance(guarantee, Tightest):
        return any(map(_has_losses, guarantee.parts))
    return isinstance(guarantee, LossProfile)


def together(parts: Sequence[tuple[Guarantee, int]]) -> Guarantee:
    r"""The guarantee of an adaptive composition of mechanisms whose guarantees were fixed beforehand.

    - What is alone keeps its own guarantee, and what is all Gaussian its exact one, $\mu = \sqrt{\sum \mu_i^2}$.
    - One perturbed minimiser beside Gaussian mechanisms has a closed form (`beside_gaussian`).
    - Otherwise the smallest of these bounds counts: the sum of Rényi curves, where every part has one; the convolution of the privacy
      losses of pairs that dominate the parts (`dominating_losses`), which every part has; and, where every part is a point
      $(\epsilon_i, \delta_i)$, the point of their sums, which no grid rounds up.

    Parts are guarantees of mechanisms on the same data under the same relation, with how many independent ones there are, >= 1; without
    any, the result is `GDP(0)`. Reference: Zhu, Dong, Wang 2022, arXiv:2106.08567, Theorem 10; Mironov 2017, arXiv:1702.07476, Proposition
    1.
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
    if (closed := _minimiser_beside_gaussian(merged)) is not None:
        return closed
    bounds = [bound for bound in (renyi_curve(merged), convolved(merged), _added_up(merged)) if bound is not None]
    return Tightest(tuple(bounds)) if bounds else NotPrivate()


# Every look at a composition asks for the same convolution again.
@lru_cache(maxsize=32)
def _together_once(parts: Parts) -> Guarantee:
    return together(parts)


def _added_up(merged: Mapping[Guarantee, int]) -> ApproxDP | None:
    points = [(guarantee, count) for guarantee, count in merged.items() if isinstance(guarantee, ApproxDP)]
    if len(points) != len(merged):
        return None
    epsilon = round_up(math.fsum(point.epsilon_bound * count for point, count in points), 1e-15)
    delta = round_up(math.fsum(point.delta_bound * count for point, count in points), 1e-15)
    return ApproxDP(epsilon, min(delta, 1.0)) if epsilon < math.inf else None


def _minimiser_beside_gaussian(merged: Mapping[Guarantee, int]) -> Guarantee | None:
    minimisers = [guarantee for guarantee in merged if isinstance(guarantee, PerturbedMinimiser)]
    gaussian = [guarantee for guarantee in merged if isinstance(guarantee, GDP)]
    if len(minimisers) != 1 or merged[minimisers[0]] != 1 or len(merged) != 1 + len(gaussian):
        return None
    return beside_gaussian(minimisers[0], gaussian[0].mu)


def _merged(parts: Sequence[tuple[Guarantee, int]]) -> dict[Guarantee, int]:
    """Equal parts counted together, and parts that compose exactly within their kind made into one."""
    mus: list[float] = []
    rhos: list[float] = []
    sampled: dict[SampledGaussian, Counter[float]] = {}
    merged: Counter[Guarantee] = Counter()
    for guarantee, count in _flat(parts):
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
