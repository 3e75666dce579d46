"""The tables of a ledger: the chain of entries, and what it says in columns, so that the database itself refuses what cannot be."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text, UniqueConstraint

METADATA = MetaData()
# SQLite numbers its rows by INTEGER alone.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _entry() -> Column[int]:
    return Column("entry", _NUMBER, ForeignKey("entries.seq"), primary_key=True, autoincrement=False)


def _of_reservation() -> Column[int]:
    return Column("reservation", _NUMBER, ForeignKey("reservations.entry"), nullable=False, unique=True)


ENTRIES = Table(
    "entries",
    METADATA,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("data_set", Text, nullable=False),
    Column("counted_cost", Text, nullable=False),
    Column("counted_slack", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("previous", Text, nullable=False, unique=True),
    Column("digest", Text, nullable=False, unique=True),
    Index("ix_entries_data_set_seq", "data_set", "seq"),
)
DATA_SETS = Table(
    "data_sets",
    METADATA,
    _entry(),
    Column("name", Text, nullable=False, unique=True),
    Column("neighbours", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("limit_cost", Text, nullable=False),
    Column("limit_slack", Text, nullable=False),
)
SPENDERS = Table(
    "spenders",
    METADATA,
    _entry(),
    Column("data_set", Text, ForeignKey("data_sets.name"), nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("data_set", "name"),
)
RESERVATIONS = Table(
    "reservations",
    METADATA,
    _entry(),
    Column("data_set", Text, ForeignKey("data_sets.name"), nullable=False),
    Column("spender", Text, nullable=False),
    Column("cost", Text, nullable=False),
    Column("slack", Text, nullable=False),
)
STARTS = Table("starts", METADATA, _entry(), _of_reservation())
RELEASES = Table(
    "releases",
    METADATA,
    _entry(),
    _of_reservation(),
    Column("cost", Text, nullable=False),
    Column("slack", Text, nullable=False),
)
RELEASED = Table(
    "released",
    METADATA,
    Column("data_set", Text, ForeignKey("data_sets.name"), nullable=False),
    Column("release", Text, nullable=False),
    Column("entry", _NUMBER, ForeignKey("entries.seq"), nullable=False),
    PrimaryKeyConstraint("data_set", "release"),
)
CORRECTIONS = Table("corrections", METADATA, _entry(), _of_reservation(), Column("reason", Text, nullable=False))
