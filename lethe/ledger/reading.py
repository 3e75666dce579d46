"""Reading a ledger: what data sets have left, and whether it is as it was written."""

from __future__ import annotations

from functools import reduce

from sqlalchemy import Connection, select, union

from lethe.certificates.keys import PublicKey
from lethe.errors import InputError
from lethe.ledger.accounts import Account, Reservation, account_after
from lethe.ledger.budgets import DataSet
from lethe.ledger.database import Database
from lethe.ledger.tables import CORRECTIONS, DATA_SETS, ENTRIES, RELEASES, STARTS, entry_of
from lethe.ledger.texts import require_number
from lethe.ledger.verified import Verified, stored, walked

_SOURCE = "the ledger"


class ReadLedger:
    """What a ledger says. Every method reads one state of it.

    Args:
        database: of the ledger.
        key: whose seals are believed; None: this installation's and its team's.
    """

    def __init__(self, database: Database, *, key: PublicKey | None = None) -> None:
        self._database, self.key = database, key

    @property
    def name(self) -> str:
        """Where it is, without a password."""
        return self._database.place

    @property
    def read_only(self) -> bool:
        """Whether it is a SQLite file that this account may read and not write: on a read-only medium, or of another user."""
        return self._database.read_only

    def close(self) -> None:
        """Nothing is open between two uses; kept for whoever closes what they opened."""

    def show(self, data_set: str) -> Account:
        """What was released from a data set, what is reserved, and what is left.

        Raises:
            InputError: no such data set.
            LedgerError: the ledger cannot be read.
        """
        with self._database.reading() as connection:
            terms = terms_of(connection, data_set)
            rows = connection.execute(select(ENTRIES).where(ENTRIES.c.data_set == terms.name).order_by(ENTRIES.c.seq)).all()
        account = reduce(account_after, map(entry_of, rows), None)
        assert account is not None
        return account

    def terms(self, data_set: str) -> DataSet:
        """The terms on which a data set was entered; errors as `show`."""
        with self._database.reading() as connection:
            return terms_of(connection, data_set)

    def status(self, reservation: Reservation | int) -> Reservation:
        """What became of a reservation, and what is counted of it.

        Raises:
            InputError: there is none of that number.
            LedgerError: the ledger cannot be read, or its entry was changed.
        """
        with self._database.reading() as connection:
            return reservation_of(connection, reservation)

    def data_sets(self) -> tuple[str, ...]:
        """The names of all data sets, in the order in which they were entered."""
        with self._database.reading() as connection:
            return tuple(connection.execute(select(DATA_SETS.c.name).order_by(DATA_SETS.c.entry)).scalars())

    def verify(self, *, head: str | None = None) -> Verified:
        """Walk the chain, and check every entry, every number, every row, and that the schema has what is its own and nothing else.

        Args:
            head: the digest of an entry that was written down elsewhere; None: not asked. Without one nobody can tell that the last
                entries were cut off, or that all were written anew.
        Raises:
            LedgerError: something is not as it was written.
        """
        with self._database.reading() as connection:
            rows, tables = stored(connection)
        return walked(rows, tables, head=head, key=self.key)


def terms_of(connection: Connection, name: str) -> DataSet:
    """The terms of a data set."""
    entered = select(DATA_SETS.c.entry).where(DATA_SETS.c.name == str(name)).scalar_subquery()
    row = connection.execute(select(ENTRIES).where(ENTRIES.c.seq == entered)).one_or_none()
    if row is None or row.kind != "data_set" or row.data_set != str(name):
        others = connection.execute(select(DATA_SETS.c.name).order_by(DATA_SETS.c.entry).limit(5)).scalars().all()
        raise InputError(
            f"{str(name)[:80]!r} is no data set of this ledger; in it are {', '.join(others) or 'none'}.",
            source=_SOURCE,
            remedy="enter it first: `lethe ledger create`, or ledger.create(...).",
        )
    return DataSet.of(entry_of(row))


def reservation_of(connection: Connection, reservation: Reservation | int) -> Reservation:
    """A reservation, or that of a number, and what became of it by now."""
    number = require_number(reservation.number if isinstance(reservation, Reservation) else reservation)
    later = union(*(select(table.c.entry).where(table.c.reservation == number) for table in (STARTS, RELEASES, CORRECTIONS)))
    about = (ENTRIES.c.seq == number) | ENTRIES.c.seq.in_(select(later.subquery().c.entry))
    entries = [entry_of(row) for row in connection.execute(select(ENTRIES).where(about).order_by(ENTRIES.c.seq))]
    if not entries or entries[0].kind != "reservation":
        raise InputError(f"{number} is no reservation of this ledger.", source=_SOURCE, remedy="`lethe ledger show` lists them.")
    return reduce(Reservation.after, entries[1:], Reservation.of(entries[0]))
