"""DataSet: the terms on which a data set was entered, which no later entry can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lethe.ledger.budgets import Budget
from lethe.ledger.chain import Entry
from lethe.ledger.prices import Price
from lethe.run.neighbours import NOUNS, Neighbours, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set and its budget.

    Args:
        name: of the data set.
        neighbours, unit: what the budget is about.
        budget: what everything released from it may cost.
        limit: the budget in units, as it was when the data set was entered.
        closed: whether only named spenders may reserve.
        fingerprint: tells the data set from another one, and nothing of its content; or empty.
        since: when it was entered.
        digest: of the entry.
    """

    name: str
    neighbours: Neighbours
    unit: Unit
    budget: Budget
    limit: Price
    closed: bool
    fingerprint: str
    since: str
    digest: str

    @classmethod
    def of(cls, entry: Entry) -> DataSet:
        """What an entry of kind data_set says.

        Raises:
            LetheError, KeyError, TypeError, ValueError: it says none.
        """
        said = entry.fields
        return cls(
            name=entry.data_set,
            neighbours=said["neighbours"],
            unit=said["unit"],
            budget=Budget(**said["budget"]),
            limit=Price(int(said["limit"]["cost"]), int(said["limit"]["slack"])),
            closed=said["closed"],
            fingerprint=said["fingerprint"],
            since=entry.at,
            digest=entry.digest,
        )

    def left(self, counted: Price) -> Price:
        """What is left when so much is counted."""
        return self.limit - counted

    def what_fits(self, counted: Price, delta: float | None = None) -> str:
        """A line on the largest Gaussian release that still fits."""
        left = self.left(counted)
        at = self.budget.delta if self.budget.delta is not None else delta
        mu = self.budget.largest_mu(left)
        if left.cost * 10**11 <= self.limit.cost or mu <= 0.0:  # what a budget's tolerance leaves is nobody's to spend
            return "nothing is left"
        fitting = "" if at is None else f"epsilon = {_below(self.budget.largest_epsilon(left, at))} at delta = {at:g}, that is "
        slack = f", beside {_below(left.slack / 2**120)} of delta for covers" if self.limit.slack else ""
        return f"the largest Gaussian release that still fits has {fitting}mu = {_below(mu)}{slack}"

    def about(self) -> str:
        """What the budget is about, such as `replace_one of records`."""
        return f"{self.neighbours} of {NOUNS[self.unit][1]}"


def _below(value: float) -> str:
    """Six digits, cut off and not rounded, so that a plan for this number fits."""
    text = f"{value:.5e}"
    if float(text) > value:
        step = 10.0 ** (int(text.partition("e")[2]) - 5)
        text = f"{max(float(text) - step, 0.0):.5e}"
    return f"{float(text):.6g}"


def price_fields(price: Price) -> dict[str, Any]:
    """A price in plain data: whole numbers as text, which no reader rounds."""
    return {"cost": str(price.cost), "slack": str(price.slack)}
