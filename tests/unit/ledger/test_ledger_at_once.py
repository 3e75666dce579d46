"""Many writers at once, and writers that are killed: nothing is overspent, nothing is lost."""

import random
from pathlib import Path

import pytest
from how_many import by_night
from ledger_workers import at_once, killed_after, release_for_ever, reserve_until_refused

from lethe.ledger import Budget, Ledger


def raced(place: str, processes: int, times: int) -> None:
    ledger = Ledger.open(place, make=True)
    # 40 releases fit; what is asked for is many more.
    ledger.create("patients", neighbours="replace_one", budget=Budget(mu=0.1 * 40**0.5), by="keeper")
    done = at_once(reserve_until_refused, [(place, 0.1, times)] * processes)
    assert [one for one in done if not isinstance(one, int)] == []
    assert sum(done) == 40
    account = ledger.show("patients")
    assert len(account.lines) == 40
    assert account.counted.within(account.terms.limit)
    assert ledger.verify().entries == 41
    ledger.close()


@pytest.mark.slow
def test_processes_that_reserve_at_once_never_overspend(place) -> None:
    raced(place, 32 if by_night() else 10, 2 if by_night() else 6)


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_processes_that_reserve_at_once_never_overspend")
@pytest.mark.parametrize("again", range(50))
def test_32_processes_fifty_times(place, again) -> None:
    raced(place, 32, 2)


def killed(place: str, diary: Path, times: int, seed: int) -> None:
    ledger, moments = Ledger.open(place, make=True), random.Random(seed)
    ledger.create("patients", neighbours="replace_one", budget=Budget(mu=10.0), by="keeper")
    kills = 0
    while kills < times or (not ledger.show("patients").lines and kills < 20 * times):  # a busy machine may kill all before they reserve
        killed_after(release_for_ever, moments.uniform(0.02, 0.12) * (1 + kills // times), place, str(diary))
        kills += 1
    lines = {line.number: line for line in ledger.show("patients").lines}
    assert lines
    told = [line.split() for line in diary.read_text().splitlines()]
    for word, number in told:
        line = lines[int(number)]
        if word == "released":
            assert line.state in ("started", "settled")
        if word == "settled":
            assert line.state == "settled"
    # Each counts, whatever became of its process.
    account = ledger.show("patients")
    assert account.counted.cost == sum(line.price.cost for line in lines.values())
    assert all(line.price.cost > 0 for line in lines.values())
    ledger.verify()


@pytest.mark.slow
def test_processes_that_are_killed_lose_no_reservation(place, tmp_path) -> None:
    killed(place, tmp_path / "diary", 12 if by_night() else 4, seed=3)


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_processes_that_are_killed_lose_no_reservation")
def test_200_kills_lose_no_reservation(place, tmp_path) -> None:
    killed(place, tmp_path / "diary", 200, seed=4)
