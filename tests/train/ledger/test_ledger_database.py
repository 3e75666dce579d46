"""Databases that cannot be used: each a clear error, nothing written, and what was reserved before still there; and schemas that grow.

There is one version of the schema so far. The one that comes after it is made here, beside the first, which is then the older one.
"""

import hashlib
import pickle
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, event, inspect, text

import lethe
from lethe.errors import InputError, LedgerError, LetheError
from lethe.ledger import Budget, Ledger, Spending, schema
from lethe.ledger.database import Database
from lethe.ledger.tables import METADATA

psycopg = pytest.importorskip("psycopg")
RELEASE = lethe.guarantees.GDP(0.1)


def begun(place: str, **options) -> Ledger:
    ledger = Ledger.open(place, make=True, **options)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=1, delta=1e-6), spenders=["a"], by="keeper")
    ledger.reserve("patients", RELEASE, by="a")
    return ledger


@pytest.fixture
def file(tmp_path: Path) -> str:
    begun(str(tmp_path / "ledger.sqlite"))
    return str(tmp_path / "ledger.sqlite")


def refused(words: str, call, *arguments, **options) -> str:
    """The refusal: what, from where, and what to do."""
    with pytest.raises(LetheError, match=words) as caught:
        call(*arguments, **options)
    assert caught.value.source
    assert caught.value.remedy
    return str(caught.value)


def test_a_locked_ledger_is_waited_for_and_then_refused_while_readers_do_not_wait(place) -> None:
    ledger = begun(place, timeout=0.3)
    if place.startswith("postgresql"):
        other, statement = psycopg.connect(place), "LOCK TABLE entries IN EXCLUSIVE MODE"
    else:
        other, statement = sqlite3.connect(place, isolation_level=None), "BEGIN IMMEDIATE"
    other.execute(statement)
    refused("locked by another writer", ledger.reserve, "patients", RELEASE, by="a")
    assert len(ledger.show("patients").lines) == 1
    other.rollback()
    other.close()
    for wrong in ({"by": "b"}, {"item": lethe.guarantees.GDP(9.0)}):
        with pytest.raises(LetheError):
            ledger.reserve(**{"data_set": "patients", "item": RELEASE, "by": "a"} | wrong)
    first, second = (ledger.reserve("patients", RELEASE, by="a") for _ in range(2))
    ledger.start(first)
    with pytest.raises(InputError):
        ledger.start(first)
    ledger.void(second, reason="not begun")
    assert [line.state for line in ledger.show("patients").lines] == ["reserved", "started", "voided"]
    assert ledger.verify().entries == 7


