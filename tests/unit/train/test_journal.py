"""The journal: what counts, what a kill may tear, and who may write."""

import os
from pathlib import Path

import pytest

from lethe.errors import InputError, LetheError
from lethe.train.checkpoints.journal import Journal


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


STEPS = list(range(1, 40))


def test_a_journal_cut_at_any_byte_releases_no_step_that_its_rest_begins(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    begun(whole, *range(1, 12)).close()
    content, path = whole.read_bytes(), tmp_path / "journal"
    for left in range(len(content) + 1):
        path.write_bytes(content[:left])
        written = content[: content.find(b"\n", left - 1) + 1 if left else 0].decode().splitlines()  # the last line, made whole
        expected = sum(line.startswith("step ") for line in written)
        journal = Journal(path, STEPS)
        assert (journal.step, journal.starts) == (expected, int(len(written) > 1)), left
        assert path.read_bytes() == content[:left]
        journal.start(None)
        with pytest.raises(LetheError, match="released before"):
            journal.release(expected)
        journal.release(expected + 1)
        journal.close()
        again = Journal(path, STEPS)
        assert (again.step, again.starts) == (expected + 1, 1 + int(len(written) > 1))
        again.close()


@pytest.mark.parametrize(
    ("unfinished", "step", "finished", "noise_starts"),
    [
        ("s", 12, False, set()),
        ("step 1", 12, False, set()),
        ("sta", 8, False, set()),
        ("start -", 8, False, set()),
        ("start ab", 8, False, {"ab"}),
        ("start seed", 8, False, {"seed"}),
        ("fin", 8, True, set()),
    ],
)
def test_an_unfinished_line_counts_as_the_most_that_it_may_be(
    tmp_path: Path, unfinished: str, step: int, finished: bool, noise_starts: set[str]
) -> None:
    path = tmp_path / "journal"
    begun(path, 4, 8).close()
    path.write_text(path.read_text() + unfinished)
    for _ in range(2):  # and so it stays
        journal = Journal(path, [4, 8, 12])
        assert (journal.step, journal.finished, journal.noise_starts) == (step, finished, noise_starts)
        journal.start(None)
        journal.close()


def test_a_step_is_no_unfinished_line_where_only_the_last_iterate_is_released(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    begun(path).close()
    path.write_text(path.read_text() + "s")
    journal = Journal(path)
    assert (journal.step, journal.starts) == (0, 2)
    journal.close()


HEAD = "lethe-journal 1 " + 32 * "a" + "\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("hello\n", 1),
        ("lethe-journal 2 " + 32 * "a" + "\n", 1),
        ("lethe-journal 1 abc\n", 1),
        (HEAD + "step 1\n", 2),
        (HEAD + "start -\nstep 3\nstep 2\n", 4),
        (HEAD + "start -\nstep -1\n", 3),
        (HEAD + "start -\nstep ²\n", 3),
        (HEAD + "start\n", 2),
        ("a text", 1),
        (HEAD + "start -\n\0\0\0", 3),
        (HEAD + "start -\nstep 2", 3),
        (HEAD + "finished", 2),
    ],
)
def test_other_files_are_refused_and_unlocked(tmp_path: Path, content: str, line: int) -> None:
    path = tmp_path / "journal"
    path.write_text(content, encoding="utf-8")
    for _ in range(2):
        with pytest.raises(InputError, match=f"line {line} is"):
            Journal(path, STEPS)
    assert path.read_text(encoding="utf-8") == content


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
