"""Many writers at once, writers that are killed, accounts that may only read, and the roles of docs/ledger.md: nothing is lost."""

import multiprocessing
import os
import random
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

import lethe
from lethe.errors import BudgetExceededError, LedgerError
from lethe.ledger import Budget, Ledger

RELEASE = lethe.guarantees.GDP(0.1)
DENIED = r"refuses this to this account|may not be used by this account"


def at_once(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Run in one process each, begun together; returns what each answers, exceptions as text."""
    context = multiprocessing.get_context("fork")
    gate, answers = context.Event(), context.Queue()
    processes = [context.Process(target=_run, args=(function, gate, answers, *one), daemon=True) for one in arguments]
    for process in processes:
        process.start()
    gate.set()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    return found


def _run(function: Callable[..., Any], gate: Any, answers: Any, *arguments: Any) -> None:
    gate.wait()
    try:
        answers.put(function(*arguments))
    except Exception as error:  # told to the test, whatever it is
        answers.put(f"{type(error).__name__}: {error}")


def reserve_until_refused(place: str, times: int) -> int:
    """How many reservations were let through."""
    ledger, done = Ledger.open(place, timeout=60), 0
    try:
        for _ in range(times):
            ledger.reserve("patients", RELEASE, by=f"process {os.getpid()}")
            done += 1
    except BudgetExceededError:
        pass
    return done


@pytest.mark.parametrize(("processes", "times"), [(10, 6), *(pytest.param(32, 2, marks=pytest.mark.nightly) for _ in range(50))])
def test_processes_that_reserve_at_once_never_overspend(place: str, processes: int, times: int) -> None:
    ledger = Ledger.open(place, make=True)
    # 40 releases fit; what is asked for is many more.
    ledger.create("patients", neighbours="replace_one", budget=Budget(mu=0.1 * 40**0.5), by="keeper")
    done = at_once(reserve_until_refused, [(place, times)] * processes)
    assert [one for one in done if not isinstance(one, int)] == []
    account = ledger.show("patients")
    assert sum(done) == len(account.lines) == 40
    assert account.counted.within(account.terms.limit)
    assert ledger.verify().entries == 41


def release_for_ever(place: str, diary: str) -> None:
    """Reserve, start, write the release into a diary, settle; again and again, until killed."""
    ledger, release = Ledger.open(place, timeout=60), lethe.guarantees.GDP(0.001)
    with open(diary, "a", buffering=1, encoding="ascii") as file:
        while True:
            ticket = ledger.reserve("patients", release, by="a")
            file.write(f"reserved {ticket.number}\n")
            ledger.start(ticket)
            file.write(f"released {ticket.number}\n")
            ledger.settle(ticket, release)
            file.write(f"settled {ticket.number}\n")


@pytest.mark.parametrize("times", [4, pytest.param(200, marks=pytest.mark.nightly)])
def test_processes_that_are_killed_lose_no_reservation(place: str, times: int, tmp_path: Path) -> None:
    ledger, moments, diary = Ledger.open(place, make=True), random.Random(times), tmp_path / "diary"
    ledger.create("patients", neighbours="replace_one", budget=Budget(mu=10.0), by="keeper")
    kills = 0
    while kills < times or (not ledger.show("patients").lines and kills < 20 * times):  # a busy machine may kill all before they reserve
        process = multiprocessing.get_context("fork").Process(target=release_for_ever, args=(place, str(diary)), daemon=True)
        process.start()
        time.sleep(moments.uniform(0.02, 0.12) * (1 + kills // times))
        process.kill()
        process.join()
        kills += 1
    account = ledger.show("patients")
    lines = account.reservations
    assert lines
    states = {"reserved": ("reserved", "started", "settled"), "released": ("started", "settled"), "settled": ("settled",)}
    for word, number in map(str.split, diary.read_text().splitlines()):
        assert lines[int(number)].state in states[word]
    # Each counts, whatever became of its process.
    assert account.counted.cost == sum(line.price.cost for line in account.lines)
    assert all(line.price.cost > 0 for line in account.lines)
    ledger.verify()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where every account may look, as in pytest's own folders none but this one may."""
    made = Path(tempfile.mkdtemp(prefix="lethe-ledger-"))
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def begun(file: Path) -> Ledger:
    ledger = Ledger.open(file, make=True)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=1, delta=1e-6), by="keeper")
    ledger.reserve("patients", RELEASE, by="a")
    return ledger


