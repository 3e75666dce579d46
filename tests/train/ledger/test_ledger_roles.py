"""The roles of docs/ledger.md, on a server: a spender writes under its own name about its own reservations, and an auditor reads."""

import re

import pytest
from repository import ROOT

import lethe
from lethe.errors import LedgerError
from lethe.ledger import Budget, Ledger

PAGE = ROOT / "docs" / "ledger.md"
DENIED = r"refuses this to this account|may not be used by this account"


@pytest.fixture(scope="module")
def place(postgres) -> str:
    """A ledger with these roles; team B has reserved and settled, and reserved again (entries 4 to 7)."""
    psycopg = pytest.importorskip("psycopg")
    url = postgres.database()
    keeper = Ledger.open(url, make=True)
    keeper.create("patients", neighbours="replace_one", budget=Budget(epsilon=3, delta=1e-6), spenders=["team_a", "team_b"], by="keeper")
    (recipe,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), flags=re.S)
    with psycopg.connect(url) as connection:
        connection.execute(recipe)
    theirs = account(url, "team_b")
    ticket = theirs.reserve("patients", lethe.guarantees.GDP(0.1), by="team_b")
    theirs.start(ticket)
    theirs.settle(ticket, lethe.guarantees.GDP(0.1), by="team_b", artefact="b" * 64)
    theirs.reserve("patients", lethe.guarantees.GDP(0.1), by="team_b")
    assert [line.number for line in keeper.show("patients").lines] == [4, 7]
    return url


def account(place: str, role: str) -> Ledger:
    return Ledger.open(place.replace("tester@", f"{role}@"))


def test_a_spender_does_all_that_is_its_own(place) -> None:
    own = account(place, "team_a")
    first, second = (own.reserve("patients", lethe.guarantees.GDP(0.1), by="team_a") for _ in range(2))
    own.start(first)
    own.settle(first, lethe.guarantees.GDP(0.1), by="team_a", artefact="a" * 64)
    own.void(second, reason="not begun", by="team_a")
    states = {line.number: line.state for line in own.show("patients").lines}
    assert (states[first.number], states[second.number]) == ("settled", "voided")
    own.verify()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda own: own.reserve("patients", lethe.guarantees.GDP(0.1), by="team_b"),
        lambda own: own.start(7),
        lambda own: own.settle(7, lethe.guarantees.GDP(0.1), by="team_a"),
        lambda own: own.settle(7, lethe.guarantees.GDP(0.1), by="team_b"),
        lambda own: own.void(7, reason="not begun", by="team_b"),
        lambda own: own.admit("patients", "team_c", by="team_a"),
        lambda own: own.create("visits", neighbours="zero_out", budget=Budget(mu=1), by="team_a"),
    ],
)
def test_a_spender_is_refused_what_is_another_s(attempt, place) -> None:
    before = account(place, "auditor").verify()
    with pytest.raises(LedgerError, match=DENIED):
        attempt(account(place, "team_a"))
    assert account(place, "auditor").verify() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entries",
        "TRUNCATE entries CASCADE",
        "UPDATE reservations SET cost = '0'",
        "UPDATE alembic_version SET version_num = '9'",
        "INSERT INTO reservations VALUES (1, 'patients', 'team_b', '0', '0')",
        "INSERT INTO starts VALUES (1, 7)",
        "INSERT INTO releases VALUES (1, 7, '0', '0')",
        "INSERT INTO corrections VALUES (1, 7, 'not begun')",
        "INSERT INTO released VALUES ('patients', 'x', 6)",
        "INSERT INTO released VALUES ('patients', 'x', 1)",
        "INSERT INTO spenders VALUES (1, 'patients', 'team_c')",
        "ALTER TABLE entries DISABLE ROW LEVEL SECURITY",
        "CREATE TRIGGER odd BEFORE INSERT ON starts FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE TABLE notes (text TEXT)",
        "SET ROLE tester",
    ],
)
def test_no_account_gets_further_by_hand(statement: str, place) -> None:
    import psycopg

    for role in ("team_a", "auditor"):
        with psycopg.connect(place.replace("tester@", f"{role}@")) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


def test_an_update_by_hand_changes_no_row(place) -> None:
    import psycopg

    with psycopg.connect(place.replace("tester@", "team_a@")) as connection:
        assert connection.execute("UPDATE entries SET counted_cost = '0'").rowcount == 0


def test_an_auditor_reads_and_does_not_write(place) -> None:
    auditor = account(place, "auditor")
    assert auditor.show("patients").lines[0].state == "settled"
    auditor.verify()
    with pytest.raises(LedgerError, match=DENIED):
        auditor.reserve("patients", lethe.guarantees.GDP(0.1), by="auditor")
