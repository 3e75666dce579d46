"""Files for another verb, folders written whole or not at all, fields as text; and documents made to hurt: one clear error."""

import json
import os
import resource
import zipfile
from collections.abc import Callable
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from how_many import examples

import lethe
from lethe.accounting.verify import load
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.strict import parse_document, parse_value, read_document, to_yaml, write_document
from lethe.jobs.audit import AuditJob
from lethe.jobs.datasets import load_table
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
    "demo": ({"configuration of `lethe train`"}, lambda file: Demo(columns=file).load()),
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


FIELDS = ("step_size", "noise_multiplier", "batches", "loss", "regulariser", "records")


def _bomb(field: str) -> str:
    """Nine aliases of nine aliases of ...: a billion entries in 430 letters."""
    lines = ["a: &a [1,1,1,1,1,1,1,1,1]"]
    lines += [f"{new}: &{new} [{','.join(['*' + old] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    return "\n".join((*lines, f"{field}: *i"))


@pytest.mark.parametrize("field", FIELDS)
def test_aliases_are_refused_before_they_grow(field: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(_bomb(field))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(lethe.InputError, match=r"line 1 has an anchor \(&name\) or an alias"):
        lethe.Run.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_value_that_stands_twice_is_written_twice(tmp_path: Path) -> None:
    path, values = tmp_path / "twice.yaml", [0.5, 0.25]
    write_document(path, {"one": values, "other": values})
    assert "*" not in path.read_text()
    assert read_document(path) == {"one": values, "other": values}


def _npz(path: Path) -> bytes:
    np.savez(path, x=np.arange(12.0).reshape(4, 3), y=np.array([0, 1, 0, 1]))
    return path.read_bytes()


@pytest.mark.parametrize("path", [("epsilon",), ("delta",), ("lipschitz", "constant"), ("others", 1, "epsilon"), ("guarantee", "mu")])
@pytest.mark.parametrize("sign", [1, -1])
def test_whole_numbers_beyond_every_float_are_refused_in_certificates(path: tuple[Any, ...], sign: int, tmp_path: Path) -> None:
    content: Any = json.loads(json.dumps(lethe.certify(make_run(), 1e-5).to_dict()))
    place = content
    for key in path[:-1]:
        place = place[key]
    assert path[-1] in place
    place[path[-1]] = sign * 10**400
    (tmp_path / "certificate.json").write_text(json.dumps(content))
    with pytest.raises(lethe.InputError):
        lethe.Certificate.load(tmp_path / "certificate.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"regulariser": {"kind": "box", "half_width": 1.0, "dimension": None}},
        {"noise_multiplier": {"schedule": "step", "first": 1.0, "factor": 0.5, "period": None}},
        {"step_size": {"schedule": "polynomial", "first": 1.0, "last": 0.5, "power": 1.0, "period": None}},
        {"step_size": {"schedule": "repeated", "every": None, "of": 1.0}},
    ],
    ids=["box", "step", "polynomial", "repeated"],
)
@pytest.mark.parametrize("number", [10**16, 10**20, 10**400], ids=["1e16", "1e20", "1e400"])
def test_whole_numbers_of_any_size_are_refused_where_a_run_is_read(changes: dict[str, dict[str, Any]], number: int) -> None:
    ((name, fields),) = changes.items()
    document = {**make_run().to_document(), name: {key: number if value is None else value for key, value in fields.items()}}
    with pytest.raises(lethe.InputError, match=name):
        lethe.Run.from_document(document)


@pytest.mark.parametrize("text", ["!!timestamp 2001", "!!float", "!!int", "!!bool maybe", "!!float abc", "!!binary é", "!!omap x"])
@pytest.mark.parametrize("key", ["seeded", "noise_multiplier", "x"])
def test_tags_that_do_not_fit_their_text_are_refused(text: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    make_run().save(path)
    kept = [line for line in path.read_text().splitlines() if not line.startswith(key)]
    path.write_text("\n".join([*kept, f"{key}: {text}", ""]))
    with pytest.raises(lethe.InputError):
        lethe.Run.load(path)


@pytest.mark.parametrize("number", [10**5000, -(10**5000), Fraction(10**5000)], ids=["large", "negative", "ratio"])
@pytest.mark.parametrize(
    "door",
    [
        lambda number: lethe.certify(make_run(), number),
        lambda number: lethe.plan(make_run(), number, 1e-5),
        lambda number: lethe.guarantees.GDP(-abs(number)),
        lambda number: lethe.guarantees.GDPMixture((number,), (1.0, 1.0)),
        lambda number: lethe.compare(make_run(), 1e-5, over="noise", values=[number]),
        lambda number: make_run().with_noise_scaled(-abs(number)),
        lambda number: make_run(records=number),
        lambda number: lethe.certify(make_run(), 1e-5, theorems=[number]),
    ],
)
def test_a_number_too_long_to_be_written_is_refused_all_the_same(door: Callable[[Any], object], number: Any) -> None:
    with pytest.raises(lethe.LetheError):
        door(number)


def test_a_header_that_claims_a_million_million_rows(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", buffer.getvalue() + bytes(96))
    with pytest.raises(lethe.InputError, match="cannot be read"):
        load_table(path)


def test_flipped_bits_give_a_table_or_one_error(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    whole, generator = _npz(path), np.random.default_rng(5)
    refused = 0
    for place in generator.integers(0, 8 * len(whole), size=examples(200)).tolist():
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        try:
            load_table(path)
        except lethe.InputError:
            refused += 1
    assert refused > examples(200) // 6
