"""Verification of a ledger: every entry follows from those before, every row from its entry, every price from its certificate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, select

from lethe.certificates.keys import PublicKey
from lethe.errors import LetheError
from lethe.ledger.accounts import Account, account_after
from lethe.ledger.chain import FIRST, Entry, damaged
from lethe.ledger.documents import presented, priced
from lethe.ledger.prices import Price
from lethe.ledger.schema import difference
from lethe.ledger.tables import BESIDE, ENTRIES, entry_of, rows_of

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


def stored(connection: Connection) -> tuple[Sequence[Any], Rows]:
    """The rows of the entries, and those of the other tables by their names; nothing is held while they are checked."""
    if odd := difference(connection):
        raise damaged(None, f"in its schema {odd}")
    if connection.dialect.name == "sqlite":
        answer = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if answer != "ok":
            raise damaged(None, f"SQLite finds that {answer}")
    tables = {table.name: Counter(tuple(row) for row in connection.execute(select(table))) for table in BESIDE}
    return connection.execute(select(ENTRIES).order_by(ENTRIES.c.seq)).all(), tables


def walked(rows: Sequence[Any], tables: Rows, *, head: str | None, key: PublicKey | None) -> Verified:
    """Walk the chain from its first entry to its last; arguments as of `Ledger.verify`."""
    accounts: dict[str, Account] = {}
    expected: Rows = {table.name: Counter() for table in BESIDE}
    prices: dict[str, Price] = {}
    before, passed, recomputed = None, head is None, 0
    for row in rows:
        entry = entry_of(row)
        _require_next(before, entry)
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


def _require_next(before: Entry | None, entry: Entry) -> None:
    seq, previous, at = (0, FIRST, "") if before is None else (before.seq, before.digest, before.at)
    if (entry.seq, entry.previous) != (seq + 1, previous):
        raise damaged(entry.seq, "it does not follow the entry before")
    if entry.at < at:
        raise damaged(entry.seq, "it is older than the entry before")


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
    return Price(int(price.cost * (1 + _SAME)), int(price.slack * (1 + _SAME)))
