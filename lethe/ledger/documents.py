"""Documents: what a reservation or a release rests on, computed again, and written so that it can be computed again later."""

from __future__ import annotations

from typing import Any, get_args

from lethe.accounting.parts import Part, part_of
from lethe.calculus.domains import outside
from lethe.certificates.signing.keys import PublicKey
from lethe.errors import InputError
from lethe.ledger.prices import Filter, Price, price_of
from lethe.run.neighbours import Neighbours, Unit

_OF_ROUNDING = 2e-5


def presented(item: object, neighbours: Neighbours, unit: Unit, data_set: str, *, key: PublicKey | None = None) -> Part:
    """A certificate, statement, guarantee, dp_accounting event, or the plain data of one, that is to be about a data set's neighbours.

    A number that says no relation, a guarantee or an event, is taken to be about those of the data set, and so recorded as declared.

    Args:
        item: it.
        neighbours, unit: of the data set.
        data_set: its name.
        key: whose seals are believed; None: this installation's and its team's.
    Raises:
        InputError: it is about others, does not follow from what it is computed from, or is of another type.
    """
    if isinstance(item, dict):
        part, relation = part_of(item, name="the document", count=1, neighbours=neighbours, key=key, unit=unit)
    else:
        part, relation = part_of(item, name="", count=1, neighbours=neighbours, key=key, unit=unit)
    if (relation, part.unit) != (neighbours, unit):
        raise InputError(
            f"{part.name} counts {relation} of unit {part.unit}, the budget of {data_set} {neighbours} of unit {unit}: these "
            "do not add up.",
            source="neighbours and unit of the data set",
            remedy="certify the release for the data set's relation and unit, or enter the data set again, with a budget for these.",
        )
    return part


def recorded(part: Part) -> dict[str, Any]:
    """What an entry says of it."""
    return {
        "what": part.name,
        "kind": part.kind,
        "computed": part.computed,
        "guarantee": part.guarantee.describe(),
        "declared": list(part.declared),
        "document": part.content,
    }


def priced(part: Part, kind: Filter, slack: float) -> Price:
    """Its price; see `price_of`.

    Args:
        part: that was presented.
        kind, slack: as `price_of`.

    Raises:
        InputError: it has none.
    """
    if part.not_private:
        raise InputError(
            f"{part.name}: {part.not_private}",
            source="the certificate",
            remedy="nothing pays for a release without a guarantee; certify one that has noise.",
        )
    return price_of(part.guarantee, kind, slack)


def room_for_rounding(part: Part) -> float:
    """By which share more a planned run may cost once it is trained, and its precision is known; a plan keeps as much of its noise."""
    run = part.content.get("run") or {}
    hidden = run.get("release") == "last" and "noise" not in run  # correlated noise releases all iterates
    return _OF_ROUNDING if hidden and "precision" not in run else 0.0


def releases_of(part: Part, artefact: str) -> list[str]:
    """What tells a release from others: digests of what was released. A run tells nothing: it may be trained every night."""
    known = part.releases if part.kind == "statement" or part.sealed else frozenset[str]()
    return sorted({*known, *([artefact] if artefact else [])})


def require_neighbours(neighbours: object, unit: object) -> None:
    """Refuse a relation or a unit that is none.

    Raises:
        InputError: it is none.
    """
    for name, value, known in (("neighbours", neighbours, get_args(Neighbours)), ("unit", unit, get_args(Unit))):
        if value not in known:
            raise outside(name, value, "one of " + ", ".join(known))
