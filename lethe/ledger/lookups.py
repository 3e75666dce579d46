"""Look-ups within a transaction: the terms of a data set, what is counted of it, and a reservation that is still open."""

from __future__ import annotations

from sqlalchemy import Connection, select

from lethe.errors import InputError
from lethe.ledger.chain import Entry
from lethe.ledger.data_set import DataSet
from lethe.ledger.prices import Price
from lethe.ledger.reservation import ReservationStatus, price_in
from lethe.ledger.store.rows import checked, entry_at, entry_of, exists, last_entry
from lethe.ledger.store.tables import CORRECTIONS, DATA_SETS, ENTRIES, RELEASES, STARTS

_SOURCE = "the ledger"


def terms_of(connection: Connection, name: str) -> tuple[DataSet, Price]:
    """The terms of a data set, and what is counted of it.

    Raises:
        InputError: there is none of that name.
        LedgerError: its entry was changed.
    """
    entered = select(DATA_SETS.c.entry).where(DATA_SETS.c.name == str(name)).scalar_subquery()
    row = connection.execute(select(ENTRIES).where(ENTRIES.c.seq == entered)).one_or_none()
    if row is None or row.kind != "data_set" or row.data_set != str(name):
        known = connection.execute(select(ENTRIES.c.data_set).where(ENTRIES.c.kind == "data_set").limit(5)).scalars().all()
        raise InputError(
            f"{str(name)[:80]!r} is no data set of this ledger; in it are {', '.join(known) or 'none'}.",
            source=_SOURCE,
            remedy="enter it first: `lethe ledger create`, or ledger.create(...).",
        )
    return DataSet.of(checked(entry_of(row))), counted_of(connection, str(name))


def counted_of(connection: Connection, data_set: str) -> Price:
    """What is counted of a data set that is in the ledger."""
    entry = last_entry(connection, data_set)
    assert entry is not None
    return entry.counted


def reservation_at(connection: Connection, number: int) -> Entry:
    """The entry of a reservation.

    Raises:
        InputError: there is none of that number.
        LedgerError: it was changed.
    """
    entry = entry_at(connection, number)
    if entry is None or entry.kind != "reservation":
        raise InputError(f"{number} is no reservation of this ledger.", source=_SOURCE, remedy="`lethe ledger show` lists them.")
    return entry


def open_reservation(connection: Connection, number: int) -> Entry:
    """The entry of a reservation that is neither settled nor voided.

    Raises:
        InputError: there is none of that number, or it is one of these.
        LedgerError: it was changed.
    """
    entry = reservation_at(connection, number)
    for table, state in ((RELEASES, "settled"), (CORRECTIONS, "voided")):
        if exists(connection, table, reservation=number):
            raise InputError(f"reservation {number} is {state} already.", source=_SOURCE, remedy="reserve again for another release.")
    return entry


def status_of(connection: Connection, number: int) -> ReservationStatus:
    """What became of a reservation; errors as `reservation_at`."""
    entry = reservation_at(connection, number)
    settled = connection.execute(select(RELEASES.c.entry).where(RELEASES.c.reservation == number)).scalar_one_or_none()
    release = None if settled is None else entry_at(connection, settled)
    if release is not None:
        state = "settled"
    elif exists(connection, CORRECTIONS, reservation=number):
        state = "voided"
    else:
        state = "started" if exists(connection, STARTS, reservation=number) else "reserved"
    price, slack = price_in(entry if release is None else release), float(entry.fields["slack"])
    return ReservationStatus(state=state, data_set=entry.data_set, price=price, slack=slack, digest=entry.digest)
