"""An older ledger is brought to the newest schema when somebody asks for it, whole or not at all; a newer one is refused.

There is one version so far. The one that comes after it is made here, beside the first, which is then the older one.
"""

from pathlib import Path

import pytest
from sqlalchemy import inspect, text

import lethe
from lethe.errors import LedgerError
from lethe.ledger import Budget, Ledger
from lethe.ledger.store.schema import upgrading

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
    ticket = ledger.reserve("patients", lethe.GDP(0.1), by="team A")
    ledger.start(ticket)
    ledger.settle(ticket, lethe.GDP(0.1))
    ledger.close()
    return place


class Versions:
    """Which versions of the schema this Lethe knows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch, self._plain = folder, monkeypatch, upgrading._config

    def with_second(self, last: str = "") -> None:
        self._folder.mkdir(exist_ok=True)
        (self._folder / "v9002_second.py").write_text(SECOND.format(last=last))
        known = f"{upgrading._FOLDER / 'versions'}:{self._folder}"

        def config():
            found = self._plain()
            found.set_main_option("version_locations", known)
            return found

        self._use(config)

    def first_only(self) -> None:
        self._use(self._plain)

    def _use(self, config) -> None:
        self._patch.setattr(upgrading, "_config", config)
        upgrading.newest.cache_clear()


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    yield Versions(tmp_path / "versions", monkeypatch)
    monkeypatch.undo()
    upgrading.newest.cache_clear()


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
        first.reserve("patients", lethe.GDP(0.1), by="team A")
    assert rows(first) == before

    second = Ledger.open(old, make=True)
    assert rows(second) == before
    assert second.show("patients").to_dict() == shown
    assert {"data_set", "seq"} == tables(second)["heads"]
    assert "team" in tables(second)["spenders"]
    second.reserve("patients", lethe.GDP(0.1), by="team A")
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
        newer.reserve("patients", lethe.GDP(0.1), by="team A")
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
    again.reserve("patients", lethe.GDP(0.1), by="team A")
    again.verify()
