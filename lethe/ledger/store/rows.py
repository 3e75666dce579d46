"""Rows: what each entry says in columns. They follow from the entry, so that whoever reads the chain knows what every table must hold."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, Table, insert, select

from lethe.ledger.chain import Entry, damaged
from lethe.ledger.prices import Price
from lethe.ledger.store.tables import CORRECTIONS, DATA_SETS, ENTRIES, RELEASED, RELEASES, RESERVATIONS, SPENDERS, STARTS

SAID_IN_COLUMNS: tuple[Table, ...] = (DATA_SETS, SPENDERS, RESERVATIONS, STARTS, RELEASES, RELEASED, CORRECTIONS)


def write(connection: Connection, entry: Entry) -> None:
    """Add an entry and its rows."""
    connection.execute(insert(ENTRIES).values(**columns_of(entry)))
    for table, row in rows_of(entry):
        connection.execute(insert(table).values(**row))


def columns_of(entry: Entry) -> dict[str, Any]:
    """An entry as a row of the table of entries."""
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "at": entry.at,
        "data_set": entry.data_set,
        "counted_cost": str(entry.counted.cost),
        "counted_slack": str(entry.counted.slack),
        "content": entry.content,
        "previous": entry.previous,
        "digest": entry.digest,
    }


def rows_of(entry: Entry) -> list[tuple[Table, dict[str, Any]]]:
    """The rows that follow from an entry.

    Raises:
        LedgerError: its content lacks what an entry of its kind has.
    """
    said, key = entry.fields, {"entry": entry.seq}
    try:
        match entry.kind:
            case "data_set":
                limit = {"limit_cost": said["limit"]["cost"], "limit_slack": said["limit"]["slack"]}
                return [(DATA_SETS, {**key, "name": entry.data_set, "neighbours": said["neighbours"], "unit": said["unit"], **limit})]
            case "spender":
                return [(SPENDERS, {**key, "data_set": entry.data_set, "name": said["name"]})]
            case "reservation":
                return [(RESERVATIONS, {**key, "data_set": entry.data_set, "spender": said["by"], **said["price"]})]
            case "start":
                return [(STARTS, {**key, "reservation": said["reservation"]})]
            case "release":
                own = {**key, "reservation": said["reservation"], **said["price"]}
                released = [(RELEASED, {**key, "data_set": entry.data_set, "release": one}) for one in said["releases"]]
                return [(RELEASES, own), *released]
            case "void":
                return [(CORRECTIONS, {**key, "reservation": said["reservation"], "reason": said["reason"]})]
            case _:
                raise damaged(entry.seq, f"it is of kind {entry.kind!r}, which is none")
    except (KeyError, TypeError) as error:
        raise damaged(entry.seq, f"it lacks what an entry of kind {entry.kind} has") from error


def entry_of(row: Row[Any] | Any) -> Entry:
    """A row of the table of entries.

    Raises:
        LedgerError: a column holds another type than it has, as after a change of the file's bytes; or its numbers are none.
    """
    for column in ENTRIES.columns:
        if type(value := getattr(row, column.name)) is not column.type.python_type:
            raise damaged(row.seq, f"its {column.name} is of type {type(value).__name__}")
    try:
        counted = Price(_whole(row.counted_cost), _whole(row.counted_slack))
    except ValueError as error:
        raise damaged(row.seq, "what it counts is no whole number") from error
    return Entry(
        seq=row.seq,
        kind=row.kind,
        at=row.at,
        data_set=row.data_set,
        counted=counted,
        content=row.content,
        previous=row.previous,
        digest=row.digest,
    )


def _whole(digits: str) -> int:
    number = int(digits)
    if str(number) != digits:
        raise ValueError(digits)
    return number


def checked(entry: Entry) -> Entry:
    """The entry, whose digest is its own.

    Raises:
        LedgerError: it is another's.
    """
    if entry.own_digest() != entry.digest:
        raise damaged(entry.seq, "its digest is not that of its content")
    return entry


def last_entry(connection: Connection, data_set: str | None = None) -> Entry | None:
    """The last entry, of all or about one data set; None: there is none. Its digest is checked.

    Raises:
        LedgerError: it was changed.
    """
    asked = select(ENTRIES).order_by(ENTRIES.c.seq.desc()).limit(1)
    row = connection.execute(asked if data_set is None else asked.where(ENTRIES.c.data_set == data_set)).one_or_none()
    return None if row is None else checked(entry_of(row))


def entry_at(connection: Connection, seq: int) -> Entry | None:
    """The entry of that number; None: there is none. Its digest is checked.

    Raises:
        LedgerError: it was changed.
    """
    row = connection.execute(select(ENTRIES).where(ENTRIES.c.seq == seq)).one_or_none()
    return None if row is None else checked(entry_of(row))


def exists(connection: Connection, table: Table, **values: Any) -> bool:
    """Whether a table has a row with these values."""
    asked = select(*table.primary_key.columns)
    for name, value in values.items():
        asked = asked.where(table.c[name] == value)
    return connection.execute(asked.limit(1)).first() is not None
