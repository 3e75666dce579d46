"""Verification of a ledger: every entry follows from those before, every row from its entry, every price from its certificate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, select

from lethe.certificates.signing.keys import PublicKey
from lethe.errors import LedgerError, LetheError
from lethe.ledger.chain import FIRST, Entry, damaged
from lethe.ledger.data_set import DataSet
from lethe.ledger.documents import presented, priced
from lethe.ledger.prices import FREE, Price
from lethe.ledger.reservation import price_in, with_rounding
from lethe.ledger.store.rows import SAID_IN_COLUMNS, checked, entry_of, rows_of
from lethe.ledger.store.schema.objects import difference
from lethe.ledger.store.tables import ENTRIES

# Another machine or version may round otherwise; a number is the same within that, as in `lethe verify`.
_SAME = Fraction(1, 10**6)


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


@dataclass(slots=True)
class _Walk:
    """What the entries so far say."""

    key: PublicKey | None
    recompute: bool
    terms: dict[str, DataSet] = field(default_factory=dict)
    counted: dict[str, Price] = field(default_factory=dict)
    spenders: set[tuple[str, str]] = field(default_factory=set)
    reservations: dict[int, Entry] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    rows: dict[str, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    known: dict[str, Price] = field(default_factory=dict)
    recomputed: int = 0


def walked(connection: Connection, *, head: str | None, key: PublicKey | None, recompute: bool) -> Verified:
    """Walk the chain from its first entry to its last.

    Args:
        connection: that reads one state.
        head, key, recompute: as `Ledger.verify`.
    Raises:
        LedgerError: something is not as it was written.
    """
    _require_whole(connection)
    walk, before, passed = _Walk(key, recompute), None, head is None
    for row in connection.execute(select(ENTRIES).order_by(ENTRIES.c.seq)):
        entry = checked(entry_of(row))
        _require_next(before, entry)
        try:
            _follow(walk, entry)
        except LedgerError:
            raise
        except (LetheError, KeyError, TypeError, ValueError) as error:
            raise damaged(entry.seq, f"what it says does not hold: {str(error).splitlines()[0]}") from error
        before, passed = entry, passed or entry.digest == head
    if not passed:
        raise damaged(None, f"no entry has the digest {str(head)[:16]}..., which was written down")
    _compare_rows(connection, walk)
    return Verified(
        entries=0 if before is None else before.seq, recomputed=walk.recomputed, head=FIRST if before is None else before.digest
    )


def _require_whole(connection: Connection) -> None:
    """Nothing else is in the schema; and of SQLite every table says what its indices say, of which only one is read below."""
    if odd := difference(connection):
        raise damaged(None, f"in its schema {odd}")
    if connection.dialect.name == "sqlite":
        said = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if said != "ok":
            raise damaged(None, f"SQLite finds that {said}")


def _require_next(before: Entry | None, entry: Entry) -> None:
    seq, previous, at = (0, FIRST, "") if before is None else (before.seq, before.digest, before.at)
    if (entry.seq, entry.previous) != (seq + 1, previous):
        raise damaged(entry.seq, "it does not follow the entry before")
    if entry.at < at:
        raise damaged(entry.seq, "it is older than the entry before")


def _follow(walk: _Walk, entry: Entry) -> None:
    """Check an entry against what the entries before say, and take it in."""
    name, said = entry.data_set, entry.fields
    if (entry.kind == "data_set") == (name in walk.terms):
        raise ValueError("its data set is unknown, or entered twice")
    if entry.kind == "data_set":
        terms = DataSet.of(entry)
        if not terms.limit.within(_same(terms.budget.limit)):
            raise ValueError("its limit is above that of its budget")
        walk.terms[name], walk.counted[name] = terms, FREE
    terms, change = walk.terms[name], FREE
    match entry.kind:
        case "spender":
            walk.spenders.add((name, said["name"]))
        case "reservation":
            if terms.closed and (name, said["by"]) not in walk.spenders:
                raise ValueError("who reserved was not admitted")
            _require_price(walk, terms, said, price_in(entry), float(said["slack"]))
            walk.reservations[entry.seq], change = entry, price_in(entry)
        case "start":
            _open(walk, entry, said)
            if said["reservation"] in walk.started:
                raise ValueError("its reservation was started before")
            walk.started.add(said["reservation"])
        case "release":
            change = _settled(walk, terms, entry, said)
        case "void":
            if said["reservation"] in walk.started:
                raise ValueError("it voids a reservation that was started")
            change = FREE - price_in(_closed(walk, entry, said))
        case _:
            pass
    counted = walk.counted[name] + change
    if counted != entry.counted or not counted.within(terms.limit) or counted.cost < 0 or counted.slack < 0:
        raise ValueError("what it counts is not the sum, or above the limit")
    walk.counted[name] = counted
    for table, row in rows_of(entry):
        walk.rows.setdefault(table.name, Counter())[tuple(row[column.name] for column in table.columns)] += 1


def _settled(walk: _Walk, terms: DataSet, entry: Entry, said: dict[str, Any]) -> Price:
    reservation = _closed(walk, entry, said)
    reserved, charged = price_in(reservation), price_in(entry)
    if not charged.within(reserved) or (charged != reserved and not said["fixed_before"]):
        raise ValueError("what is counted of it is not what was reserved")
    # What is counted may be more than the release cost, and never less.
    _require_price(walk, terms, said, charged, float(reservation.fields["slack"]))
    return charged - reserved


def _require_price(walk: _Walk, terms: DataSet, said: dict[str, Any], stated: Price, slack: float) -> None:
    if not walk.recompute:
        return
    # A nightly refit rests on the same document every night.
    label = f"{terms.name} {slack!r} {said['document']!r}"
    if label not in walk.known:
        part = presented(said["document"], terms.neighbours, terms.unit, terms.name, key=walk.key)
        walk.known[label] = priced(part, terms.budget.kind, slack)
    walk.recomputed += 1
    if not walk.known[label].within(_same(with_rounding(stated))):
        raise ValueError("its price is below that of its certificate")


def _open(walk: _Walk, entry: Entry, said: dict[str, Any]) -> Entry:
    reservation = walk.reservations.get(said["reservation"])
    if reservation is None or reservation.data_set != entry.data_set or said["reservation"] in walk.closed:
        raise ValueError("its reservation is unknown, another data set's, or closed")
    return reservation


def _closed(walk: _Walk, entry: Entry, said: dict[str, Any]) -> Entry:
    reservation = _open(walk, entry, said)
    walk.closed.add(said["reservation"])
    return reservation


def _same(price: Price) -> Price:
    return Price(int(price.cost * (1 + _SAME)), int(price.slack * (1 + _SAME)))


def _compare_rows(connection: Connection, walk: _Walk) -> None:
    for table in SAID_IN_COLUMNS:
        found = Counter(tuple(row) for row in connection.execute(select(table)))
        if found != walk.rows.get(table.name, Counter()):
            odd = next(iter((found - walk.rows.get(table.name, Counter())) or (walk.rows.get(table.name, Counter()) - found)))
            raise damaged(None, f"the table {table.name} does not say what the entries say: {str(odd)[:80]}")
