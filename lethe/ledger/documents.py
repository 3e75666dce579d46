"""Checking and pricing the document (certificate, statement or guarantee) that a reservation or a release rests on, and refusals that say
what is left.

`Ledger`, paying.py and reading.py call it; nothing is paid by an epsilon that a file merely claims.
"""

from fractions import Fraction
from typing import Any

from lethe.accounting.parts import Part, part_of
from lethe.calculus.rounding import round_down
from lethe.certificates.keys import PublicKey
from lethe.certificates.statement import KIND
from lethe.errors import BudgetExceededError, InputError
from lethe.ledger.accounts import Reservation
from lethe.ledger.budgets import DataSet
from lethe.ledger.prices import SLACK_BITS, Price, has_exact_price, price_of

_OF_ROUNDING = 2e-5
_PARTS = 100


def presented(item: object, terms: DataSet, *, key: PublicKey | None = None) -> Part:
    """A certificate, statement, guarantee, dp_accounting event, or the plain data of one, that is to be about a data set's neighbours.

    A number that says no relation, a guarantee or an event, is taken to be about those of the data set, and so recorded as declared.
    """
    about: dict[str, Any] = {"count": 1, "neighbours": terms.neighbours, "unit": terms.unit, "key": key}
    part, relation = part_of(item, name="the document" if isinstance(item, dict) else "", **about)
    if (relation, part.unit) != (terms.neighbours, terms.unit):
        raise InputError(
            f"{part.name} counts {relation} of unit {part.unit}, the budget of {terms.name} {terms.neighbours} of unit {terms.unit}: these "
            "do not add up.",
            source="neighbours and unit of the data set",
            remedy="certify the release for the data set's relation and unit, or enter the data set again, with a budget for these.",
        )
    return part


def recorded(part: Part) -> dict[str, Any]:
    """What an entry says of it."""
    return {
        "what": part.name,
        "kind": _kind(part),
        "computed": part.computed,
        "guarantee": part.guarantee.describe(),
        "declared": list(part.declared),
        "document": part.content,
    }


def _kind(part: Part) -> str:
    if "run" in part.content:
        return "certificate"
    return "statement" if part.content.get("kind") == KIND else "guarantee"


def priced(part: Part, terms: DataSet, slack: float) -> Price:
    """Its price in the data set's filter; see `price_of`."""
    if part.not_private:
        raise InputError(
            f"{part.name}: {part.not_private}",
            source="the certificate",
            remedy="nothing pays for a release without a guarantee; certify one that has noise.",
        )
    return price_of(part.guarantee, terms.budget.kind, slack)


def needed_slack(part: Part, terms: DataSet, largest: float | None) -> float:
    """The share of delta, at most this, for a release for which none was named: nothing where its price is exact, else a hundredth of what
    there is. The terms were fixed before it, so that the share does not depend on a record.
    """
    if part.not_private or has_exact_price(part.guarantee, terms.budget.kind):
        return 0.0
    share = round_down(float(Fraction(terms.limit.slack, _PARTS * 2**SLACK_BITS)))
    if not share > 0.0:
        raise InputError(
            f"{part.name} has no exact price: it takes a share of delta, and the budget of {terms.name} sets none aside.",
            source=f"slack of the budget of {terms.name}",
            remedy="take a mechanism with Gaussian noise alone; or enter the data set with Budget(..., slack=...).",
        )
    return share if largest is None else min(share, largest)


def room_for_rounding(part: Part) -> float:
    """By which share more a planned run may cost once it is trained, and its precision is known; a plan keeps as much of its noise."""
    run = part.content.get("run") or {}
    hidden = run.get("release") == "last" and "noise" not in run  # correlated noise releases all iterates
    return _OF_ROUNDING if hidden and "precision" not in run else 0.0


def releases_of(part: Part, artefact: str) -> list[str]:
    """What tells a release from others: digests of what was released. A run tells nothing: it may be trained every night."""
    sealed_releases = part.releases if _kind(part) == "statement" or part.sealed else frozenset[str]()
    return sorted({*sealed_releases, *([artefact] if artefact else [])})


def too_much(terms: DataSet, counted: Price, price: Price, part: Part) -> BudgetExceededError:
    """A reservation that does not fit beside what is counted so far, with what does."""
    whole = (counted + price).cost > terms.limit.cost
    delta = part.content.get("delta") or part.content.get("target_delta")
    fits = terms.what_fits(counted, delta if isinstance(delta, float) and 0.0 < delta < 1.0 else None)
    return BudgetExceededError(
        f"{part.name} does not fit the {'budget' if whole else 'share of delta for noise that is not Gaussian'} of {terms.name} "
        f"({terms.budget.describe()}): {fits}.",
        source=f"the ledger: what is settled and what is reserved of {terms.name}",
        remedy="plan the release with more noise for what is left, or release nothing more from this data set."
        if whole
        else "take a mechanism with Gaussian noise alone, which needs none of it, or a smaller slack or delta; the share itself is fixed.",
    )


def more_than_reserved(reserved: Reservation, price: Price) -> BudgetExceededError:
    """A release that cost more than its reservation."""
    missing = max(price.cost - reserved.price.cost, 0)
    more = f"costs more than was reserved ({missing / price.cost:.3%} is missing)" if missing else "takes more of delta than was reserved"
    return BudgetExceededError(
        f"reservation {reserved.number}: what was released {more}.",
        source=f"the price of what was reserved of {reserved.data_set}",
        remedy="release nothing of it, or reserve all of it anew: this stays counted. If rounding costs the rest, train model.double().",
    )
