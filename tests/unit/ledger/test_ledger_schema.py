"""An older ledger is brought to the newest schema when somebody asks for it, whole or not at all; a newer one is refused.

There is one version so far. The one that comes after it is made here, beside the first, which is then the older one.
"""

from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, inspect, text

import lethe
from lethe.errors import LedgerError
from lethe.ledger import Budget, Ledger
from lethe.ledger import schema
from lethe.ledger.tables import METADATA

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


@pytest.fixture
def old(place: str) -> str:
    """A ledger of the first version, with a release in it."""
    ledger = Ledger.open(place, make=True)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=1, delta=1e-6), spenders=["team A"], by="keeper")
    ticket = ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="team A")
    ledger.start(ticket)
    ledger.settle(ticket, lethe.guarantees.GDP(0.1))
    ledger.close()
    return place


class Versions:
    """Which versions of the schema this Lethe knows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, monkeypatch

    def with_second(self, last: str = "") -> None:
        self._folder.mkdir(exist_ok=True)
        (self._folder / "v9002_second.py").write_text(SECOND.format(last=last))
        self._use([*schema._FOLDERS[:1], str(self._folder)])
        known_tables = MetaData()
        for table in METADATA.tables.values():
            table.to_metadata(known_tables)
        known_tables.tables["spenders"].append_column(Column("team", Text))
        Table("heads", known_tables, Column("data_set", Text, primary_key=True), Column("seq", Integer, nullable=False))
        self._patch.setattr(schema, "METADATA", known_tables)

    def first_only(self) -> None:
        self._use(schema._FOLDERS[:1])
        self._patch.setattr(schema, "METADATA", METADATA)

    def _use(self, folders: list[str]) -> None:
        self._patch.setattr(schema, "_FOLDERS", folders)
        schema._versions.cache_clear()


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    yield Versions(tmp_path / "versions", monkeypatch)
    monkeypatch.undo()
    schema._versions.cache_clear()


def tables(ledger: Ledger) -> dict[str, set[str]]:
    with ledger._database.reading() as connection:
        found = inspect(connection)
        return {name: {column["name"] for column in found.get_columns(name)} for name in found.get_table_names()}


def rows(ledger: Ledger) -> list[tuple[object, ...]]:
    with ledger._database.reading() as connection:
        return [tuple(row) for row in connection.execute(text("SELECT * FROM entries ORDER BY seq"))]


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_an_older_ledger_is_refused_until_somebody_asks_and_upgraded_then(old: str, versions: Versions) -> None:
    first = Ledger.open(old)
    before, shown = rows(first), first.show("patients").to_dict()
    versions.with_second()
    with pytest.raises(LedgerError, match="version 0001; this Lethe writes 9002") as caught:
        Ledger.open(old)
    assert "make=True" in str(caught.value)
    with pytest.raises(LedgerError, match="version 0001"):  # one that was open already
        first.reserve("patients", lethe.guarantees.GDP(0.1), by="team A")
    assert rows(first) == before

    second = Ledger.open(old, make=True)
    assert rows(second) == before
    assert second.show("patients").to_dict() == shown
    assert {"data_set", "seq"} == tables(second)["heads"]
    assert "team" in tables(second)["spenders"]
    second.reserve("patients", lethe.guarantees.GDP(0.1), by="team A")
    assert second.verify().entries == len(before) + 1
    Ledger.open(old, make=True).verify()  # a second time there is nothing to do


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(old: str, versions: Versions) -> None:
    versions.with_second()
    newer = Ledger.open(old, make=True)
    before, made = rows(newer), tables(newer)
    versions.first_only()
    for make in (False, True):
        with pytest.raises(LedgerError, match="version 9002, which this Lethe does not know; it knows 0001") as caught:
            Ledger.open(old, make=make)
        assert "newer" in str(caught.value)
    with pytest.raises(LedgerError, match="9002"):
        newer.reserve("patients", lethe.guarantees.GDP(0.1), by="team A")
    assert (rows(newer), tables(newer)) == (before, made)


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_an_upgrade_that_fails_in_the_middle_changes_nothing(old: str, versions: Versions) -> None:
    first = Ledger.open(old)
    before, made = rows(first), tables(first)
    versions.with_second('op.execute("INSERT INTO heads SELECT data_set, MAX(seq) FROM entries GROUP BY data_set")')  # twice: no key
    with pytest.raises(LedgerError):
        Ledger.open(old, make=True)
    versions.first_only()
    again = Ledger.open(old)
    assert (rows(again), tables(again)) == (before, made)
    again.reserve("patients", lethe.guarantees.GDP(0.1), by="team A")
    again.verify()


# What somebody who may write to the database can add: to SQLite, and to PostgreSQL.
FOREIGN = {
    "table": ("CREATE TABLE notes (text TEXT)",) * 2,
    "view": ("CREATE VIEW cheap AS SELECT * FROM reservations WHERE cost = '0'",) * 2,
    "index": ("CREATE INDEX spoilt ON reservations (spender)",) * 2,
    "column": ("ALTER TABLE reservations ADD COLUMN note TEXT",) * 2,
    "trigger": (
        "CREATE TRIGGER less AFTER INSERT ON reservations BEGIN DELETE FROM starts; END",
        "CREATE TRIGGER less BEFORE UPDATE ON reservations FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ),
}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", list(FOREIGN))
def test_what_is_added_to_the_schema_is_found(kind: str, old: str) -> None:
    ledger = Ledger.open(old)
    assert ledger.verify().entries == 5
    with ledger._database.writing(make=True) as connection:
        connection.execute(text(FOREIGN[kind][old.startswith("postgresql")]))
    with pytest.raises(LedgerError, match=f"in its schema there is the {kind} "):
        ledger.verify()


@pytest.mark.slow
def test_an_index_that_is_missing_is_found(old: str) -> None:
    ledger = Ledger.open(old)
    with ledger._database.writing(make=True) as connection:
        connection.execute(text("DROP INDEX ix_entries_data_set_seq"))
    with pytest.raises(LedgerError, match="the index ix_entries_data_set_seq is missing"):
        ledger.verify()


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("statement", "odd"),
    [
        ("CREATE RULE nothing AS ON UPDATE TO starts DO INSTEAD NOTHING", "there is the rule nothing"),
        ("CREATE SEQUENCE counting", "there is the sequence counting"),
        ("CREATE TYPE pair AS (one INTEGER)", "there is the object pair"),
        ("ALTER TABLE spenders ADD UNIQUE (name)", "there is the index spenders_name_key"),
        ("ALTER TABLE starts DROP CONSTRAINT starts_reservation_key", "the index starts_reservation_key is missing"),
    ],
)
def test_what_is_added_to_a_server_s_schema_is_found(statement: str, odd: str, postgres) -> None:
    ledger = Ledger.open(postgres.database(), make=True)
    with ledger._database.writing(make=True) as connection:
        connection.execute(text(statement))
    with pytest.raises(LedgerError, match=f"in its schema {odd}"):
        ledger.verify()


@pytest.mark.slow
def test_what_an_extension_brings_is_no_part_of_the_schema(postgres) -> None:
    ledger = Ledger.open(postgres.database(), make=True)
    with ledger._database.writing(make=True) as connection:
        if not connection.execute(text("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_stat_statements'")).first():
            pytest.skip("the server has no such extension")
        connection.execute(text("CREATE EXTENSION pg_stat_statements"))
    ledger.verify()
