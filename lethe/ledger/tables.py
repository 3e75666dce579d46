"""The database tables of a ledger: the chain of entries, and their content in columns, so that constraints refuse what cannot be.

`Ledger` writes an entry and its rows by `write`; reading.py compares all rows with what the chain says.

The rows beside an entry follow from it, so that whoever reads the chain knows what every table must hold.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    Table,
    Text,
    UniqueConstraint,
    insert,
    select,
)

from lethe.ledger.chain import Entry, damaged
from lethe.ledger.prices import Price

METADATA = MetaData()
# SQLite numbers its rows by INTEGER alone.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _table(name: str, *columns: Any) -> Table:
    return Table(name, METADATA, *(Column(column, Text, nullable=False) if isinstance(column, str) else column for column in columns))


def _entry() -> Column[int]:
    return Column("entry", _NUMBER, ForeignKey("entries.seq"), primary_key=True, autoincrement=False)


def _reservation() -> Column[int]:
    return Column("reservation", _NUMBER, ForeignKey("reservations.entry"), nullable=False, unique=True)


def _data_set() -> Column[str]:
    return Column("data_set", Text, ForeignKey("data_sets.name"), nullable=False)


def _unique(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, unique=True)


ENTRIES = _table(
    "entries",
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    *("kind", "at", "data_set", "counted_cost", "counted_slack", "content"),
    _unique("previous"),
    _unique("digest"),
    Index("ix_entries_data_set_seq", "data_set", "seq"),
)
DATA_SETS = _table("data_sets", _entry(), _unique("name"), "neighbours", "unit", "limit_cost", "limit_slack")
SPENDERS = _table("spenders", _entry(), _data_set(), "name", UniqueConstraint("data_set", "name"))
RESERVATIONS = _table("reservations", _entry(), _data_set(), "spender", "cost", "slack")
STARTS = _table("starts", _entry(), _reservation())
RELEASES = _table("releases", _entry(), _reservation(), "cost", "slack")
RELEASED = _table(
    "released",
    _data_set(),
    "release",
    Column("entry", _NUMBER, ForeignKey("entries.seq"), nullable=False),
    PrimaryKeyConstraint("data_set", "release"),
)
CORRECTIONS = _table("corrections", _entry(), _reservation(), "reason")
DERIVED_TABLES: tuple[Table, ...] = (DATA_SETS, SPENDERS, RESERVATIONS, STARTS, RELEASES, RELEASED, CORRECTIONS)
"""All but the entries themselves."""


def write(connection: Connection, entry: Entry) -> None:
    """Add an entry and its rows."""
    columns = {column.name: getattr(entry, column.name) for column in ENTRIES.columns if not column.name.startswith("counted")}
    counted = {"counted_cost": str(entry.counted.cost), "counted_slack": str(entry.counted.slack)}
    connection.execute(insert(ENTRIES).values(**columns, **counted))
    for table, row in rows_of(entry):
        connection.execute(insert(table).values(**row))


def rows_of(entry: Entry) -> list[tuple[Table, dict[str, Any]]]:
    """The rows that follow from an entry."""
    entry_fields, key, about = entry.fields, {"entry": entry.seq}, {"entry": entry.seq, "data_set": entry.data_set}
    try:
        match entry.kind:
            case "data_set":
                limit = {"limit_cost": entry_fields["limit"]["cost"], "limit_slack": entry_fields["limit"]["slack"]}
                return [
                    (
                        DATA_SETS,
                        {**key, "name": entry.data_set, "neighbours": entry_fields["neighbours"], "unit": entry_fields["unit"], **limit},
                    )
                ]
            case "spender":
                return [(SPENDERS, {**about, "name": entry_fields["name"]})]
            case "reservation":
                return [(RESERVATIONS, {**about, "spender": entry_fields["by"], **entry_fields["price"]})]
            case "start":
                return [(STARTS, {**key, "reservation": entry_fields["reservation"]})]
            case "release":
                released = [(RELEASED, {**about, "release": release}) for release in entry_fields["releases"]]
                return [(RELEASES, {**key, "reservation": entry_fields["reservation"], **entry_fields["price"]}), *released]
            case "void":
                return [(CORRECTIONS, {**key, "reservation": entry_fields["reservation"], "reason": entry_fields["reason"]})]
            case _:
                raise damaged(entry.seq, f"it is of kind {entry.kind!r}, which is none")
    except (KeyError, TypeError) as error:
        raise damaged(entry.seq, f"it lacks what an entry of kind {entry.kind} has") from error


def entry_of(row: Row[Any] | Any) -> Entry:
    """A row of the table of entries, whose digest is checked."""
    values = {column.name: getattr(row, column.name) for column in ENTRIES.columns}
    for column in ENTRIES.columns:
        if type(values[column.name]) is not column.type.python_type:
            raise damaged(row.seq, f"its {column.name} is of type {type(values[column.name]).__name__}")
    cost, slack = values.pop("counted_cost"), values.pop("counted_slack")
    try:
        counted = Price(int(cost), int(slack))
    except ValueError as error:
        raise damaged(row.seq, "what it counts is no whole number") from error
    entry = Entry(counted=counted, **values)
    if entry.own_digest() != entry.digest or [str(counted.cost), str(counted.slack)] != [cost, slack]:
        raise damaged(row.seq, "its digest is not that of its content")
    return entry


def last_entry(connection: Connection, data_set: str | None = None) -> Entry | None:
    """The last entry, of all or about one data set; None: there is none."""
    latest = select(ENTRIES).order_by(ENTRIES.c.seq.desc()).limit(1)
    row = connection.execute(latest if data_set is None else latest.where(ENTRIES.c.data_set == data_set)).one_or_none()
    return None if row is None else entry_of(row)


def exists(connection: Connection, table: Table, **values: Any) -> bool:
    """Whether a table has a row with these values."""
    return connection.execute(select(table.c.entry).filter_by(**values).limit(1)).first() is not None
