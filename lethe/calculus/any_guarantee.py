"""Operations on guarantees of every kind: composition on the same data, reading from JSON, the neighbours they are about, scaled noise.

A total of several releases (`accounting`, `ledger`), a mechanism of several parts and the planners call it; `calculus.guarantees` holds the
kinds themselves, and cannot import all of them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import ClassVar, cast

import numpy as np

from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.balls_in_bins.truncated import TruncatedAllocation
from lethe.calculus.composition import compose_gdp, compose_zcdp, renyi_curve
from lethe.calculus.domains import outside, require_positive
from lethe.calculus.guarantees import (
    GDP,
    ZCDP,
    ApproxDP,
    GDPMixture,
    Guarantee,
    NotPrivate,
    RDPCurve,
    Tightest,
    WithSlack,
    freeze,
    stored_fields,
)
from lethe.calculus.perturbed_minimiser import PerturbedMinimiser, beside_gaussian
from lethe.calculus.privacy_losses.distributions import Factor, LossProfile, compose_losses
from lethe.calculus.privacy_losses.dominating import dominating_factor
from lethe.calculus.rounding import round_up
from lethe.calculus.sampled.gaussian import WEAKEST_NOISE, SampledGaussian, merged_levels, sampled_factors
from lethe.calculus.sampled.renyi import round_levels_down
from lethe.calculus.sampled.truncated import TruncatedPoisson
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.errors import InputError

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
            is_pair = isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], Guarantee)  # pyright: ignore[reportUnnecessaryIsInstance]
            if not is_pair or type(part[1]) is not int or not 1 <= part[1] <= _MOST_OF_ONE:
                raise outside("parts", part, "pairs of a guarantee and a whole number from 1 to 1e15")
        freeze(self, parts=tuple(_flat(listed)))

    def epsilon(self, delta: float) -> float:
        """The smallest that `together` proves."""
        return _together_once(self.parts).epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """The smallest that `together` proves."""
        return _together_once(self.parts).delta(epsilon)

    def describe(self) -> str:
        """The first parts in words."""
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
    composed = _together_once(flat)
    return Composition(flat) if _has_losses(composed) else composed


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
        (only,) = merged
        if merged[only] == 1:
            return only
    if (closed := _minimiser_beside_gaussian(merged)) is not None:
        return closed
    bounds = [bound for bound in (renyi_curve(merged), convolved(merged), _added_up(merged)) if bound is not None]
    return Tightest(tuple(bounds)) if bounds else NotPrivate()


# Every look at a composition asks for the same convolution again.
@lru_cache(maxsize=32)
def _together_once(parts: Parts) -> Guarantee:
    return together(parts)


def _added_up(merged: Mapping[Guarantee, int]) -> ApproxDP | None:
    """Guarantees at one point (epsilon, delta): both numbers add up; None where a part is no such guarantee."""
    points = [(guarantee, count) for guarantee, count in merged.items() if isinstance(guarantee, ApproxDP)]
    if len(points) != len(merged):
        return None
    epsilon = round_up(math.fsum(point.epsilon_bound * count for point, count in points), 1e-15)
    delta = round_up(math.fsum(point.delta_bound * count for point, count in points), 1e-15)
    return ApproxDP(epsilon, min(delta, 1.0)) if epsilon < math.inf else None


def _minimiser_beside_gaussian(merged: Mapping[Guarantee, int]) -> Guarantee | None:
    """The closed form of one perturbed minimiser and Gaussian mechanisms; None for any other parts."""
    minimisers = [guarantee for guarantee in merged if isinstance(guarantee, PerturbedMinimiser)]
    gaussian = [guarantee for guarantee in merged if isinstance(guarantee, GDP)]
    if len(minimisers) != 1 or merged[minimisers[0]] != 1 or len(merged) != 1 + len(gaussian):
        return None
    return beside_gaussian(minimisers[0], gaussian[0].mu)


def _merged(parts: Sequence[tuple[Guarantee, int]]) -> dict[Guarantee, int]:
    """Equal parts counted together, and parts that compose exactly within their kind made into one."""
    mus, rhos = list[float](), list[float]()
    sampled: dict[SampledGaussian, Counter[float]] = {}
    merged: Counter[Guarantee] = Counter()
    for guarantee, count in _flat(parts):
        if isinstance(guarantee, GDP):
            mus.append(_times(guarantee.mu, count))
        elif isinstance(guarantee, ZCDP):
            rhos.append(guarantee.rho if count == 1 else round_up(guarantee.rho * count))
        elif isinstance(guarantee, SampledGaussian):
            mus.append(_times(guarantee.gaussian_mu, count))
            # What steps must share: everything but their noise, so that a field added to the class is not lost here.
            family = replace(guarantee, noise=(1.0,), counts=(1,), levels_before_rounding=0, gaussian_mu=0.0)
            levels = sampled.setdefault(family, Counter())
            for level, times in zip(guarantee.noise, guarantee.counts, strict=True):
                levels[level] += times * count
        else:
            merged[guarantee] += count
    mu = compose_gdp(mus) if mus else 0.0
    if math.isinf(mu) or math.inf in rhos:
        return {NotPrivate(): 1}
    for family, levels in sampled.items():
        # Counts as floats, because a whole number may be too large for numpy.
        noise, counts = np.array(list(levels)), np.array([float(count) for count in levels.values()])
        rounded_noise, steps = round_levels_down(noise, counts, _MOST_LEVELS)
        rounded = noise.size if rounded_noise.size < noise.size else 0
        merged_fields = {"noise": tuple(rounded_noise.tolist()), "counts": tuple(steps.tolist()), "levels_before_rounding": rounded}
        # A sampled Gaussian composes with a Gaussian mechanism by itself; one of them takes it.
        merged[replace(family, **merged_fields, gaussian_mu=mu)] += 1
        mu = 0.0
    if mu > 0.0:
        merged[GDP(mu)] += 1
    if rhos and (rho := compose_zcdp(rhos)) > 0.0:
        merged[ZCDP(rho) if rho < math.inf else NotPrivate()] += 1
    return dict(merged)


def _times(mu: float, count: int) -> float:
    r"""$\mu$ of as many equal Gaussian mechanisms, rounded up."""
    return mu if count == 1 else round_up(mu * math.sqrt(count), 1e-15)


def convolved(parts: Mapping[Guarantee, int]) -> LossProfile | None:
    """The convolution of losses that dominate the parts, or None where it would say nothing or not fit in floating point."""
    return compose_losses([factor for guarantee, count in parts.items() for factor in _factors(guarantee, count)])


def _factors(guarantee: Guarantee, count: int) -> list[Factor]:
    """Each level of a sampled Gaussian by itself; of all else the profile."""
    steps = guarantee.factors() if isinstance(guarantee, TruncatedPoisson) else None
    if isinstance(guarantee, SampledGaussian) and 0.0 < guarantee.sampling_probability < 1.0:
        steps = sampled_factors(guarantee)
    if steps is not None:
        return [replace(factor, count=count * factor.count) for factor in steps]
    return [dominating_factor(guarantee, count)]


_CLASSES: tuple[type[Guarantee], ...] = (
    *(GDP, ZCDP, RDPCurve, ApproxDP, NotPrivate, GDPMixture, Tightest, WithSlack),
    *(SampledGaussian, TruncatedPoisson, WindowedGaussian, BallsInBinsGaussian, TruncatedAllocation, PerturbedMinimiser, Composition),
)
_KINDS = {each.kind: each for each in _CLASSES}


def guarantee_from_dict(data: Mapping[str, object]) -> Guarantee:
    """Rebuild the guarantee that `to_dict` wrote.

    The data has a known `kind` and exactly the fields of that kind; the guarantee equals the one written, bit for bit.

    Raises:
        InputError: the kind is unknown, a field is missing or unknown, or a value is outside its range.
    """
    if not isinstance(data, Mapping) or data.get("kind") not in _KINDS:  # pyright: ignore[reportUnnecessaryIsInstance]
        got = data.get("kind") if isinstance(data, Mapping) else data  # pyright: ignore[reportUnnecessaryIsInstance]
        raise outside("kind", got, "one of " + ", ".join(_KINDS))
    kind = _KINDS[str(data["kind"])]
    present, expected = set(data) - {"kind"}, set(stored_fields(kind))
    if present != expected:
        raise outside(f"the fields of a {kind.kind} guarantee", sorted(present), f"{sorted(expected)}, as to_dict wrote them")
    return cast("Callable[..., Guarantee]", kind)(**{name: _decode(data[name]) for name in expected})


def _decode(value: object) -> object:
    """`encode` of `guarantees`, undone."""
    if isinstance(value, Mapping):
        return guarantee_from_dict(cast("Mapping[str, object]", value))
    if isinstance(value, list | tuple):
        return tuple(_decode(entry) for entry in cast("list[object]", value))
    return math.inf if value == "inf" else value


def require_relation(guarantee: Guarantee, neighbours: str) -> None:
    """Refuse a guarantee that is about other neighbours: of batches sampled at random each relation has its own."""
    for relation in _relations(guarantee):
        if relation != neighbours:
            raise InputError(
                f"{guarantee.describe()} is about {relation}, and is said to be about {neighbours}.",
                remedy="compute it for the neighbours that are meant.",
            )


def _relations(guarantee: object) -> Iterator[str]:
    """The relations that guarantees within name: of batches sampled at random."""
    if isinstance(guarantee, Guarantee):
        for entry in fields(guarantee):  # pyright: ignore[reportArgumentType]
            value: object = getattr(guarantee, entry.name)
            if entry.name == "relation" and isinstance(value, str):
                yield value
            yield from _relations(value)
    elif isinstance(guarantee, tuple):
        for entry in cast("tuple[object, ...]", guarantee):
            yield from _relations(entry)


def noise_scaled(guarantee: Guarantee, factor: float) -> Guarantee:
    r"""The guarantee of the same Gaussian mechanism with every noise standard deviation multiplied by `factor`, finite and > 0.

    $\mu$ divides by the factor, for each component of a mixture and each bin; the noise levels of a sampled Gaussian multiply by it, and
    the Gaussian beside them divides. True up to the rounding of the last digit: certify the scaled run itself before relying on it.

    Raises:
        TypeError: the guarantee does not say how it depends on noise (a Rényi curve, a single point).
    """
    scale = require_positive("factor", factor)
    match guarantee:
        case GDP(mu=mu):
            return GDP(_over((mu,), scale)[0])
        case GDPMixture(mus=mus, weights=weights):
            return GDPMixture(_over(mus, scale), weights)
        case NotPrivate():
            return guarantee
        case Tightest(parts=parts):
            return Tightest(tuple(noise_scaled(part, scale) for part in parts))
        case WithSlack(guarantee=inner, slack=slack):
            return WithSlack(noise_scaled(inner, scale), slack)
        case Composition(parts=parts):
            return joined([(noise_scaled(part, scale), count) for part, count in parts])
        case SampledGaussian():
            noise, counts = merged_levels(np.asarray(guarantee.noise) * scale, guarantee.counts)
            return replace(guarantee, noise=noise, counts=counts, gaussian_mu=_over((guarantee.gaussian_mu,), scale)[0])
        case TruncatedPoisson(steps=steps):
            return replace(guarantee, steps=noise_scaled(steps, scale))
        case TruncatedAllocation(bins=bins):
            return replace(guarantee, bins=noise_scaled(bins, scale))
        case WindowedGaussian():
            levels = np.asarray(guarantee.noise) * scale
            return replace(guarantee, noise=tuple(levels.tolist()), shift_mus=_over(guarantee.shift_mus, scale))
        case BallsInBinsGaussian():
            mus, counts = merged_levels(np.array(_over(guarantee.mus, scale)), guarantee.counts)
            return replace(guarantee, mus=mus, counts=counts)
        case _:
            raise TypeError(f"a guarantee of kind {guarantee.kind} does not say how it depends on the noise")


def drawn_afresh(guarantee: Guarantee) -> Guarantee:
    """The same with Poisson batches where a record is in one of several bins: as about as much noise meets a target, and far quicker."""
    match guarantee:
        case BallsInBinsGaussian(mus=mus, counts=counts, relation=relation):
            levels = [(max(1.0 / mu, WEAKEST_NOISE), count) for mu, count in zip(mus, counts, strict=True) if mu > 0.0]
            if not levels:
                return guarantee
            noise, times = merged_levels(np.array([level for level, _ in levels]), tuple(count for _, count in levels))
            chance = 1.0 / sum(counts)
            return SampledGaussian(sampling_probability=chance, noise=noise, counts=times, relation=relation, design="poisson")
        case Composition(parts=parts):
            return joined([(drawn_afresh(part), count) for part, count in parts])
        case WithSlack(guarantee=inner, slack=slack):
            return WithSlack(drawn_afresh(inner), slack)
        case _:
            return guarantee


def _over(mus: tuple[float, ...], factor: float) -> tuple[float, ...]:
    """Each mu divided by the factor: 0 stays 0, and what underflows is not 0."""
    return tuple(0.0 if mu == 0.0 else max(mu / factor, 5e-324) for mu in mus)
