"""The journal: what counts, what a kill may tear, and who may write."""

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from forked import forking
from hypothesis import given
from hypothesis import strategies as st
from interrupted import quick_disk
from journal_holders import held, killed_with_a_worker

from lethe.errors import InputError, LetheError
from lethe.train.checkpoints.journal import Journal


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with quick_disk():
        yield


def begun(path: Path, *steps: int) -> Journal:
    journal = Journal(path)
    journal.start(None)
    for step in steps:
        journal.release(step)
    return journal


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    assert (journal.name, journal.starts, journal.step, journal.finished) == ("", 0, 0, False)
    assert path.read_bytes() == b""  # opening writes nothing
    journal.start("abc")
    journal.release(3)
    journal.release(17)
    journal.close()
    again = Journal(path)
    assert (again.name, again.starts, again.step, again.noise_starts) == (journal.name, 1, 17, {"abc"})
    again.start(None)
    again.finish()
    again.finish()
    again.close()
    last = Journal(path)
    assert (last.starts, last.step, last.noise_starts, last.finished) == (2, 17, {"abc"}, True)
    last.close()
    assert path.read_text().splitlines()[1:] == ["start abc", "step 3", "step 17", "start -", "finished"]
    assert path.stat().st_mode & 0o077 == 0


def test_a_line_is_on_disk_before_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    seen: list[bytes] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: seen.append(path.read_bytes()))
    journal.release(5)
    journal.close()
    assert len(seen) == 1
    assert seen[0].endswith(b"\nstep 5\n")


@pytest.mark.parametrize("step", [0, 4, 5])
def test_no_step_is_released_twice(tmp_path: Path, step: int) -> None:
    journal = begun(tmp_path / "journal", 5)
    with pytest.raises(LetheError, match="released before"):
        journal.release(step)
    journal.close()


@pytest.mark.slow
@given(steps=st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True).map(sorted), data=st.data())
def test_a_torn_line_stands_for_nothing_and_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("torn") / "journal"
    begun(path, *steps).close()
    whole = path.read_bytes()
    kept = data.draw(st.integers(0, len(whole)), label="bytes left")
    path.write_bytes(whole[:kept])
    lines = [line for line in whole[:kept].decode().splitlines(keepends=True) if line.endswith("\n")]
    expected = max((int(line.split()[1]) for line in lines if line.startswith("step ")), default=0)
    journal = Journal(path)
    assert journal.step == expected
    assert path.read_bytes() == whole[:kept]
    journal.start(None)
    journal.release(expected + 1)
    journal.close()
    again = Journal(path)
    assert again.step == expected + 1
    again.close()


HEAD = "lethe-journal 1 " + 32 * "a" + "\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("hello\n", 1),
        ("lethe-journal 2 " + 32 * "a" + "\n", 1),
        ("lethe-journal 1 abc\n", 1),
        (HEAD + "step 1\n", 2),
        (HEAD + "start -\nstep 3\nstep 2\n", 4),
        (HEAD + "start -\nstep 0\n", 3),
        (HEAD + "start -\nstep -1\n", 3),
        (HEAD + "start -\nstep 1e3\n", 3),
        (HEAD + "start -\nstep ²\n", 3),
        (HEAD + "start -\nstep\n", 3),
        (HEAD + "start -\nfinished 1\n", 3),
        (HEAD + "start\n", 2),
        (HEAD + "\n", 2),
        (HEAD + "start -\n\0\0\0\n", 3),
    ],
)
def test_other_files_are_refused_and_unlocked(tmp_path: Path, content: str, line: int) -> None:
    path = tmp_path / "journal"
    path.write_text(content, encoding="utf-8")
    for _ in range(2):
        with pytest.raises(InputError, match=f"line {line} is"):
            Journal(path)
    assert path.read_text(encoding="utf-8") == content


def started(work: Callable[[Path, Connection], None], path: Path) -> tuple[Any, Any]:
    """A process that does so, and the end of its pipe."""
    mine, theirs = forking().Pipe()
    process = forking().Process(target=work, args=(path, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, mine


@pytest.mark.slow
def test_one_at_a_time_in_one_process_and_in_several(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path, 1)
    with pytest.raises(InputError, match="is locked"):
        Journal(path)
    journal.close()
    process, pipe = started(held, path)
    assert pipe.recv() == 1
    with pytest.raises(InputError, match="is locked"):
        Journal(path)
    pipe.send("end")
    process.join(60)
    assert process.exitcode == 0
    Journal(path).close()


@pytest.mark.slow
def test_a_forgotten_journal_unlocks_and_a_forked_worker_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    begun(path, 1)  # dropped at once
    killed, pipe = started(killed_with_a_worker, path)
    worker = pipe.recv()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    try:
        os.kill(worker, 0)  # it outlives the training
        Journal(path).close()
    finally:
        os.kill(worker, 9)


def test_a_disk_that_fails_stops_training_before_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = begun(tmp_path / "journal", 1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(LetheError, match="No space left on device"):
        journal.release(2)
    assert journal.step == 1
    monkeypatch.undo()
    journal.close()


def test_a_path_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be opened"):
        Journal(tmp_path / "missing" / "journal")
