"""Ledger: reserve, release, settle. What a data set has left is decided in one transaction, before anything is released.

Users, `lethe ledger`, and paying.py (for trainings and fits) call it. A reservation holds back its price before a training, and is settled
with what was released.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import Any, get_args

from sqlalchemy import Connection

from lethe.calculus.domains import outside, require_nonnegative, require_probability
from lethe.certificates.keys import PublicKey
from lethe.errors import InputError
from lethe.ledger.accounts import Reservation, State
from lethe.ledger.budgets import Budget, DataSet
from lethe.ledger.chain import FIRST, Entry, Kind, canonical, require_digest, require_name, require_text, spender_of
from lethe.ledger.database import Database
from lethe.ledger.documents import more_than_reserved, presented, priced, recorded, releases_of, room_for_rounding, too_much
from lethe.ledger.prices import FREE, Price, units_above
from lethe.ledger.reading import ReadLedger, reservation_of, terms_of
from lethe.ledger.schema import make_or_upgrade, require_newest
from lethe.ledger.tables import RELEASED, SPENDERS, exists, last_entry, write
from lethe.run.participation import Neighbours, Unit

# Clocks of two machines differ by so much; more than that is somebody's mistake.
_SECONDS_BACK = 1.0


class Ledger(ReadLedger):
    """What data sets have left of their budgets, in a database that a team shares.

    Every method that writes does so in one transaction, in which no other writer is: 32 processes that reserve at once never reserve more
    than there is. What fails writes nothing. A reservation counts as spent from the moment it is written, until it is settled (and
    after), or is voided by a person before any noise was drawn.

    Formal guarantee: if every release from the data set is reserved here before it is made, has the guarantee that was reserved given all
    that was released before, and draws noise of its own, then all of them together satisfy the guarantee of the data set's budget, for
    its neighbours and unit; what was released next, how much it cost, and when to stop, may have been chosen in view of everything
    released before (see `Budget`). Not counted is what nobody reserves.

    In it are names, times, counts and certificates, which say how many records there are; no record, and nothing computed from one but
    the digests of released artefacts.

    Args:
        database: of the ledger.
        key: whose seals are believed; None: this installation's and its team's.
    """

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str],
        *,
        make: bool = False,
        timeout: float = 10.0,
        key: PublicKey | str | os.PathLike[str] | None = None,
    ) -> Ledger:
        """A ledger in a SQLite file or a PostgreSQL database; a file that this account may not write is opened for reading (`read_only`).

        Args:
            where: a path, or a URL: sqlite:///FILE, postgresql://user@host/name.
            make: whether it is made where there is none, and brought to this version's schema.
            timeout: how many seconds a writer waits for another one.
            key: the public key, or its PEM file, of the one whose seals are believed; None: this installation's and its team's.
        Raises:
            InputError: there is none, or the place is none.
            LedgerError: it cannot be read, or its schema is of another version.
            MissingExtraError: the driver is not installed.
        """
        database = Database(where, make=make, timeout=timeout)
        believed = key if key is None or isinstance(key, PublicKey) else PublicKey.load(key)
        with database.writing(make=True) if make else database.reading() as connection:
            (make_or_upgrade if make else require_newest)(connection)
        return cls(database, key=believed)

    def __deepcopy__(self, memo: object) -> Ledger:
        """The same: scikit-learn copies the parameters of its clones."""
        return self

    def __reduce__(self) -> Any:
        """In another process it is opened again; a password is not sent along, and comes from PGPASSWORD or ~/.pgpass there."""
        return partial(Ledger.open, timeout=self._database.timeout, key=self.key), (self._database.address,)

    def create(
        self,
        name: str,
        *,
        neighbours: Neighbours,
        budget: Budget,
        unit: Unit = "record",
        fingerprint: str = "",
        spenders: Sequence[str] = (),
        by: str | None = None,
    ) -> DataSet:
        """Enter a data set with its budget, which no later entry changes.

        Args:
            name: of the data set.
            neighbours, unit: what the budget is about.
            budget: what everything released from it may cost.
            fingerprint: tells it from another one, such as a number drawn at random and kept beside it; not a digest of its content,
                from which records could be guessed.
            spenders: people and jobs that may reserve; none: whoever may write to the database. Whether somebody bears the name that he
                gives is checked by nothing here, but by roles of PostgreSQL (docs/ledger.md).
            by: who enters it; None: the user of this process.
        Raises:
            InputError: there is one of that name, or an argument is out of its range.
            LedgerError: it cannot be written.
        """
        for what, value, allowed in (("neighbours", neighbours, get_args(Neighbours)), ("unit", unit, get_args(Unit))):
            if value not in allowed:
                raise outside(what, value, "one of " + ", ".join(allowed))
        label, who = require_name("name", name), spender_of(by)
        content = {
            "neighbours": neighbours,
            "unit": unit,
            "budget": budget.to_dict(),
            "limit": budget.limit.to_dict(),
            "closed": bool(spenders),
            "fingerprint": require_text("fingerprint", fingerprint, empty=True),
            "by": who,
        }
        with self._writing() as connection:
            if last_entry(connection, label) is not None:
                raise InputError(
                    f"{label!r} is in the ledger already.", source="name", remedy="give another name; a budget is never changed."
                )
            entry = self._add(connection, "data_set", label, FREE, content)
            for spender in dict.fromkeys(require_name("spenders", name) for name in spenders):
                self._add(connection, "spender", label, FREE, {"name": spender, "by": who})
        return DataSet.of(entry)

    def admit(self, data_set: str, spender: str, *, by: str | None = None) -> None:
        """Let somebody reserve from a data set that was entered with spenders.

        Args:
            data_set: its name.
            spender: who may from now on.
            by: who admits; None: the user of this process.

        Raises:
            InputError: no such data set, it is open to all, or the spender is in it already.
            LedgerError: it cannot be written.
        """
        with self._writing() as connection:
            terms = terms_of(connection, data_set)
            if not terms.closed or exists(connection, SPENDERS, data_set=terms.name, name=spender):
                why = "is one of them already" if terms.closed else "needs no admission: everybody may reserve from it"
                raise InputError(f"{spender!r} {why} ({terms.name}).", source="spender", remedy="nothing needs to be done.")
            self._add(connection, "spender", terms.name, FREE, {"name": require_name("spender", spender), "by": spender_of(by)})

    def reserve(
        self, data_set: str, item: object, *, by: str | None = None, why: str = "", slack: float = 0.0, margin: float = 0.0
    ) -> Reservation:
        """Reserve what a release will cost, before a record is read for it; it counts as spent from now on.

        Args:
            data_set: its name.
            item: a certificate of the planned run, a statement, a guarantee, a dp_accounting event, or the plain data of one.
            by: who releases it; None: the user of this process.
            why: what for.
            slack: the share of delta for a guarantee without an exact price (see `price_of`).
            margin: by which share more is counted than the price, at most 1: for a release whose own document will round otherwise.
        Raises:
            BudgetExceededError: it does not fit; it says what does. Nothing is reserved.
            InputError: unknown data set or spender, or a guarantee of other neighbours, or without a price.
            LedgerError: the ledger cannot be written.
        """
        share, smallest_margin = require_nonnegative("slack", slack, allow_infinity=False), require_probability("margin", margin)
        # The price is computed before the lock is taken, since it may take seconds.
        terms = self.terms(data_set)
        part = presented(item, terms, key=self.key)
        price = priced(part, terms, share)
        more = Fraction(max(smallest_margin, room_for_rounding(part)))
        price = Price(price.cost + units_above(price.cost * more, 0), price.slack)
        who = spender_of(by)
        content = {
            "by": who,
            "why": require_text("why", why, empty=True),
            "slack": share,
            "price": price.to_dict(),
            **recorded(part),
        }
        with self._writing() as connection:
            if terms.closed and not exists(connection, SPENDERS, data_set=terms.name, name=who):
                raise InputError(
                    f"{who!r} may not reserve from {terms.name}.", source="by", remedy="be admitted by whoever keeps the ledger."
                )
            counted = _counted(connection, terms.name)
            if not (counted + price).within(terms.limit):
                raise too_much(terms, counted, price, part)
            entry = self._add(connection, "reservation", terms.name, price, content)
        return Reservation.of(entry)

    def start(self, reservation: Reservation | int) -> None:
        """Say that noise is about to be drawn: from now on the reservation can be settled, and never voided.

        Raises:
            InputError: no such reservation, or it is settled, voided or started already.
            LedgerError: it cannot be written; no noise must be drawn then.
        """
        with self._writing() as connection:
            reserved = _open(connection, reservation, "reserved")
            self._add(connection, "start", reserved.data_set, FREE, {"reservation": reserved.number})

    def settle(
        self,
        reservation: Reservation | int,
        item: object,
        *,
        artefact: str = "",
        by: str | None = None,
        why: str = "",
        fixed_before: str = "",
    ) -> Reservation:
        """Record what was released under a reservation, with its certificate.

        What was reserved stays counted, even if the release cost less: that it ended sooner may show in what was released, and then
        its own certificate is not what holds. Only where the smaller cost was fixed before the release, and somebody says how, is the rest
        given back.

        Args:
            reservation: it, or its number.
            item: the certificate of the recorded run, or what else `reserve` takes.
            artefact: SHA-256 of what was released, 64 hexadecimal digits; empty: not said.
            by: who releases; None: the user of this process.
            why: what for.
            fixed_before: a declaration: how the smaller cost was fixed before the release, such as "planned with 500 steps".
        Raises:
            BudgetExceededError: it cost more than was reserved. Nothing is written, and the reservation stands.
            InputError: no such reservation, or it is settled or voided; this release is in the ledger already; a guarantee of other
                neighbours, or without a price.
            LedgerError: the ledger cannot be written.
        """
        with self._database.reading() as connection:
            reserved = _open(connection, reservation, "reserved", "started")
            terms = terms_of(connection, reserved.data_set)
        part = presented(item, terms, key=self.key)
        price = priced(part, terms, reserved.slack)
        fixed = require_text("fixed_before", fixed_before, empty=True)
        if not price.within(reserved.price.with_rounding()):
            raise more_than_reserved(reserved, price)
        charged = Price(min(price.cost, reserved.price.cost), min(price.slack, reserved.price.slack)) if fixed else reserved.price
        content = {
            "reservation": reserved.number,
            "by": spender_of(by),
            "why": require_text("why", why, empty=True),
            "price": charged.to_dict(),
            "artefact": require_digest("artefact", artefact),
            "fixed_before": fixed,
            "releases": releases_of(part, artefact),
            **recorded(part),
        }
        with self._writing() as connection:
            reserved = _open(connection, reserved, "reserved", "started")
            for release in content["releases"]:
                if exists(connection, RELEASED, data_set=terms.name, release=release):
                    raise InputError(
                        f"{part.name}: this release is in the ledger already; one release settles one reservation.",
                        source=f"release {release[:16]}",
                        remedy="give the certificate of the release that this reservation was for.",
                    )
            entry = self._add(connection, "release", terms.name, charged - reserved.price, content)
        return reserved.after(entry)

    def void(self, reservation: Reservation | int, *, reason: str, by: str | None = None) -> None:
        """Give back a reservation under which no noise was drawn.

        Args:
            reservation: it, or its number.
            reason: why nothing can have been released.
            by: who says so; None: the user of this process.
        Raises:
            InputError: no reason, no such reservation, it is settled or voided, or it was started: noise may have been released.
            LedgerError: the ledger cannot be written.
        """
        why = require_text("reason", reason)
        with self._writing() as connection:
            reserved = _open(connection, reservation, "reserved")
            content = {"reservation": reserved.number, "reason": why, "by": spender_of(by)}
            self._add(connection, "void", reserved.data_set, FREE - reserved.price, content)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._database.writing() as connection:
            require_newest(connection)
            yield connection

    def _add(self, connection: Connection, kind: Kind, data_set: str, change: Price, content: dict[str, Any]) -> Entry:
        """Add the next entry, which changes what is counted of its data set by so much."""
        before, now = last_entry(connection), self._database.now(connection)
        seq, previous, latest = (1, FIRST, "") if before is None else (before.seq + 1, before.digest, before.at)
        at = now.astimezone(UTC).isoformat(timespec="microseconds")  # texts sort as times do
        if at < latest and (datetime.fromisoformat(latest) - now).total_seconds() > _SECONDS_BACK:
            raise InputError(
                f"the clock says {at}; the last entry of the ledger was written at {latest}, and entries do not go back in time.",
                source="the clock of this machine, or of the database's server",
                remedy="set the clock right and try again; nothing was written.",
            )
        counted = FREE if kind == "data_set" else _counted(connection, data_set) + change
        entry_fields = {"kind": kind, "data_set": data_set, "counted": counted, "content": canonical(content)}
        entry = Entry(seq=seq, at=max(at, latest), previous=previous, digest="", **entry_fields)
        entry = replace(entry, digest=entry.own_digest())
        write(connection, entry)
        return entry


def _counted(connection: Connection, data_set: str) -> Price:
    entry = last_entry(connection, data_set)
    assert entry is not None
    return entry.counted


def _open(connection: Connection, reservation: Reservation | int, *states: State) -> Reservation:
    """A reservation that is in one of these states."""
    now = reservation_of(connection, reservation)
    if now.state in states:
        return now
    if now.state != "started":
        raise InputError(f"reservation {now.number} is {now.state} already.", source="the ledger", remedy="reserve again for another one.")
    raise InputError(
        f"reservation {now.number} was started before: noise may have been drawn and released under it, and it stays counted.",
        source="start, in the ledger",
        remedy="settle it with the certificate of what was released; reserve again for another training.",
    )
