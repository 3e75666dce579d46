"""Refusals of the ledger that say what is left, and what to do."""

from __future__ import annotations

from lethe.accounting.parts import Part
from lethe.errors import BudgetExceededError
from lethe.ledger.data_set import DataSet
from lethe.ledger.prices import Price

_REMEDIES = {
    "budget": "plan the release with more noise for what is left, or release nothing more from this data set.",
    "slack": "take a mechanism with Gaussian noise alone, which needs none of it, or a smaller slack or delta; the share itself is fixed.",
}


def too_much(terms: DataSet, counted: Price, price: Price, part: Part) -> BudgetExceededError:
    """A reservation that does not fit, with what does.

    Args:
        terms: of the data set.
        counted: of it so far.
        price: of what was to be reserved.
        part: what that was.
    """
    over = "slack" if (counted + price).cost <= terms.limit.cost else "budget"
    return BudgetExceededError(
        f"{part.name} does not fit the {'share of delta for covers' if over == 'slack' else 'budget'} of {terms.name} "
        f"({terms.budget.describe()}): {terms.what_fits(counted, _delta_of(part))}.",
        source=f"the ledger: what is settled and what is reserved of {terms.name}",
        remedy=_REMEDIES[over],
    )


def more_than_reserved(number: int, terms: DataSet, reserved: Price, price: Price, *, rounding: bool = False) -> BudgetExceededError:
    """A release that cost more than its reservation.

    Args:
        number: of the reservation.
        terms: of the data set.
        reserved, price: what was reserved, and what it cost.
        rounding: whether it is only what rounding adds that was not reserved.
    """
    rest = Price(max(price.cost - reserved.cost, 0), max(price.slack - reserved.slack, 0))
    return BudgetExceededError(
        f"reservation {number}: what was released costs more than was reserved ({rest.cost / price.cost:.3%} is missing)."
        if price.cost > reserved.cost
        else f"reservation {number}: what was released takes more of delta than was reserved.",
        source=f"the price of what was reserved of {terms.name}",
        remedy="rounding in coarser types than float64 costs the rest: train a float64 copy (model.double())."
        if rounding
        else "release nothing of it; if it was released, reserve all of it anew and settle that: this one stays counted.",
    )


def _delta_of(part: Part) -> float | None:
    """The delta that its document is written at; None: none."""
    delta = part.content.get("delta") or part.content.get("target_delta")
    return delta if isinstance(delta, float) and 0.0 < delta < 1.0 else None
