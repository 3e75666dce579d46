"""Reading a ledger: what data sets have left, and whether it is as it was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, select

from lethe.certificates.signing.keys import PublicKey
from lethe.ledger.accounts import Account, account_of
from lethe.ledger.data_set import DataSet
from lethe.ledger.lookups import status_of, terms_of
from lethe.ledger.reservation import Reservation, ReservationStatus, require_number
from lethe.ledger.store.database import Database
from lethe.ledger.store.rows import entry_of
from lethe.ledger.store.tables import ENTRIES
from lethe.ledger.verified import Verified, walked


class ReadLedger:
    """What a ledger says. Every method reads one state of it.

    Args:
        database: of the ledger.
        key: whose seals are believed; None: this installation's and its team's.
    """

    def __init__(self, database: Database, *, key: PublicKey | None = None) -> None:
        self._database, self._key = database, key
        self._known: dict[str, DataSet] = {}

    @property
    def name(self) -> str:
        """Where it is, without a password."""
        return self._database.name

    @property
    def place(self) -> str:
        """Where another process opens it, without a password."""
        return self._database.place

    @property
    def read_only(self) -> bool:
        """Whether it is a SQLite file that this account may read and not write: on a read-only medium, or of another user."""
        return self._database.read_only

    @property
    def timeout(self) -> float:
        """How many seconds a writer waits for another one."""
        return self._database.timeout

    @property
    def key(self) -> PublicKey | None:
        """Whose seals are believed; None: this installation's and its team's."""
        return self._key

    def close(self) -> None:
        """Close its connections; the next use opens one again."""
        self._database.close()

    def show(self, data_set: str) -> Account:
        """What was released from a data set, what is reserved, and what is left.

        Raises:
            InputError: no such data set.
            LedgerError: the ledger cannot be read.
        """
        with self._reading() as connection:
            terms, _ = terms_of(connection, data_set)
            asked = select(ENTRIES).where(ENTRIES.c.data_set == terms.name).order_by(ENTRIES.c.seq)
            entries = [entry_of(row) for row in connection.execute(asked)]
        return account_of(terms, entries)

    def terms(self, data_set: str) -> DataSet:
        """The terms on which a data set was entered; errors as `show`."""
        with self._reading() as connection:
            return terms_of(connection, data_set)[0]

    def status(self, reservation: Reservation | int) -> ReservationStatus:
        """What became of a reservation, and what is counted of it.

        Raises:
            InputError: there is none of that number.
            LedgerError: the ledger cannot be read, or its entry was changed.
        """
        with self._reading() as connection:
            return status_of(connection, require_number(reservation))

    def data_sets(self) -> tuple[str, ...]:
        """The names of all data sets, in the order in which they were entered."""
        with self._reading() as connection:
            asked = select(ENTRIES.c.data_set).where(ENTRIES.c.kind == "data_set").order_by(ENTRIES.c.seq)
            return tuple(connection.execute(asked).scalars())

    def verify(self, *, head: str | None = None, recompute: bool = True) -> Verified:
        """Walk the chain, and check every entry, every number, every row, and that the schema has what is its own and nothing else.

        Args:
            head: the digest of an entry that was written down elsewhere; None: not asked. Without one nobody can tell that the last
                entries were cut off, or that all were written anew.
            recompute: whether every certificate is computed again, too.
        Raises:
            LedgerError: something is not as it was written.
        """
        with self._reading() as connection:
            return walked(connection, head=head, key=self._key, recompute=recompute)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._database.reading() as connection:
            yield connection
