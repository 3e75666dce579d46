"""Translation of dp_accounting's relations and events into Lethe's.

`parts` (totals of files) and `integrations.dp_accounting` hand in such events: another library's description of a mechanism.
"""

import math
import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, cast

from dp_accounting import dp_event  # pyright: ignore[reportMissingTypeStubs]
from dp_accounting.privacy_accountant import NeighboringRelation  # pyright: ignore[reportMissingTypeStubs]

from lethe.calculus.composition import compose_gdp
from lethe.calculus.domains import require_nonnegative, require_probability
from lethe.calculus.guarantees import GDP, ZCDP, Guarantee, NotPrivate, RDPCurve
from lethe.calculus.rounding import round_up
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.errors import InputError
from lethe.run.run import Neighbours

RELATIONS: dict[Neighbours, NeighboringRelation] = {
    "replace_one": NeighboringRelation.REPLACE_ONE,
    "zero_out": NeighboringRelation.REPLACE_SPECIAL,
    "add_or_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
}
_NAMES: dict[NeighboringRelation, Neighbours] = {relation: name for name, relation in RELATIONS.items()}
_ORDERS = tuple(1.0 + 0.01 * 1.03**k for k in range(400))
# Below this noise a step hides nothing that floating point could tell; above the other more noise is not credited.
_WEAKEST, _STRONGEST = 1e-100, 1e100


class UnknownEvent(Exception):
    """An event type, or a composition of them, that has no rule here."""


def neighbours_of(relation: object) -> Neighbours:
    """Lethe's name of one of dp_accounting's neighbouring relations; InputError of anything else."""
    if not isinstance(relation, NeighboringRelation):
        raise InputError(
            f"neighboring_relation: got {relation!r}; it needs a dp_accounting.NeighboringRelation.",
            source="the argument neighboring_relation",
            remedy="give NeighboringRelation.REPLACE_ONE, REPLACE_SPECIAL (zero out) or ADD_OR_REMOVE_ONE.",
        )
    return _NAMES[relation]


def whole(value: object) -> int | None:
    """A whole number of any kind as Python's own, or None for anything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return None


def guarantee_of(event: Any, neighbours: Neighbours) -> Guarantee:
    """The guarantee of one application of an event that composes nothing, of exactly the types below: a subclass may mean something else.

    Noise multipliers are relative to the bound on one record's value, as dp_accounting documents them, so replacing a record moves a
    sum by twice the bound. (Its RDP accountant leaves that factor out.)
    """
    kind = cast(type, event.__class__)
    rule = _RULES.get(kind)
    if rule is None:
        raise UnknownEvent(f"no rule for {kind.__name__}")
    return rule(event, neighbours)


def leaves_of(event: Any, count: int) -> Iterator[tuple[Any, int | None]]:
    """The events that compose nothing, with how often each is applied; None for a composition that is not one."""
    waiting: list[tuple[Any, int]] = [(event, count)]
    while waiting:
        current, times = waiting.pop()
        if type(current) is dp_event.SelfComposedDpEvent:
            often = whole(current.count)
            if often is None or often < 1:
                yield current, None
            else:
                waiting.append((current.event, times * often))
        elif type(current) is dp_event.ComposedDpEvent:
            listed: Any = current.events
            if isinstance(listed, list | tuple):
                waiting.extend((part, times) for part in reversed(cast("list[Any]", listed)))
            else:
                yield current, None
        else:
            yield current, times


def _gaussian(event: Any, neighbours: Neighbours) -> Guarantee:
    noise = require_nonnegative("noise_multiplier", event.noise_multiplier)
    if noise < _WEAKEST:
        return NotPrivate()
    distance = 2.0 if neighbours == "replace_one" else 1.0
    return GDP(0.0 if noise == math.inf else compose_gdp([round_up(distance / noise)]))


def _poisson(event: Any, neighbours: Neighbours) -> Guarantee:
    return _sampled(require_probability("sampling_probability", event.sampling_probability), event.event, neighbours, "poisson")


def _without_replacement(event: Any, neighbours: Neighbours) -> Guarantee:
    size, sample = whole(event.source_dataset_size), whole(event.sample_size)
    if size is None or sample is None or not 0 <= sample <= size or size == 0:
        raise InputError(
            f"sample_size: got {event.sample_size!r} of source_dataset_size = {event.source_dataset_size!r}; "
            "it needs a sample of at most all records."
        )
    return _sampled(_share_above(sample, size), event.event, neighbours, "without_replacement")


def _share_above(sample: int, size: int) -> float:
    """The smallest float that is not below sample / size; not 0 where a quotient underflows."""
    nearest = sample / size
    return nearest if Fraction(nearest) * size >= sample else math.nextafter(nearest, 1.0)


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


_RULES: dict[type, Callable[[Any, Neighbours], Guarantee]] = {
    dp_event.NoOpDpEvent: lambda _, __: GDP(0.0),
    dp_event.NonPrivateDpEvent: lambda _, __: NotPrivate(),
    dp_event.GaussianDpEvent: _gaussian,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.SampledWithoutReplacementDpEvent: _without_replacement,
    dp_event.ZCDpEvent: _zcdp,
}
