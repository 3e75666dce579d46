import os
import tempfile
from pathlib import Path

import pytest

import lethe
from lethe.documents.folders import require_new_folder, write_folder

FILES = {"a.json": b"1", "sub/b.json": b"2"}


def _content(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_folder_is_written_whole(tmp_path: Path) -> None:
    write_folder(tmp_path / "out", FILES)
    assert _content(tmp_path / "out") == FILES
    with pytest.raises(lethe.InputError, match="exists already"):
        write_folder(tmp_path / "out", FILES)
    write_folder(tmp_path / "out", {**FILES, "a.json": b"3"}, replace=True)
    assert _content(tmp_path / "out") == {**FILES, "a.json": b"3"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_foreign_files_are_not_deleted(tmp_path: Path) -> None:
    write_folder(tmp_path / "out", FILES)
    (tmp_path / "out" / "sub" / "thesis.txt").write_text("mine")
    with pytest.raises(lethe.InputError, match="not ours to delete"):
        write_folder(tmp_path / "out", FILES, replace=True)
    assert (tmp_path / "out" / "sub" / "thesis.txt").read_text() == "mine"


def test_a_failure_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "out", FILES)

    def fails(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(lethe.InputError, match=r"out cannot be written: disk full\."):
        write_folder(tmp_path / "out", {**FILES, "a.json": b"3"}, replace=True)
    monkeypatch.undo()
    assert _content(tmp_path / "out") == FILES
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_a_link_to_nowhere_and_a_missing_parent_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "link", tmp_path / "missing" / "out"):
        with pytest.raises(lethe.InputError):
            write_folder(path, FILES)


def test_a_folder_that_may_not_be_written_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # the administrator, who may write anywhere, runs tests too
    with pytest.raises(lethe.InputError, match="you may not write to"):
        require_new_folder(tmp_path / "out")


def test_an_error_names_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(**_: object) -> str:
        raise PermissionError(13, "Permission denied", str(tmp_path / ".out.x7k2"))

    monkeypatch.setattr(tempfile, "mkdtemp", refuses)
    with pytest.raises(lethe.InputError, match=r"out cannot be written: Permission denied\.") as raised:
        write_folder(tmp_path / "out", FILES)
    assert "x7k2" not in str(raised.value)
