"""A certificate's guarantee as a dp_accounting event, where that is exact and nowhere else. Users call `to_dp_event` to account for a
certificate in dp_accounting; a guarantee without an equal event there is refused.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dp_accounting import dp_event  # pyright: ignore[reportMissingTypeStubs]
from dp_accounting.privacy_accountant import NeighboringRelation  # pyright: ignore[reportMissingTypeStubs]

from lethe.accounting.dp_events import RELATIONS
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.guarantees import GDP, ZCDP, GDPMixture, Guarantee, NotPrivate, RDPCurve, Tightest, WithSlack
from lethe.calculus.rounding import round_down
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.calculus.sampled.truncated import TruncatedPoisson
from lethe.certificates.certificate import Certificate
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.run import Neighbours

# dp_accounting squares noise multipliers; beyond these a square leaves the floating-point range.
_WEAKEST, _STRONGEST = 1e-100, 1e100

_COMPOSE = "compose it in lethe.integrations.dp_accounting.LetheAccountant, which takes the run itself."
_WHY_NOT: dict[type[Guarantee], tuple[str, str]] = {
    GDPMixture: ("no event says that the order of the batches is secret; the worst component alone would be another guarantee", _COMPOSE),
    BallsInBinsGaussian: ("no event says that the bin of a record is secret", _COMPOSE),
    WithSlack: ("no event says that a guarantee may fail with a small probability", _COMPOSE),
    TruncatedPoisson: ("dp_accounting's event for batches that are cut counts more than they cost", _COMPOSE),
    Tightest: ("an event says one guarantee, and this is the smallest of several: one part alone would be looser", _COMPOSE),
    RDPCurve: ("no event says a Rényi curve", "export epsilon at one delta, or compose the curves themselves."),
    SampledGaussian: (
        "none holds a Gaussian beside Poisson batches under every relation, and for batches without replacement the accountant takes noise "
        "relative to the distance between data sets, not to the gradient bound as the event documents",
        _COMPOSE,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEvent:
    """A certificate's guarantee in dp_accounting's terms.

    Args:
        event: the event.
        neighbouring_relation: the relation of an accountant in which the event costs exactly what the certificate says.
        neighbours: the relation the certificate, and so the accountant's answer, is about.
        note: in what sense the export is exact.
    """

    event: Any
    neighbouring_relation: NeighboringRelation
    neighbours: Neighbours
    note: str


def to_dp_event(certificate: Certificate) -> ExportedEvent:
    r"""Say a certificate's guarantee as a DpEvent.

    | guarantee | event | accountants |
    |---|---|---|
    | $\mu$-GDP | `GaussianDpEvent(1/mu)`; NoOp for 0, NonPrivate for infinity | PLD, RDP |
    | $\rho$-zCDP | `ZCDpEvent(rho)` | RDP |
    | the same, of correlated noise | one `GaussianDpEvent`, for all steps: $1/\mu = z/(s\,\mathrm{sens}(C))$ | PLD, RDP |
    | sampled Gaussian, Poisson | compositions of `PoissonSampledDpEvent(q, GaussianDpEvent(z))` | PLD, RDP (PLD alone for replace one) |

    A Gaussian event means noise relative to one record's bound, and under REPLACE_ONE the PLD accountant doubles the distance while
    the RDP accountant does not. $\mu$-GDP under `replace_one` is therefore exported for REPLACE_SPECIAL, where the distance is 1 in both.
    There the relation is only a unit: the answer holds for the certificate's own `neighbours`, and an event of another mechanism must
    not be added unless its noise multiplier, too, is relative to the distance between neighbours under that relation.

    Args:
        certificate: what `lethe.certify` gave.
    Returns:
        The event, and under which relation to account it.
    Raises:
        InputError: it is no certificate, or no event says its guarantee: mixtures, slack, the tightest of different bounds, Rényi curves,
            single points (epsilon, delta), batches without replacement.
    """
    if not isinstance(certificate, Certificate):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"certificate: got {type(certificate).__name__}; it needs a lethe.Certificate.", remedy="give what lethe.certify returns."
        )
    neighbours = require_run(certificate.run, correlated=True).neighbours
    event, relation, note = _export(_unwrapped(certificate.guarantee), neighbours, certificate)
    if certificate.run.unit != "record":
        note += "; the unit is one user: add no event that is about records"
    return ExportedEvent(event=event, neighbouring_relation=relation, neighbours=neighbours, note=note)


def _unwrapped(guarantee: Guarantee) -> Guarantee:
    """Without wrappers that say nothing: no slack, or several times the same bound."""
    if isinstance(guarantee, WithSlack) and guarantee.slack == 0.0:
        return _unwrapped(guarantee.guarantee)
    if isinstance(guarantee, Tightest) and len(set(guarantee.parts)) == 1:
        return _unwrapped(guarantee.parts[0])
    return guarantee


def _export(guarantee: Guarantee, neighbours: Neighbours, certificate: Certificate) -> tuple[Any, NeighboringRelation, str]:
    """The event, its relation and a note on exactness, by the kind of guarantee; an error for kinds without an exact event."""
    relation = RELATIONS[neighbours]
    unbounded = isinstance(guarantee, ZCDP) and guarantee.rho == math.inf
    if unbounded or isinstance(guarantee, NotPrivate) or (isinstance(guarantee, GDP) and guarantee.mu > 1.0 / _WEAKEST):
        return dp_event.NonPrivateDpEvent(), relation, "nothing is protected, under any relation"
    if isinstance(guarantee, GDP):
        if guarantee.mu == 0.0:
            return dp_event.NoOpDpEvent(), relation, "nothing is revealed, under any relation"
        unit = NeighboringRelation.REPLACE_SPECIAL if neighbours == "replace_one" else relation
        note = f"the same trade-off curve; the accountant's answer holds for {neighbours}"
        if unit is not relation:
            note += f", and {unit.name} only says that noise is relative to the distance between neighbours: add no other mechanism's event"
        return dp_event.GaussianDpEvent(_noise(guarantee.mu)), unit, note
    if isinstance(guarantee, ZCDP):
        return dp_event.ZCDpEvent(guarantee.rho), relation, "the same Rényi bound; for the RDP accountant, at the orders it has"
    if isinstance(guarantee, SampledGaussian) and guarantee.design == "poisson" and guarantee.gaussian_mu == 0.0:
        return _sampled(guarantee), RELATIONS[guarantee.relation], "the same mechanism; numbers agree up to the accountant's discretisation"
    why, remedy = _WHY_NOT.get(type(guarantee), ("there is no event for it", "give its epsilon and delta as they are."))
    raise InputError(
        f"guarantee: got {guarantee.describe()} (kind {guarantee.kind}); it needs one that a DpEvent says exactly: {why}.",
        source=f"the certificate of run {certificate.run.run_id}, by {certificate.theorem}",
        remedy=remedy,
    )


def _noise(mu: float) -> float:
    r"""The largest float at most $1/\mu$: rounding it up would claim less than $\mu$."""
    noise = 1.0 / mu
    if noise > _STRONGEST:
        return _STRONGEST
    return round_down(noise) if Fraction(noise) * Fraction(mu) > 1 else noise


def _sampled(guarantee: SampledGaussian) -> Any:
    """A sampled Gaussian guarantee as Poisson-sampled Gaussian events, one for each noise level."""
    if guarantee.sampling_probability == 0.0:
        return dp_event.NoOpDpEvent()
    steps: list[Any] = [
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(guarantee.sampling_probability, dp_event.GaussianDpEvent(level)), count)
        for level, count in zip(guarantee.noise, guarantee.counts, strict=True)
    ]
    return steps[0] if len(steps) == 1 else dp_event.ComposedDpEvent(steps)