def test_a_full_disk_writes_nothing(file) -> None:
    ledger = Ledger.open(file)
    event.listen(ledger._database.engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1").fetchall())

    def fill() -> None:
        for _ in range(200):
            ledger.reserve("patients", lethe.guarantees.GDP(1e-4), by="a", why="x" * 2000)

    refused("no room left", fill)
    assert Ledger.open(file).verify().entries == 2 + len(Ledger.open(file).show("patients").lines)


def test_places_that_hold_no_ledger_are_refused(tmp_path) -> None:
    (tmp_path / "text.sqlite").write_text("no database, but a text that is longer than a header of one would be, by far; " * 20)
    (tmp_path / "empty.sqlite").touch()
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE patients (name TEXT)")
    other.close()
    (tmp_path / "loop").symlink_to("loop")
    for place, make, words in (
        ("text.sqlite", False, "no SQLite database"),
        ("empty.sqlite", False, "is no ledger"),
        ("other.sqlite", True, "no ledger's: patients"),
        ("missing.sqlite", False, "is not there"),
        ("no/folder/l.sqlite", True, "cannot be opened"),
        (".", True, "cannot be opened"),
        ("loop/l.sqlite", True, "cannot be opened"),
    ):
        refused(words, Ledger.open, tmp_path / place, make=make)
    assert not (tmp_path / "missing.sqlite").exists()
    for url in ("mysql://me:secret@host/x", "postgresql:secret://", "://secret", "sqlite://", "sqlite:///:memory:"):
        assert "secret" not in refused("ledger", Ledger.open, url)
    assert "secret" not in refused("cannot be read", Ledger.open, f"postgresql://me:secret@/x?host={tmp_path}")


def test_a_postgresql_url_without_a_driver_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(lethe.MissingExtraError, match="psycopg"):
        Ledger.open("postgresql://nobody@/x?host=/nowhere")


@pytest.mark.parametrize("url", ["postgresql://user:secret@host/name", "postgresql://user@host/name?password=secret&sslpassword=secret"])
def test_a_password_is_not_sent_along(url: str) -> None:
    database = Database(url)
    assert database.address == "postgresql+psycopg://user@host/name"
    sent = pickle.dumps(Spending(Ledger(database), "patients"))
    assert b"user@host" in sent
    assert b"secret" not in sent


def test_a_server_that_goes_away_in_the_middle_loses_nothing(postgres) -> None:
    ledger = begun(postgres.database())
    postgres.stop(at_once=True)
    try:
        refused("cannot be (read|written)", ledger.settle, 3, RELEASE)
    finally:
        postgres.start()
    assert ledger.show("patients").lines[0].state == "reserved"
    ledger.settle(3, RELEASE)
    assert ledger.verify().entries == 4


SECOND = '''"""The second schema: a table more, and a column more in the oldest one, filled from what is there."""

import sqlalchemy as sa
from alembic import op

revision = "9002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table("heads", sa.Column("data_set", sa.Text, primary_key=True), sa.Column("seq", sa.Integer, nullable=False))
    op.execute("INSERT INTO heads SELECT data_set, MAX(seq) FROM entries GROUP BY data_set")
    op.add_column("spenders", sa.Column("team", sa.Text))
    {last}
'''


class Versions:
    """Which versions of the schema this Lethe knows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch, self._first = folder, monkeypatch, schema._FOLDERS

    def with_second(self, last: str = "") -> None:
        self._folder.mkdir(exist_ok=True)
        (self._folder / "v9002_second.py").write_text(SECOND.format(last=last))
        tables = MetaData()
        for table in METADATA.tables.values():
            table.to_metadata(tables)
        tables.tables["spenders"].append_column(Column("team", Text))
        Table("heads", tables, Column("data_set", Text, primary_key=True), Column("seq", Integer, nullable=False))
        self._use([*self._first, str(self._folder)], tables)

    def first_only(self) -> None:
        self._use(self._first, METADATA)

    def _use(self, folders: list[str], tables: MetaData) -> None:
        self._patch.setattr(schema, "_FOLDERS", folders)
        self._patch.setattr(schema, "METADATA", tables)
        schema._versions.cache_clear()


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    yield Versions(tmp_path / "versions", monkeypatch)
    monkeypatch.undo()
    schema._versions.cache_clear()


def contents(ledger: Ledger) -> tuple[dict[str, set[str]], list[tuple[object, ...]]]:
    """Its tables with their columns, and its entries."""
    with ledger._database.reading() as connection:
        found = inspect(connection)
        tables = {name: {column["name"] for column in found.get_columns(name)} for name in found.get_table_names()}
        return tables, [tuple(row) for row in connection.execute(text("SELECT * FROM entries ORDER BY seq"))]


@pytest.mark.sampled(2)
def test_an_older_ledger_is_refused_until_somebody_asks_and_upgraded_then(place: str, versions: Versions) -> None:
    first = begun(place)
    (_, before), account = contents(first), first.show("patients").to_dict()
    versions.with_second()
    assert "make=True" in refused("version 0001; this Lethe writes 9002", Ledger.open, place)
    refused("version 0001", first.reserve, "patients", RELEASE, by="a")  # one that was open already
    second = Ledger.open(place, make=True)
    tables, entries = contents(second)
    assert (entries, second.show("patients").to_dict()) == (before, account)
    assert tables["heads"] == {"data_set", "seq"}
    assert "team" in tables["spenders"]
    second.reserve("patients", RELEASE, by="a")
    assert second.verify().entries == len(before) + 1
    Ledger.open(place, make=True).verify()  # a second time there is nothing to do

    newer = contents(second)
    versions.first_only()
    for make in (False, True):
        assert "newer" in refused("version 9002, which this Lethe does not know; it knows 0001", Ledger.open, place, make=make)
    refused("9002", second.reserve, "patients", RELEASE, by="a")
    assert contents(second) == newer


@pytest.mark.sampled(2)
def test_an_upgrade_that_fails_in_the_middle_changes_nothing(place: str, versions: Versions) -> None:
    before = contents(begun(place))
    versions.with_second('op.execute("INSERT INTO heads SELECT data_set, MAX(seq) FROM entries GROUP BY data_set")')  # twice: no key
    with pytest.raises(LedgerError):
        Ledger.open(place, make=True)
    versions.first_only()
    again = Ledger.open(place)
    assert contents(again) == before
    again.reserve("patients", RELEASE, by="a")
    again.verify()


def test_the_first_schema_is_never_changed(file) -> None:
    """Whoever changes the tables writes a version that brings old ledgers to them, and this text with it."""
    connection = sqlite3.connect(file)
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql <> '' AND name <> 'alembic_version' ORDER BY name").fetchall()
    connection.close()
    sql = "\n".join(" ".join(statement.split()) for (statement,) in found)
    assert hashlib.sha256(sql.encode()).hexdigest() == "6e4dcee2c3f17f59c692ac3f9163051a07bf9c0e269ddd430db052d5090eb900", sql


# What somebody who may write to the database can add, or take away.
IN_BOTH = {
    "CREATE TABLE notes (text TEXT)": "there is the table notes",
    "CREATE VIEW cheap AS SELECT * FROM reservations WHERE cost = '0'": "there is the view cheap",
    "CREATE INDEX spoilt ON reservations (spender)": "there is the index spoilt",
    "ALTER TABLE reservations ADD COLUMN note TEXT": "there is the column reservations.note",
    "DROP INDEX ix_entries_data_set_seq": "the index ix_entries_data_set_seq is missing",
}
IN_SQLITE = {"CREATE TRIGGER less AFTER INSERT ON reservations BEGIN DELETE FROM starts; END": "there is the trigger less"}
IN_POSTGRES = {
    "CREATE TRIGGER less BEFORE UPDATE ON reservations FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()": (
        "there is the trigger less"
    ),
    "CREATE RULE nothing AS ON UPDATE TO starts DO INSTEAD NOTHING": "there is the rule nothing",
    "CREATE SEQUENCE counting": "there is the sequence counting",
    "CREATE TYPE pair AS (one INTEGER)": "there is the object pair",
    "ALTER TABLE spenders ADD UNIQUE (name)": "there is the index spenders_name_key",
    "ALTER TABLE starts DROP CONSTRAINT starts_reservation_key": "the index starts_reservation_key is missing",
}


def test_what_is_added_to_the_schema_or_missing_is_found(place: str) -> None:
    ledger = begun(place)
    assert ledger.verify().entries == 3
    expected, found = IN_BOTH | (IN_POSTGRES if ledger._database.postgres else IN_SQLITE), {}
    for statement in expected:
        with suppress(ZeroDivisionError), ledger._database.writing() as connection:
            connection.execute(text(statement))
            found[statement] = schema.difference(connection).partition(",")[0]
            raise ZeroDivisionError  # takes the statement back
    assert found == expected
    with ledger._database.writing() as connection:
        connection.execute(text("CREATE TABLE notes (text TEXT)"))
    with pytest.raises(LedgerError, match="in its schema there is the table notes"):
        ledger.verify()


def test_what_an_extension_brings_is_no_part_of_the_schema(postgres) -> None:
    ledger = begun(postgres.database())
    with ledger._database.writing() as connection:
        if not connection.execute(text("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_stat_statements'")).first():
            pytest.skip("the server has no such extension")
        connection.execute(text("CREATE EXTENSION pg_stat_statements"))
    ledger.verify()
