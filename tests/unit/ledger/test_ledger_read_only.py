"""A SQLite ledger of somebody else, or on a read-only medium: an auditor reads it, and leaves nothing beside it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_workers import at_once, read_as_another

import lethe
from lethe.errors import LedgerError
from lethe.ledger import Budget, Ledger


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
    ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    return ledger


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


def read(file: Path, *, held: bool = False) -> Any:
    """By an account that may write neither the file nor beside it. An owner who has it open may bring the file itself up to date."""
    for path, mode in ((file, 0o444), (file.parent, 0o555)) if os.geteuid() else ():
        path.chmod(mode)
    before = contents(file.parent)
    (found,) = at_once(read_as_another, [(str(file),)])
    after = contents(file.parent)
    assert after.keys() == before.keys()
    assert held or after == before
    return found


ANSWER = "the ledger is read-only, and cannot be written"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ledger.sqlite", "a ledger?#%41.sqlite"])
def test_a_ledger_that_nobody_has_open(folder: Path, name: str) -> None:
    begun(folder / name).close()
    assert sorted(contents(folder)) == [name]
    only_read, lines, entries, said = read(folder / name)
    assert (only_read, lines, entries) == (True, 1, 2)
    assert said.startswith(ANSWER)


@pytest.mark.slow
def test_a_ledger_that_its_owner_has_open(folder: Path) -> None:
    owner = begun(folder / "ledger.sqlite")
    assert (folder / "ledger.sqlite-wal").stat().st_size > 0
    only_read, lines, entries, said = read(folder / "ledger.sqlite", held=True)
    assert (only_read, lines, entries) == (True, 1, 2)
    assert said.startswith(ANSWER)
    folder.chmod(0o755)
    (folder / "ledger.sqlite").chmod(0o644)
    owner.reserve("patients", lethe.guarantees.GDP(0.1), by="a")  # nothing is in its way


@pytest.mark.slow
@pytest.mark.parametrize("with_index", [True, False])
def test_a_ledger_that_a_crash_has_left(folder: Path, with_index: bool) -> None:
    """Its last entries are in the file beside it, which SQLite reads by another one."""
    owner = begun(folder / "ledger.sqlite")
    left = folder / "left"
    left.mkdir()
    for ending in ("", "-wal", *(["-shm"] if with_index else [])):
        shutil.copy(folder / f"ledger.sqlite{ending}", left)
    owner.close()
    found = read(left / "ledger.sqlite")
    left.chmod(0o755)
    if with_index:
        assert found[:3] == (True, 1, 2)
    else:
        assert "its last entries are in ledger.sqlite-wal" in found
        assert "copy the ledger and that file" in found


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["file", "folder"])
def test_a_ledger_that_may_not_be_read_either(folder: Path, closed: str) -> None:
    begun(folder / "ledger.sqlite").close()
    (folder / "ledger.sqlite" if closed == "file" else folder).chmod(0)
    (found,) = at_once(read_as_another, [(str(folder / "ledger.sqlite"),)])
    assert "permission denied" in str(found)
    assert "ask whoever keeps the ledger" in str(found)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch) -> Ledger:
    """Of a ledger that nobody has open, by an account that may not write."""
    begun(tmp_path / "ledger.sqlite").close()
    monkeypatch.setattr("lethe.ledger.store.database.may_write", lambda file: False)
    found = Ledger.open(tmp_path / "ledger.sqlite")
    monkeypatch.undo()
    return found


@pytest.mark.parametrize("closing", [True, False])
def test_what_is_written_while_it_is_read_without_locks_is_told(reader: Ledger, tmp_path: Path, closing: bool) -> None:
    writer = Ledger.open(tmp_path / "ledger.sqlite")
    writer.close()

    def written_meanwhile() -> None:
        with reader._database.reading():
            writer.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
            if closing:
                writer.close()

    with pytest.raises(LedgerError, match="was written to while it was read"):
        written_meanwhile()
    assert len(reader.show("patients").lines) == 2  # and a new reading sees it


def test_a_ledger_is_written_by_whoever_may(tmp_path: Path) -> None:
    assert not begun(tmp_path / "ledger.sqlite").read_only
