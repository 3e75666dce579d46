"""Many writers at once, writers that are killed, and accounts that may only read: nothing is overspent, nothing is lost."""

import multiprocessing
import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from how_many import by_night

import lethe
from lethe.errors import BudgetExceededError, LedgerError
from lethe.ledger import Budget, Ledger

RELEASE = lethe.guarantees.GDP(0.1)


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


def raced(place: str, processes: int, times: int) -> None:
    ledger = Ledger.open(place, make=True)
    # 40 releases fit; what is asked for is many more.
    ledger.create("patients", neighbours="replace_one", budget=Budget(mu=0.1 * 40**0.5), by="keeper")
    done = at_once(reserve_until_refused, [(place, times)] * processes)
    assert [one for one in done if not isinstance(one, int)] == []
    account = ledger.show("patients")
    assert sum(done) == len(account.lines) == 40
    assert account.counted.within(account.terms.limit)
    assert ledger.verify().entries == 41


def test_processes_that_reserve_at_once_never_overspend(place) -> None:
    raced(place, 32 if by_night() else 10, 2 if by_night() else 6)


@pytest.mark.nightly(by_day="test_processes_that_reserve_at_once_never_overspend")
@pytest.mark.parametrize("again", range(50))
def test_32_processes_fifty_times(place, again) -> None:
    raced(place, 32, 2)


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


def killed(place: str, diary: Path, times: int, seed: int) -> None:
    ledger, moments = Ledger.open(place, make=True), random.Random(seed)
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


def test_processes_that_are_killed_lose_no_reservation(place, tmp_path) -> None:
    killed(place, tmp_path / "diary", 12 if by_night() else 4, seed=3)


@pytest.mark.nightly(by_day="test_processes_that_are_killed_lose_no_reservation")
def test_200_kills_lose_no_reservation(place, tmp_path) -> None:
    killed(place, tmp_path / "diary", 200, seed=4)


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
