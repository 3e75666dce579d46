"""Reading a ledger: what data sets have left, and whether it is as it was written.

`Ledger` derives from it; its `verify` walks the whole chain, `show` gives the account of a data set.

Every entry follows from those before, every row from its entry, every price from its certificate.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

from sqlalchemy import Connection, select, union

from lethe.certificates.keys import PublicKey
from lethe.errors import InputError, LetheError
from lethe.ledger.accounts import Account, Reservation, account_after
from lethe.ledger.budgets import DataSet
from lethe.ledger.chain import FIRST, Entry, damaged, require_number
from lethe.ledger.database import Database
from lethe.ledger.documents import presented, priced
from lethe.ledger.prices import Price
from lethe.ledger.schema import difference
from lethe.ledger.tables import CORRECTIONS, DATA_SETS, DERIVED_TABLES, ENTRIES, RELEASES, STARTS, entry_of, rows_of

_SOURCE = "the ledger"
# Another machine or version may round otherwise; a number is the same within that, as in `lethe verify`.
_SAME = Fraction(1, 10**6)
Rows = dict[str, Counter[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A ledger that is as it was written.

    Args:
        entries: how many there are.
        recomputed: how many certificates, statements and guarantees were computed again.
        head: the digest of the last entry; written down elsewhere, it shows later that nothing was cut off or written anew.
    """

    entries: int
    recomputed: int
    head: str


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
        return self._database.address

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
            rows, tables = _stored(connection)
        return _walked(rows, tables, head=head, key=self.key)


def terms_of(connection: Connection, name: str) -> DataSet:
    """The terms of a data set."""
    entered = select(DATA_SETS.c.entry).where(DATA_SETS.c.name == str(name)).scalar_subquery()
    row = connection.execute(select(ENTRIES).where(ENTRIES.c.seq == entered)).one_or_none()
    if row is None or row.kind != "data_set" or row.data_set != str(name):
        data_sets = connection.execute(select(DATA_SETS.c.name).order_by(DATA_SETS.c.entry).limit(5)).scalars().all()
        raise InputError(
            f"{str(name)[:80]!r} is no data set of this ledger; in it are {', '.join(data_sets) or 'none'}.",
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


def _stored(connection: Connection) -> tuple[Sequence[Any], Rows]:
    """The rows of the entries, and those of the other tables by their names; nothing is held while they are checked."""
    if odd := difference(connection):
        raise damaged(None, f"in its schema {odd}")
    if connection.dialect.name == "sqlite":
        answer = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if answer != "ok":
            raise damaged(None, f"SQLite finds that {answer}")
    tables = {table.name: Counter(tuple(row) for row in connection.execute(select(table))) for table in DERIVED_TABLES}
    return connection.execute(select(ENTRIES).order_by(ENTRIES.c.seq)).all(), tables


def _walked(rows: Sequence[Any], tables: Rows, *, head: str | None, key: PublicKey | None) -> Verified:
    """Follow the chain from its first entry, and compare digests, accounts, prices and tables with it."""
    accounts: dict[str, Account] = {}
    expected: Rows = {table.name: Counter() for table in DERIVED_TABLES}
    prices: dict[str, Price] = {}
    before, passed, recomputed = None, head is None, 0
    for row in rows:
        entry = entry_of(row)
        seq, previous, at = (0, FIRST, "") if before is None else (before.seq, before.digest, before.at)
        if (entry.seq, entry.previous) != (seq + 1, previous) or entry.at < at:
            raise damaged(entry.seq, "it does not follow the entry before, or is older than that")
        account = accounts[entry.data_set] = account_after(accounts.get(entry.data_set), entry)
        try:
            recomputed += _recomputed(account, entry, prices, key)
        except (LetheError, KeyError, TypeError, ValueError) as error:
            raise damaged(entry.seq, f"what it says does not hold: {str(error).splitlines()[0]}") from error
        for table, values in rows_of(entry):
            expected[table.name][tuple(values[column.name] for column in table.columns)] += 1
        before, passed = entry, passed or entry.digest == head
    if not passed:
        raise damaged(None, f"no entry has the digest {str(head)[:16]}..., which was written down")
    for name, lines in expected.items():
        if odd := (tables[name] - lines) or (lines - tables[name]):
            raise damaged(None, f"the table {name} does not say what the entries say: {str(next(iter(odd)))[:80]}")
    return Verified(entries=len(rows), recomputed=recomputed, head=FIRST if before is None else before.digest)


def _recomputed(account: Account, entry: Entry, prices: dict[str, Price], key: PublicKey | None) -> int:
    """How many documents were computed again: what one costs is not above what is counted, nor a limit above that of its budget."""
    terms, content = account.terms, entry.fields
    if entry.kind == "data_set" and not terms.limit.within(_same(terms.budget.limit)):
        raise ValueError("its limit is above that of its budget")
    if entry.kind not in ("reservation", "release"):
        return 0
    slack = account.reservations[content.get("reservation", entry.seq)].slack
    # A nightly refit rests on the same document every night.
    label = f"{terms.name} {slack!r} {content['document']!r}"
    if label not in prices:
        prices[label] = priced(presented(content["document"], terms, key=key), terms, slack)
    # What is counted may be more than the release cost, and never less.
    if not prices[label].within(_same(Price.of(content["price"]).with_rounding())):
        raise ValueError("its price is below that of its certificate")
    return 1


def _same(price: Price) -> Price:
    """The price plus what may differ by rounding between two machines."""
    return Price(int(price.cost * (1 + _SAME)), int(price.slack * (1 + _SAME)))
