"""What a report says to somebody who knows machine learning and no differential privacy: no word that contradicts another."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from report_cases import trained_folder
from seal_cases import DELTA, make_record

import lethe
import lethe.report
from lethe.accounting.certify import certify
from lethe.certificates.records import TrainingRecord
from lethe.report.model import Code, Heading, Items, Table, Text
from lethe.report.sections import numbers as steps_section
from lethe.report.sections.build import document_of
from lethe.report.subject import Subject, subject_of, with_extras
from lethe.report.wording import factor, proved_by
from lethe.theorems.registry import OURS


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_section, "_POINTS", 2)


def _digits(**changes: Any) -> lethe.Run:
    """The run of examples/train_digits.yaml, with the noise that it gets."""
    fields = {
        "records": 1438,
        "batches": {"design": "cyclic", "size": 350},
        "passes": 1,
        "step_size": 2.0,
        "noise_at": "pass_ends",
        "noise_multiplier": 1.2004619,
        "loss": {"kind": "softmax_regression", "feature_norm": 1.0},
        "release": "last",
        "neighbours": "replace_one",
    }
    return lethe.Run(**{**fields, **changes})


def _section(subject: Subject, key: str) -> Any:
    section = document_of(subject).section(key)
    assert section is not None
    return section


def _words(subject: Subject, key: str) -> str:
    return " ".join(block.words for block in _section(subject, key).blocks if isinstance(block, Text))


def _heads(subject: Subject, key: str) -> tuple[str, ...]:
    return next(block.head for block in _section(subject, key).blocks if isinstance(block, Table))


def test_a_column_stands_only_where_it_says_something() -> None:
    network = make_run(release="all", loss={"kind": "unknown"}, clip_norm=1.0, passes=2)
    assert _heads(subject_of(network, delta=DELTA), "steps") == ("steps", "all iterates")
    assert _heads(subject_of(network.replace(release="last"), delta=DELTA), "steps") == ("steps", "last iterate")
    assert _heads(subject_of(_digits(passes=3), delta=1e-5), "steps") == ("steps", "all iterates", "last iterate")
    weights = "noise on the weights (standard deviation)"
    trained = TrainingRecord(run=network, by="lethe.train", released=make_record().released)
    assert weights in _heads(subject_of(certify(trained, DELTA)), "noise")
    assert weights not in _heads(subject_of(certify(trained.with_declared("optimiser", "AdamW"), DELTA)), "noise")


def test_a_factor_is_plain_and_never_rounded_down() -> None:
    assert factor(8.0) == "2981"
    assert factor(math.log(2.5)) in ("2.5", "2.501")
    assert factor(12.0) == "162,800"
    assert factor(math.inf) == "infinity"
    for epsilon in [*np.random.default_rng(0).uniform(0.0, 45.0, 300), 6.907755278982137, 9.210340371976184]:
        said = float(factor(float(epsilon)).replace(",", ""))
        assert math.exp(epsilon) <= said <= math.exp(epsilon) * 1.0011


@pytest.mark.slow
def test_the_promise_names_its_exceptions_and_the_number_to_judge_by() -> None:
    subject = subject_of(_digits(), delta=1e-5)
    words = _words(subject, "guarantee")
    assert "every attack on the released model, except what section 2 leaves out" in words
    assert "nobody has thought of" not in words
    assert "by any attack but those listed below" in str(_section(subject, "protection").blocks)
    right = re.search(r"at most ([\d.]+ %) of the time", words)
    assert right is not None
    assert f"judge by: {right[1]}" in words
    assert "e+" not in words
    assert [one.key for one in document_of(subject).sections][1:4] == ["protection", "hypotheses", "attacks"]  # named by their numbers


@pytest.mark.parametrize(
    ("changes", "left", "length"),
    [
        ({}, "; 38 of them are left over and never trained on", "4 steps, 1 pass over the data"),
        ({"passes": 3}, "; 38 of them are left over and never trained on", "12 steps, 3 passes over the data"),
        ({"records": 1401}, "; 1 of them is left over and never trained on", "4 steps, 1 pass over the data"),
        ({"records": 1400}, "", "4 steps, 1 pass over the data"),
        ({"passes": None, "steps": 1, "noise_at": "every_step"}, "; 1,088 of them are left over", "1 step"),
        ({"batches": {"design": "shuffled", "size": 350}, "passes": 2}, "; 38 of them are left over by the batches of each pass", ""),
        ({"batches": {"design": "full"}}, "", ""),
        (
            {"batches": {"design": "balls_in_bins", "size": 350}, "release": "all", "neighbours": "replace_one", "noise_at": "every_step"},
            "",
            "",
        ),
    ],
)
def test_records_that_no_step_uses_are_counted(changes: dict[str, Any], left: str, length: str) -> None:
    from lethe.report.sections.promise import _of_run

    rows = dict(_of_run(_digits(**changes)))
    assert rows["Training data"].partition(" (a public number)")[2].startswith(left)
    assert bool(left) == ("left over" in rows["Training data"])
    assert rows["Length"] == length or not length


@pytest.mark.slow
def test_what_must_be_believed_holds_more_than_what_is_declared() -> None:
    sealed, declared, seeded = subject_of(make_record(), delta=DELTA), subject_of(_digits(), delta=1e-5), make_run(seeded=True)
    believed = _section(sealed, "hypotheses").data["believed_besides"]
    for words in (
        "tuned",
        "prepared",
        "Nothing else was released",
        "generator",
        "lethe.train",
        "theorem",
        "whoever holds it could sign anything",
    ):
        assert words in " ".join(believed), words
    assert any(isinstance(block, Items) and block.entries == tuple(believed) for block in _section(sealed, "hypotheses").blocks)
    assert "seal" in _section(declared, "hypotheses").data["believed_besides"][-1]
    assert "believed besides" not in str(_section(subject_of(seeded, delta=DELTA), "hypotheses").blocks)
    (notice,) = document_of(sealed).notices
    assert "section 3 lists all that must be believed" in notice.words
    assert "not covered" not in notice.words


def test_words_of_the_field_are_explained_where_they_occur() -> None:
    section = _section(subject_of(_digits(), delta=1e-5), "hypotheses")
    assert Heading("Words used above") in section.blocks
    text = str(section.blocks)
    for term in ("last iterate", "curvature", "smoothness", "worst slot"):
        assert f"('{term}', " in text
    assert "final weights" in text
    assert "'[by lethe" not in text  # nothing is enforced of a run that somebody typed
    assert all(proved_by(theorem.name).startswith(f"{theorem.name} (") for theorem in OURS)
    assert proved_by("ye-shokri-2022") == "ye-shokri-2022"


@pytest.mark.slow
def test_a_finite_epsilon_is_not_called_private(tmp_path: Path) -> None:
    found = subject_of(certify(make_record(), DELTA))
    table = next(block for block in _section(found, "provenance").blocks if isinstance(block, Table) and block.head[0] == "question")
    asked = [row[0] for row in table.rows]
    assert "has a finite epsilon" in asked
    assert "private" not in asked
    assert "CERTIFICATE --weights FILE" in _words(found, "provenance")
    folder = trained_folder(tmp_path / "a b")
    pytest.importorskip("jinja2")
    lethe.report.write(folder, tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    assert f"lethe report '{folder}' --private -o private\\_report.html".replace("\\", "") in text
    assert f"“lethe verify '{folder}'/certificate.json --weights '{folder}'/weights.npz”".replace("_", "\\_") in text


def test_private_numbers_that_nobody_sees_are_no_breach() -> None:
    subject = with_extras(subject_of(_digits(), delta=1e-5), scores=[("accuracy", "0.9")])
    assert "no breach, unless they are shown to others or anything was chosen by them" in _words(subject, "training")
    assert any(isinstance(block, Code) and "private=True" in block.text for block in _section(subject, "training").blocks)


@pytest.mark.slow
def test_a_single_noise_and_steps_without_noise_are_said_so() -> None:
    once, often = subject_of(_digits(), delta=1e-5), subject_of(_digits(passes=3), delta=1e-5)
    assert _words(once, "noise").startswith("Noise is added once, at step 4, with the multiplier 1.20046.")
    assert "3 of 12 steps" in _words(often, "noise")
    assert "3 of 4 steps have no noise" in _words(once, "steps")
    assert "no noise" not in _words(subject_of(make_run(), delta=DELTA), "steps")


@pytest.mark.slow
def test_remarks_stand_only_where_they_apply() -> None:
    once = subject_of(_digits(), delta=1e-5)
    for subject in (once, subject_of(make_run(passes=2), delta=DELTA)):
        section = _section(subject, "theorems")
        table = next(block for block in section.blocks if isinstance(block, Table))
        claims = any(row[1].startswith("(") for row in table.rows)
        assert ("in parentheses" in _words(subject, "theorems")) is claims
        assert "{" not in _words(subject, "theorems")
        refused = next(block for block in section.blocks if isinstance(block, Table) and block is not table)
        assert refused.head[1] == "why they say nothing here"
        assert all(row[1].endswith(".") for row in refused.rows)
    assert "Noise hurts small groups" in str(_section(once, "signing").blocks)
    clipped = subject_of(make_run(clip_norm=0.5), delta=DELTA)
    assert "Noise and clipping hurt small groups" in str(_section(clipped, "signing").blocks)


def test_there_are_lines_to_fill_in_by_hand() -> None:
    section = _section(subject_of(_digits(), delta=1e-5), "signing")
    table = section.blocks[-1]
    assert [row[0] for row in table.rows] == section.data["by_hand"]
    assert all(set(row[1]) == {"_"} for row in table.rows)
    for words in ("data set", "one person", "signs", "date"):
        assert words in json.dumps(section.data["by_hand"])


@pytest.mark.slow
def test_a_report_on_users_speaks_of_users() -> None:
    """Where it says what is promised, to whom and what to ask, it names no record as what is protected."""
    run = _digits(unit="user", loss={"kind": "unknown"}, clip_norm=1.0, noise_at="every_step", noise_multiplier=3.0, release="all")
    subject = subject_of(run, delta=1e-5)
    assert subject.unit == "user"
    assert "whether any one user was in the training data" in _words(subject, "guarantee")
    glance = _section(subject, "guarantee").data["glance"]
    assert glance["What counts as a change of one user"] == "one user is replaced by any other one; the number of users is public"
    assert glance["Training data"].startswith("1,438 users (a public number)")
    assert glance["Batches"].startswith("350 users")
    assert glance["What is promised"].endswith("replace one user")
    protection = _section(subject, "protection").data
    assert protection["protected"]["Who"].startswith("each single user in the training data is protected")
    assert protection["not_protected"][0].startswith("A person with several user ids")
    signing = _section(subject, "signing").data
    assert any("The unit is one user (replace one user)" in row["known"] for row in signing["questions"])
    for key in ("guarantee", "protection"):
        assert "one record" not in json.dumps(_section(subject, key).data)
    of_records = subject_of(run.replace(unit="record"), delta=1e-5)
    assert "user" not in json.dumps(_section(of_records, "guarantee").data)
