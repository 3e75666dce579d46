"""What needs to know every kind of guarantee: reading back from JSON, the neighbours that one names, and scaling with the noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import cast

import numpy as np

from lethe.calculus.any_guarantee.composition import Composition, joined
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.domains import outside, require_positive
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, Guarantee, NotPrivate, RDPCurve, Tightest, WithSlack, stored_fields
from lethe.calculus.perturbed_minimiser import PerturbedMinimiser
from lethe.calculus.sampled.gaussian import SampledGaussian, merged_levels
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.errors import InputError

_CLASSES: tuple[type[Guarantee], ...] = (
    *(GDP, ZCDP, RDPCurve, ApproxDP, NotPrivate, GDPMixture, Tightest, WithSlack),
    *(SampledGaussian, WindowedGaussian, BallsInBinsGaussian, PerturbedMinimiser, Composition),
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
    given, wanted = set(data) - {"kind"}, set(stored_fields(kind))
    if given != wanted:
        raise InputError(
            f"a guarantee of kind {kind.kind} came with the fields {sorted(given)}; it needs {sorted(wanted)}.",
            source="the dictionary of a guarantee",
            remedy="give back what to_dict wrote",
        )
    return cast("Callable[..., Guarantee]", kind)(**{name: _decode(data[name]) for name in wanted})


def _decode(value: object) -> object:
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
        case WindowedGaussian():
            levels = np.asarray(guarantee.noise) * scale
            return replace(guarantee, noise=tuple(levels.tolist()), shift_mus=_over(guarantee.shift_mus, scale))
        case BallsInBinsGaussian():
            mus, counts = merged_levels(np.array(_over(guarantee.mus, scale)), guarantee.counts)
            return replace(guarantee, mus=mus, counts=counts)
        case _:
            raise TypeError(f"a guarantee of kind {guarantee.kind} does not say how it depends on the noise")


def _over(mus: tuple[float, ...], factor: float) -> tuple[float, ...]:
    """0 stays 0, and what underflows is not 0."""
    return tuple(0.0 if mu == 0.0 else max(mu / factor, 5e-324) for mu in mus)
