"""A file that is for another verb is told by what it is and what it is for, whichever door it came to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import make_run

import lethe
from lethe.accounting.verify import load
from lethe.documents.strict import write_document
from lethe.jobs.audit.job import AuditJob
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
