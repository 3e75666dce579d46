"""PaidRelease: a release by hand that is paid for; and the share of delta of a release that is no run."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from lethe.accounting.parts import Part
from lethe.calculus.rounding import round_down
from lethe.errors import InputError
from lethe.ledger.data_set import DataSet
from lethe.ledger.prices import SLACK_BITS, has_exact_price

_PARTS = 100


class _Settles(Protocol):
    def settle_release(self, number: int, stated: Any, *, artefact: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class PaidRelease:
    """A release that was reserved and started.

    Args:
        spender: that paid.
        number: of the reservation.
    """

    spender: _Settles
    number: int

    def settle(self, stated: Any, *, artefact: str = "") -> None:
        """Settle it with what was released.

        Args:
            stated: its statement, its guarantee, its certificate or its dp_accounting event.
            artefact: SHA-256 of what was released; empty: not said.
        Raises:
            BudgetExceededError: it cost more than was reserved; it stays counted as reserved.
            InputError, LedgerError: as `Ledger.settle`.
        """
        self.spender.settle_release(self.number, stated, artefact=artefact)


def needed_slack(part: Part, terms: DataSet, most: float | None) -> float:
    """The share of delta for a release for which none was said: nothing where its price is exact, else a hundredth of what there is.

    Args:
        part: the release.
        terms: of the data set; they were fixed before it, so that the share does not depend on a record.
        most: that it may be; None: nothing is said.
    Raises:
        InputError: it needs a share, and the data set's budget sets nothing aside.
    """
    if part.not_private or has_exact_price(part.guarantee, terms.budget.kind):
        return 0.0
    share = round_down(float(Fraction(terms.limit.slack, _PARTS * 2**SLACK_BITS)))
    if not share > 0.0:
        raise InputError(
            f"{part.name} has no exact price in the filter {terms.budget.kind}, and the budget of {terms.name} sets no share of delta "
            "aside for what covers it.",
            source=f"slack of the budget of {terms.name}",
            remedy="take a mechanism with Gaussian noise alone; or enter the data set with Budget(..., slack=...).",
        )
    return share if most is None else min(share, most)
