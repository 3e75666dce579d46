"""Reservation: a part of a budget that counts as spent; and what of it is given back."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Literal

from lethe.errors import InputError, quoted
from lethe.ledger.chain import Entry
from lethe.ledger.prices import Price
from lethe.ledger.texts import require_name

State = Literal["reserved", "started", "settled", "voided"]
# Two machines compute one certificate's numbers alike, but for rounding.
_ROUNDING = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A part of a budget that is counted as spent from now on.

    Args:
        number: of its entry.
        data_set: whose budget.
        price: what is counted.
        counted: of the data set in all, this one included.
    """

    number: int
    data_set: str
    price: Price
    counted: Price


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationStatus:
    """What became of a reservation.

    Args:
        state: reserved, started, settled or voided.
        data_set: whose budget.
        price: what is counted of it; of a voided one what was.
        slack: its share of delta.
        digest: of its entry, which no other reservation of any ledger has.
    """

    state: State
    data_set: str
    price: Price
    slack: float
    digest: str


def price_in(entry: Entry) -> Price:
    """The price that an entry of a reservation or a release says."""
    said = entry.fields["price"]
    return Price(int(said["cost"]), int(said["slack"]))


def smaller(one: Price, other: Price) -> Price:
    """The smaller of each part."""
    return Price(min(one.cost, other.cost), min(one.slack, other.slack))


def with_rounding(price: Price) -> Price:
    """The price, with what another machine may round otherwise."""
    return Price(price.cost + price.cost // _ROUNDING + 1, price.slack + price.slack // _ROUNDING + 1)


def require_number(reservation: object) -> int:
    """The number of a reservation, or of a `Reservation`.

    Raises:
        InputError: it is neither.
    """
    number = reservation.number if isinstance(reservation, Reservation) else reservation
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**62:
        raise InputError(f"reservation: got {quoted(number)[:80]}; it needs a Reservation or its number.", source="reservation")
    return number


def spender_of(by: str | None) -> str:
    """Who spends: the name that was given, or the user of this process.

    Raises:
        InputError: it is no name, or nobody is named and the process has no user.
    """
    if by is not None:
        return require_name("by", by)
    try:
        return require_name("by", getpass.getuser())
    except (OSError, KeyError) as error:
        raise InputError("by: nobody is named, and this process has no user.", source="by", remedy="say who: by='team A'.") from error
