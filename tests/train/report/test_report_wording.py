"""What a report says to somebody who knows machine learning and no differential privacy: no word that contradicts another."""

import json
import math
import re
from collections.abc import Callable
from functools import cache
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
from lethe.report.model import Document, Section, Table
from lethe.report.sections import numbers as steps_section
from lethe.report.sections.build import document_of
from lethe.report.sections.promise import facts_of_run
from lethe.report.subject import subject_of, with_extras
from lethe.report.wording import factor, proved_by
from lethe.theorems.registry import OURS


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


NETWORK = make_run(release="all", loss={"kind": "unknown"}, clip_norm=1.0, passes=2)
TRAINED = TrainingRecord(run=NETWORK, by="lethe.train", released=make_record().released)
USERS = _digits(unit="user", loss={"kind": "unknown"}, clip_norm=1.0, noise_at="every_step", noise_multiplier=3.0, release="all")
SUBJECTS: dict[str, Callable[[], Any]] = {
    "once": lambda: subject_of(_digits(), delta=1e-5),
    "scored": lambda: with_extras(subject_of(_digits(), delta=1e-5), scores=[("accuracy", "0.9")]),
    "often": lambda: subject_of(_digits(passes=3), delta=1e-5),
    "plain": lambda: subject_of(make_run(passes=2), delta=DELTA),
    "clipped": lambda: subject_of(make_run(clip_norm=0.5), delta=DELTA),
    "seeded": lambda: subject_of(make_run(seeded=True), delta=DELTA),
    "sealed": lambda: subject_of(certify(make_record(), DELTA)),
    "network": lambda: subject_of(NETWORK, delta=DELTA),
    "network, last": lambda: subject_of(NETWORK.replace(release="last"), delta=DELTA),
    "trained": lambda: subject_of(certify(TRAINED, DELTA)),
    "trained by Adam": lambda: subject_of(certify(TRAINED.with_declared("optimiser", "AdamW"), DELTA)),
    "users": lambda: subject_of(USERS, delta=1e-5),
    "their records": lambda: subject_of(USERS.replace(unit="record"), delta=1e-5),
}


@cache
def _document(name: str) -> Document:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps_section, "_POINTS", 2)
        return document_of(SUBJECTS[name]())


def _section(name: str, key: str) -> Section:
    return _document(name).section(key)


@pytest.mark.parametrize(
    ("name", "key", "words", "never"),
    [
        ("once", "guarantee", ["every attack on the final model, except what section 2 leaves out"], ["nobody has thought of", "e+"]),
        ("once", "protection", ["by any attack but those listed below"], []),
        ("once", "hypotheses", ["Words used above", "curvature", "smoothness", "worst slot", "final weights", "no seal"], ["'[by "]),
        ("sealed", "hypotheses", ["tuned", "prepared", "Nothing else was released", "generator", "lethe.train", "theorem"], []),
        ("sealed", "hypotheses", ["whoever holds it could sign anything", "What must be believed besides"], []),
        ("seeded", "hypotheses", [], ["must be believed besides"]),
        ("sealed", "provenance", ["has a finite epsilon", "CERTIFICATE --weights FILE"], ["'private'"]),
        ("scored", "training", ["no breach, unless they are shown to others or anything was chosen by them", "private=True"], ["0.9"]),
        ("once", "noise", ["Noise is added once, at step 4, with the multiplier 1.20046."], []),
        ("often", "noise", ["3 of 12 steps"], []),
        ("once", "steps", ["3 of 4 steps have no noise"], []),
        ("plain", "steps", [], ["no noise"]),
        ("once", "signing", ["Noise hurts small groups", "data set", "one person", "Who signs", "date"], []),
        ("clipped", "signing", ["Noise and clipping hurt small groups"], []),
        (
            "users",
            "guarantee",
            ["whether any one user was in the training data", "replace one user", "1,438 users", "350 users"],
            ["one record"],
        ),
        ("users", "protection", ["each single user in the training data is protected", "A person with several user ids"], ["one record"]),
        ("users", "signing", ["The unit is one user (replace one user)"], []),
        ("their records", "guarantee", [], ["user"]),
    ],
)
def test_what_a_section_says(name: str, key: str, words: list[str], never: list[str]) -> None:
    text = str(_section(name, key).blocks)
    assert [word for word in words if word not in text] == []
    assert [word for word in never if word in text] == []


