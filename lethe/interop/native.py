"""What dp_accounting's own events guarantee, as Lethe's guarantees, each type read once and by nobody else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dp_accounting import dp_event  # pyright: ignore[reportMissingTypeStubs]

from lethe.calculus.composition import compose_gdp
from lethe.calculus.domains import require_nonnegative, require_probability
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, Guarantee, NotPrivate, RDPCurve
from lethe.calculus.normal import round_up
from lethe.calculus.sampled_gaussian import SampledGaussian
from lethe.errors import InputError
from lethe.run import Neighbours

_ORDERS = tuple(1.0 + 0.01 * 1.03**k for k in range(400))
# Below this noise a step hides nothing that floating point could tell; above the other more noise is not credited.
_WEAKEST, _STRONGEST = 1e-100, 1e100


class UnknownEvent(Exception):
    """An event type, or a composition of them, that has no rule here."""


def guarantee_of(event: Any, neighbours: Neighbours) -> Guarantee:
    """The guarantee of one application of a dp_accounting event that composes nothing.

    Noise multipliers are relative to the bound on one record's value, as dp_accounting documents them, so replacing a record moves a
    sum by twice the bound. (Its RDP accountant leaves that factor out.)

    Args:
        event: Gaussian, Poisson or without-replacement sampled Gaussian, ZCDp, EpsilonDelta, NoOp or NonPrivate; exactly these types,
            since a subclass may mean something else.
        neighbours: the relation.
    Raises:
        UnknownEvent: there is no rule for this type.
        InputError: a number in it is out of range, or it does not go with the relation.
    """
    rule = _RULES.get(type(event).__name__) if type(event).__module__ == dp_event.__name__ else None
    if rule is None:
        raise UnknownEvent(f"no rule for {type(event).__name__}")
    return rule(event, neighbours)


def _gaussian(event: Any, neighbours: Neighbours) -> Guarantee:
    noise = require_nonnegative("noise_multiplier", event.noise_multiplier)
    if noise < _WEAKEST:
        return NotPrivate()
    distance = 2.0 if neighbours == "replace_one" else 1.0
    return GDP(0.0 if noise == math.inf else compose_gdp([round_up(distance / noise)]))


def _poisson(event: Any, neighbours: Neighbours) -> Guarantee:
    return _sampled(require_probability("sampling_probability", event.sampling_probability), event.event, neighbours, "poisson")


def _without_replacement(event: Any, neighbours: Neighbours) -> Guarantee:
    size, sample = event.source_dataset_size, event.sample_size
    if (
        not all(isinstance(number, int) and not isinstance(number, bool) for number in (size, sample))
        or not 0 <= sample <= size
        or not size
    ):
        raise InputError(f"sample_size = {sample!r} of source_dataset_size = {size!r}; a sample of at most all records is needed.")
    return _sampled(sample / size, event.event, neighbours, "without_replacement")


def _sampled(probability: float, inner: Any, neighbours: Neighbours, design: Any) -> Guarantee:
    if type(inner) is not dp_event.GaussianDpEvent:
        raise UnknownEvent(f"sampling is accounted for a GaussianDpEvent, not for {type(inner).__name__}")
    noise = require_nonnegative("noise_multiplier", inner.noise_multiplier)
    # Also refuses a relation that does not go with the design, whatever the numbers.
    step = SampledGaussian(
        sampling_probability=probability,
        noise=(min(max(noise, _WEAKEST), _STRONGEST),),
        counts=(1,),
        relation=neighbours,
        design=design,
    )
    if probability == 0.0:
        return GDP(0.0)
    if noise < _WEAKEST:
        return NotPrivate()
    return step if probability < 1.0 else _gaussian(inner, neighbours)


def _zcdp(event: Any, neighbours: Neighbours) -> Guarantee:
    del neighbours
    rho, offset = require_nonnegative("rho", event.rho), require_nonnegative("xi", event.xi)
    if math.isinf(rho) or math.isinf(offset):
        return NotPrivate()
    return ZCDP(rho) if offset == 0.0 else RDPCurve(_ORDERS, tuple(round_up(offset + rho * order, 1e-15) for order in _ORDERS))


def _point(event: Any, neighbours: Neighbours) -> Guarantee:
    del neighbours
    epsilon, delta = require_nonnegative("epsilon", event.epsilon), require_probability("delta", event.delta)
    return NotPrivate() if math.isinf(epsilon) or delta == 1.0 else ApproxDP(epsilon, delta)


def _constant(guarantee: Guarantee) -> Callable[[Any, Neighbours], Guarantee]:
    return lambda _, __: guarantee


# By name, because releases of dp_accounting differ in which of them they have.
_RULES: dict[str, Callable[[Any, Neighbours], Guarantee]] = {
    "NoOpDpEvent": _constant(GDP(0.0)),
    "NonPrivateDpEvent": _constant(NotPrivate()),
    "GaussianDpEvent": _gaussian,
    "PoissonSampledDpEvent": _poisson,
    "SampledWithoutReplacementDpEvent": _without_replacement,
    "ZCDpEvent": _zcdp,
    "EpsilonDeltaDpEvent": _point,
}
