"""Files for another verb, folders that are written whole or not at all, and fields as text."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import make_run

import lethe
from lethe.accounting.verify import load
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.strict import parse_document, parse_value, to_yaml, write_document
from lethe.jobs.audit import AuditJob
from lethe.jobs.demo import Demo
from lethe.jobs.training import Job
from lethe.report.subject import subject_of

RUN = make_run(noise_multiplier=4.0)
CERTIFICATE = lethe.certify(RUN, 1e-6)
DOCUMENTS: dict[str, dict[str, Any]] = {
    "run": RUN.to_document(),
    "certificate": CERTIFICATE.to_dict(),
    "total": lethe.total([CERTIFICATE], 1e-6).to_dict(),
    "configuration of `lethe train`": {"privacy": {"epsilon": 1.0, "delta": 1e-5}, "run": {"passes": 1}},
    "configuration of `lethe audit`": {"subject": {"kind": "run", "run": "run.yaml"}, "game": "two_world"},
    "result of an audit": {"subject": "a run", "canary": "a record", "audits": []},
}
USES = {
    "run": "lethe certify",
    "certificate": "lethe explain",
    "total": "lethe explain",
    "configuration of `lethe train`": "lethe train",
    "configuration of `lethe audit`": "lethe audit",
    "result of an audit": "lethe report",
}
DOORS: dict[str, tuple[set[str], Callable[[Path], Any]]] = {
    "certify, compare, plan, studio": ({"run"}, lethe.Run.load),
    "explain, verify": ({"certificate", "total"}, load),
    "report": ({"certificate", "total", "run"}, subject_of),
    "total": ({"certificate", "total"}, lambda file: lethe.total([file], 1e-6)),
    "train": ({"configuration of `lethe train`"}, Job.load),
    "audit": ({"configuration of `lethe audit`"}, AuditJob.load),
    "demo": (
        {"configuration of `lethe train`"},
        lambda file: Demo(columns=file).load(),
    ),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize("verb", DOORS)
def test_every_door_says_what_a_document_of_another_kind_is_and_what_it_is_for(tmp_path: Path, verb: str, kind: str) -> None:
    taken, door = DOORS[verb]
    if kind in taken:
        return
    file = tmp_path / "file.yaml"
    write_document(file, DOCUMENTS[kind])
    with pytest.raises(lethe.InputError, match=f"is a {kind}, not a ") as caught:
        door(file)
    assert USES[kind] in (caught.value.remedy or "")
    assert "unknown key" not in str(caught.value)


def test_folders_and_tables_are_no_documents(tmp_path: Path) -> None:
    with pytest.raises(lethe.InputError, match=r"is a folder; .*\n.*\n.*lethe report"):
        lethe.Run.load(tmp_path)
    (tmp_path / "table.csv").write_bytes("a;b\nKäthe;1\n".encode("utf-16"))
    with pytest.raises(lethe.InputError, match=r"ends in '\.csv'; a document .*\n.*\n.*lethe init --data"):
        lethe.Run.load(tmp_path / "table.csv")


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("null", None),
        ("600", 600),
        ("1e-5", 1e-5),
        ("010", 10),
        ("1:30", "1:30"),
        ("no", "no"),
        ("[1, 2.5]", [1, 2.5]),
        ("{schedule: step}", {"schedule": "step"}),
    ],
)
def test_a_value_is_what_yaml_1_2_has(text: str, value: object) -> None:
    got = parse_value(text, "step_size")
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "text", ["{a: 1, a: 2}", "&a [1]", "*a", "[1", "{", "!!bool maybe", "!!python/object:os.system x", "a: b: c", "- 1\n2"]
)
def test_what_is_no_value_is_refused_by_name(text: str) -> None:
    with pytest.raises(lethe.InputError, match="step_size"):
        parse_value(text, "step_size")


def test_a_document_as_text_is_the_document_of_a_file() -> None:
    content = {"records": 3, "step_size": [0.1, 1e-7], "loss": {"kind": "unknown"}, "clip_norm": None}
    assert parse_document(to_yaml(content), "run.yaml") == content
    for name, text in (("run.txt", "a: 1"), ("run.yaml", "- 1"), ("run.json", "{'a': 1}"), ("run.json", '{"a": NaN}'), ("run", "a: 1")):
        with pytest.raises(lethe.InputError, match="run"):
            parse_document(text, name)