def read_as_another(place: str) -> tuple[bool, int, int, str]:
    """What an account that may not write finds: whether it knows, how many reservations and entries, and what a reservation is answered."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    ledger = Ledger.open(place)
    with pytest.raises(LedgerError) as refused:
        ledger.reserve("patients", RELEASE, by="auditor")
    return ledger.read_only, len(ledger.show("patients").lines), ledger.verify().entries, str(refused.value)


@pytest.mark.parametrize("name", ["ledger.sqlite", "a ledger?#%41.sqlite"])
def test_a_ledger_that_this_account_may_only_read(folder: Path, name: str) -> None:
    assert not begun(folder / name).read_only
    for path, mode in ((folder / name, 0o444), (folder, 0o555)) if os.geteuid() else ():
        path.chmod(mode)
    before = [(file.name, file.read_bytes()) for file in folder.iterdir()]
    (answer,) = at_once(read_as_another, [(str(folder / name),)])
    assert [one[0] for one in before] == [name]  # at rest a ledger is one file, and reading leaves none beside it
    assert [(file.name, file.read_bytes()) for file in folder.iterdir()] == before
    assert answer[:3] == (True, 1, 2)
    assert answer[3].startswith("the ledger is read-only, and cannot be written")


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_a_ledger_that_may_not_be_read_either(folder: Path, closed: str) -> None:
    begun(folder / "ledger.sqlite")
    (folder / "ledger.sqlite" if closed == "file" else folder).chmod(0)
    (answer,) = at_once(read_as_another, [(str(folder / "ledger.sqlite"),)])
    assert "cannot be opened" in answer if closed == "file" else "may look at" in answer


def test_a_ledger_of_an_older_lethe_stays_in_its_journal_and_is_written(folder: Path) -> None:
    """Which SQLite's own file says: older versions made ledgers with a write-ahead log, which readers may not do without."""
    ledger = begun(folder / "ledger.sqlite")
    with sqlite3.connect(folder / "ledger.sqlite") as connection:
        assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    connection.close()
    ledger.reserve("patients", RELEASE, by="a")
    assert ledger.verify().entries == 3


@pytest.fixture(scope="session")
def shared(postgres) -> str:
    """A ledger with these roles; team B has reserved and settled, and reserved again (entries 4 to 7)."""
    psycopg = pytest.importorskip("psycopg")
    url = postgres.database()
    keeper = Ledger.open(url, make=True)
    keeper.create("patients", neighbours="replace_one", budget=Budget(epsilon=3, delta=1e-6), spenders=["team_a", "team_b"], by="keeper")
    (recipe,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "ledger.md").read_text(), flags=re.S)
    with psycopg.connect(url) as connection:
        connection.execute(recipe)
    theirs = account(url, "team_b")
    ticket = theirs.reserve("patients", RELEASE, by="team_b")
    theirs.start(ticket)
    theirs.settle(ticket, RELEASE, by="team_b", artefact="b" * 64)
    theirs.reserve("patients", RELEASE, by="team_b")
    assert [line.number for line in keeper.show("patients").lines] == [4, 7]
    return url


def account(shared: str, role: str) -> Ledger:
    return Ledger.open(shared.replace("tester@", f"{role}@"))


def test_a_spender_does_all_that_is_its_own(shared) -> None:
    own = account(shared, "team_a")
    first, second = (own.reserve("patients", RELEASE, by="team_a") for _ in range(2))
    own.start(first)
    own.settle(first, RELEASE, by="team_a", artefact="a" * 64)
    own.void(second, reason="not begun", by="team_a")
    states = {line.number: line.state for line in own.show("patients").lines}
    assert (states[first.number], states[second.number]) == ("settled", "voided")
    own.verify()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda own: own.reserve("patients", RELEASE, by="team_b"),
        lambda own: own.start(7),
        lambda own: own.settle(7, RELEASE, by="team_a"),
        lambda own: own.settle(7, RELEASE, by="team_b"),
        lambda own: own.void(7, reason="not begun", by="team_b"),
        lambda own: own.admit("patients", "team_c", by="team_a"),
        lambda own: own.create("visits", neighbours="zero_out", budget=Budget(mu=1), by="team_a"),
    ],
)
def test_a_spender_is_refused_what_is_another_s(attempt, shared) -> None:
    before = account(shared, "auditor").verify()
    with pytest.raises(LedgerError, match=DENIED):
        attempt(account(shared, "team_a"))
    assert account(shared, "auditor").verify() == before


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
def test_no_account_gets_further_by_hand(statement: str, shared) -> None:
    psycopg = pytest.importorskip("psycopg")
    for role in ("team_a", "auditor"):
        with psycopg.connect(shared.replace("tester@", f"{role}@")) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


def test_an_update_by_hand_changes_no_row(shared) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(shared.replace("tester@", "team_a@")) as connection:
        assert connection.execute("UPDATE entries SET counted_cost = '0'").rowcount == 0


def test_an_auditor_reads_and_does_not_write(shared) -> None:
    auditor = account(shared, "auditor")
    assert auditor.show("patients").lines[0].state == "settled"
    auditor.verify()
    with pytest.raises(LedgerError, match=DENIED):
        auditor.reserve("patients", RELEASE, by="auditor")
