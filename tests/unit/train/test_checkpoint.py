"""The checkpoint's file and the journal: read as written, or refused; what counts, what a kill may tear, and who may write."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError, LetheError
from lethe.train.checkpoints.file import read_checkpoint, write_checkpoint
from lethe.train.checkpoints.journal import Journal

CONTENT = {"numbers": torch.arange(50.0), "text": "a", "nested": {"list": [1, None, 2.5], "counts": torch.ones(3, dtype=torch.int64)}}


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    assert read_checkpoint(path) is None
    write_checkpoint(path, {"old": 1})
    write_checkpoint(path, CONTENT)
    found = read_checkpoint(path)
    assert found is not None
    assert torch.equal(found.pop("numbers"), CONTENT["numbers"])  # type: ignore[arg-type]
    assert torch.equal(found["nested"].pop("counts"), torch.ones(3, dtype=torch.int64))
    assert found == {"text": "a", "nested": {"list": [1, None, 2.5]}}
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert path.stat().st_mode & 0o077 == 0


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("written") / "checkpoint.pt"
    write_checkpoint(path, CONTENT)
    return path.read_bytes()


@given(cut=st.floats(0, 1, exclude_max=True), place=st.integers(0, 10**9), bit=st.integers(0, 7))
def test_a_file_cut_short_is_refused_and_a_flipped_bit_too_or_was_in_no_content(
    tmp_path_factory: pytest.TempPathFactory, written: bytes, cut: float, place: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("spoilt") / "checkpoint.pt"
    path.write_bytes(written[: int(cut * len(written))])
    with pytest.raises(InputError, match="no checkpoint of this version, or it is damaged"):
        read_checkpoint(path)
    spoilt = bytearray(written)
    spoilt[place % len(written)] ^= 1 << bit
    path.write_bytes(spoilt)
    try:
        found = read_checkpoint(path)
    except InputError:
        return
    assert found is not None
    assert torch.equal(found["numbers"], torch.arange(50.0))
    assert torch.equal(found["nested"]["counts"], torch.ones(3, dtype=torch.int64))


class Loud:
    """A pickle that would run code."""

    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/lethe-was-run",)


@pytest.mark.parametrize("content", [Loud(), {"format": 1, "digest": "", "content": Loud()}, {"format": 1}, 3, torch.zeros(3)])
def test_foreign_files_are_refused_and_run_nothing(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save(content, path)
    with pytest.raises(InputError, match="no checkpoint"):
        read_checkpoint(path)
    assert not Path("/tmp/lethe-was-run").exists()
    path.write_bytes(b"PK\3\4 hello")
    with pytest.raises(InputError, match="no checkpoint"):
        read_checkpoint(path)


def failing(*_: object) -> int:
    raise OSError(28, "No space left on device")


def test_what_cannot_be_written_or_read_back_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(path, {"old": 1})
    with pytest.raises(InputError, match="cannot be read back safely"):
        write_checkpoint(path, {"new": np.random.default_rng(0)})
    for where in ("replace", "fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(os, where, failing)
            with pytest.raises(LetheError, match="No space left on device"):
                write_checkpoint(path, {"new": 1})
        assert read_checkpoint(path) == {"old": 1}
        assert len(list(tmp_path.iterdir())) == 1


def begun(path: Path, *steps: int) -> Journal:
    journal = Journal(path)
    journal.start(None)
    for step in steps:
        journal.release(step)
    return journal


def test_a_journal_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    assert (journal.name, journal.starts, journal.step, journal.finished) == ("", 0, 0, False)
    assert path.read_bytes() == b""  # opening writes nothing
    journal.start("abc")
    for step in (3, 17):
        journal.release(step)
    journal.close()
    again = Journal(path)
    assert (again.name, again.starts, again.step, again.noise_starts) == (journal.name, 1, 17, {"abc"})
    again.start(None)
    for _ in range(2):
        again.finish()
    again.close()
    last = Journal(path)
    assert (last.starts, last.step, last.noise_starts, last.finished) == (2, 17, {"abc"}, True)
    last.close()
    assert path.read_text().splitlines()[1:] == ["start abc", "step 3", "step 17", "start -", "finished"]
    assert path.stat().st_mode & 0o077 == 0


STEPS = list(range(1, 40))


def test_a_journal_cut_at_any_byte_releases_no_step_that_its_rest_begins(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    begun(whole, 1, 9, 10, 11).close()
    content, path = whole.read_bytes(), tmp_path / "journal"
    for left in range(len(content) + 1):
        path.write_bytes(content[:left])
        written = content[: content.find(b"\n", left - 1) + 1 if left else 0].decode().splitlines()  # the last line, made whole
        expected = max([0, *(int(line.split()[1]) for line in written if line.startswith("step "))])
        journal = Journal(path, [1, 9, 10, 11, 12])
        assert (journal.step, journal.starts) == (expected, int(len(written) > 1)), left
        assert path.read_bytes() == content[:left]
        journal.start(None)
        for step in {0, expected}:
            with pytest.raises(LetheError, match="released before"):
                journal.release(step)
        journal.release(expected + 1)
        journal.close()
        again = Journal(path, range(1, 40))
        assert (again.step, again.starts) == (expected + 1, 1 + int(len(written) > 1))
        again.close()


@pytest.mark.parametrize(
    ("unfinished", "step", "finished", "noise_starts"),
    [
        ("s", 12, False, set()),
        ("step 1", 12, False, set()),
        ("sta", 8, False, set()),
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
    begun(last := tmp_path / "last").close()
    last.write_text(last.read_text() + "s")
    journal = Journal(last)  # where only the last iterate is released it begins no step
    assert (journal.step, journal.starts) == (0, 2)
    journal.close()


HEAD = "lethe-journal 1 " + 32 * "a" + "\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("hello\n", 1),
        ("lethe-journal 2 " + 32 * "a" + "\n", 1),
        (HEAD + "step 1\n", 2),
        (HEAD + "start -\nstep 3\nstep 2\n", 4),
        (HEAD + "start -\nstep -1\n", 3),
        (HEAD + "start -\nstep ²\n", 3),
        (HEAD + "start\n", 2),
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


def test_a_line_is_on_disk_before_the_call_returns_and_a_disk_that_fails_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    journal, seen = begun(path, 1), list[bytes]()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda descriptor: seen.append(path.read_bytes()))
        journal.release(5)
    assert [content.endswith(b"\nstep 5\n") for content in seen] == [True]
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", failing)
        with pytest.raises(LetheError, match="No space left on device"):
            journal.release(6)
    assert journal.step == 5
    journal.close()