@pytest.mark.parametrize(
    ("name", "key", "head"),
    [
        ("network", "steps", ("steps", "all iterates")),
        ("network, last", "steps", ("steps", "last iterate")),
        ("often", "steps", ("steps", "all iterates", "last iterate")),
        ("trained", "noise", ("step", "noise multiplier", "noise on the weights (standard deviation)", "step size")),
        ("trained by Adam", "noise", ("step", "noise multiplier", "step size")),
    ],
)
def test_a_column_stands_only_where_it_says_something(name: str, key: str, head: tuple[str, ...]) -> None:
    assert next(block.head for block in _section(name, key).blocks if isinstance(block, Table)) == head


def test_a_factor_is_plain_and_never_rounded_down() -> None:
    assert [factor(epsilon) for epsilon in (8.0, 12.0, math.inf)] == ["2981", "162,800", "infinity"]
    for epsilon in [*np.random.default_rng(0).uniform(0.0, 45.0, 300), 6.907755278982137, 9.210340371976184]:
        said = float(factor(float(epsilon)).replace(",", ""))
        assert math.exp(epsilon) <= said <= math.exp(epsilon) * 1.0011


def test_sections_are_named_by_their_numbers_and_one_number_is_to_judge_by() -> None:
    assert [one.key for one in _document("once").sections][1:4] == ["protection", "hypotheses", "attacks"]
    words = str(_section("once", "guarantee").blocks)
    right = re.search(r"at most ([\d.]+ %) of the time", words)
    assert right is not None
    assert f"judge by: {right[1]}" in words
    (notice,) = _document("sealed").notices
    assert "section 3 lists all that must be believed" in notice.words


LEFT = "; 38 of them are left over and never trained on"


@pytest.mark.parametrize(
    ("changes", "left", "length"),
    [
        ({}, LEFT, "4 steps, 1 pass over the data"),
        ({"passes": 3}, LEFT, "12 steps, 3 passes over the data"),
        ({"records": 1401}, "; 1 of them is left over and never trained on", "4 steps, 1 pass over the data"),
        ({"records": 1400}, "", "4 steps, 1 pass over the data"),
        ({"passes": None, "steps": 1, "noise_at": "every_step"}, "; 1,088 of them are left over", "1 step"),
        ({"batches": {"design": "shuffled", "size": 350}, "passes": 2}, "; 38 of them are left over by the batches of each pass", ""),
        ({"batches": {"design": "full"}}, "", ""),
    ],
)
def test_records_that_no_step_uses_are_counted(changes: dict[str, Any], left: str, length: str) -> None:
    rows = facts_of_run(_digits(**changes))
    assert rows["Training data"].partition(" (a public number)")[2].startswith(left)
    assert bool(left) == ("left over" in rows["Training data"])
    assert rows["Length"] == length or not length


def test_every_theorem_of_ours_has_its_idea_in_a_few_words() -> None:
    assert all(proved_by(theorem.name).startswith(f"{theorem.name} (") for theorem in OURS)
    assert proved_by("ye-shokri-2022") == "ye-shokri-2022"


def test_commands_name_the_folder_as_it_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    folder = trained_folder(tmp_path / "a b")
    lethe.report.write(folder, tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    assert f"lethe report '{folder}' --private -o private_report.html" in text
    assert f"“lethe verify '{folder}'/certificate.json --weights '{folder}'/weights.npz”".replace("_", "\\_") in text
    assert json.dumps(_section("users", "guarantee").data).count("one record") == 0
