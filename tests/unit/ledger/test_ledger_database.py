"""Databases that cannot be used: each a clear error, nothing written, and what was reserved before still there."""

import sqlite3

import pytest
from sqlalchemy import event, text

import lethe
from lethe.errors import InputError, LedgerError, LetheError
from lethe.ledger import Budget, Ledger


@pytest.fixture
def file(tmp_path) -> str:
    path = str(tmp_path / "ledger.sqlite")
    ledger = Ledger.open(path, make=True)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=1, delta=1e-6), by="keeper")
    ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    return path


def unchanged(path: str) -> None:
    assert Ledger.open(path).verify().entries == 2


def said(error: pytest.ExceptionInfo[LetheError]) -> None:
    """What, from where, and what to do."""
    assert error.value.what
    assert error.value.source
    assert error.value.remedy


def test_a_schema_of_a_newer_version_is_refused(file) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9000'")
    connection.close()
    for make in (False, True):
        with pytest.raises(LedgerError, match="version 9000, which this Lethe does not know") as caught:
            Ledger.open(file, make=make)
        said(caught)


def test_a_schema_that_changes_while_a_ledger_is_open_is_refused(file) -> None:
    ledger = Ledger.open(file)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9000'")
    connection.close()
    with pytest.raises(LedgerError, match="9000"):
        ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    connection.close()
    unchanged(file)


@pytest.mark.slow
def test_a_locked_ledger_is_waited_for_and_then_refused(file) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked by another writer") as caught:
        Ledger.open(file, timeout=0.05).reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    said(caught)
    assert len(Ledger.open(file).show("patients").lines) == 1  # readers do not wait
    other.execute("ROLLBACK")
    other.close()
    Ledger.open(file).reserve("patients", lethe.guarantees.GDP(0.1), by="a")


def test_a_read_only_ledger_can_be_shown_and_not_written(file) -> None:
    ledger = Ledger.open(f"sqlite:///file:{file}?mode=ro&uri=true")
    assert len(ledger.show("patients").lines) == 1
    with pytest.raises(LedgerError, match="read-only") as caught:
        ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    said(caught)
    unchanged(file)


def fill(ledger: Ledger) -> None:
    for _ in range(200):
        ledger.reserve("patients", lethe.guarantees.GDP(1e-4), by="a", why="x" * 2000)


def test_a_full_disk_writes_nothing(file) -> None:
    ledger = Ledger.open(file)
    event.listen(ledger._database.engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1").fetchall())
    with pytest.raises(LedgerError, match="no room left") as caught:
        fill(ledger)
    said(caught)
    count = Ledger.open(file).verify().entries
    assert count == 1 + len(Ledger.open(file).show("patients").lines)


def test_places_that_hold_no_ledger_are_refused(tmp_path) -> None:
    (tmp_path / "text.sqlite").write_text("no database, but a text that is longer than a header of one would be, by far; " * 20)
    (tmp_path / "empty.sqlite").touch()
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE patients (name TEXT)")
    connection.close()
    (tmp_path / "loop").symlink_to("loop")
    for place, make, words in (
        ("text.sqlite", False, "no SQLite database"),
        ("empty.sqlite", False, "is no ledger"),
        ("other.sqlite", True, "no ledger's: patients"),
        ("missing.sqlite", False, "is not there"),
        ("no/folder/l.sqlite", True, "folder that is not there"),
        (".", True, "is a folder"),
        ("loop/l.sqlite", True, "too many levels of symbolic links"),
    ):
        with pytest.raises(LetheError, match=words) as caught:
            Ledger.open(tmp_path / place, make=make)
        said(caught)
    assert not (tmp_path / "missing.sqlite").exists()


def test_urls_that_are_none_are_refused_without_their_passwords() -> None:
    for url in ("mysql://me:secret@host/x", "postgresql:secret://", "://secret", "sqlite://", "sqlite:///:memory:"):
        with pytest.raises(InputError, match="ledger") as caught:
            Ledger.open(url)
        assert "secret" not in str(caught.value)


def test_a_postgresql_url_without_a_driver_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(lethe.MissingExtraError, match="psycopg"):
        Ledger.open("postgresql://nobody@/x?host=/nowhere")


def test_a_server_that_is_not_there_is_told(tmp_path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="cannot be read") as caught:
        Ledger.open(f"postgresql://me:secret@/x?host={tmp_path}")
    assert "secret" not in str(caught.value)
    said(caught)


@pytest.mark.slow
def test_a_server_that_goes_away_in_the_middle_loses_nothing(postgres) -> None:
    place = postgres.database()
    ledger = Ledger.open(place, make=True)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=1, delta=1e-6), by="keeper")
    ticket = ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    postgres.stop(at_once=True)
    try:
        with pytest.raises(LedgerError, match=r"cannot be (read|written)") as caught:
            ledger.settle(ticket, lethe.guarantees.GDP(0.1))
        said(caught)
    finally:
        postgres.start()
    assert ledger.show("patients").lines[0].state == "reserved"
    ledger.settle(ticket, lethe.guarantees.GDP(0.1))
    assert ledger.verify().entries == 3


@pytest.mark.slow
def test_a_locked_server_is_waited_for_and_then_refused(postgres) -> None:
    import psycopg

    place = postgres.database()
    ledger = Ledger.open(place, make=True, timeout=0.2)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=1, delta=1e-6), by="keeper")
    with psycopg.connect(place) as other:
        other.execute("LOCK TABLE entries IN EXCLUSIVE MODE")
        with pytest.raises(LedgerError, match="locked by another writer"):
            ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
        assert ledger.show("patients").lines == ()
    ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("pipelined", [True, False])
def test_a_server_s_connection_is_as_good_after_a_refusal(pipelined: bool, postgres, monkeypatch) -> None:
    monkeypatch.setattr("lethe.ledger.store.database.pipelines", lambda: pipelined)
    ledger = Ledger.open(postgres.database(), make=True, timeout=0.3)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=1, delta=1e-6), spenders=["a"], by="keeper")
    other = ledger._database.engine.raw_connection()
    other.cursor().execute("LOCK TABLE entries IN EXCLUSIVE MODE")
    with pytest.raises(LedgerError, match="locked by another writer") as caught:
        ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    said(caught)
    other.rollback()
    other.close()
    for wrong in ({"by": "b"}, {"item": lethe.guarantees.GDP(9.0)}):
        with pytest.raises(LetheError):
            ledger.reserve(**{"data_set": "patients", "item": lethe.guarantees.GDP(0.1), "by": "a"} | wrong)
    first, second = (ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a") for _ in range(2))
    ledger.start(first)
    with pytest.raises(InputError):
        ledger.start(first)
    ledger.void(second, reason="not begun")
    assert [line.state for line in ledger.show("patients").lines] == ["started", "voided"]
    assert ledger.verify().entries == 6
    with ledger._database.reading() as connection:
        open_now = text("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'")
        assert connection.execute(open_now).scalar_one() == 0
