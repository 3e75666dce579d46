"""The first screen of a report: what for, of which data, whom it protects, one picture, what must be believed."""

import re
from pathlib import Path
from typing import Any

import pytest
from helpers import make_run
from report_cases import trained_folder
from seal_cases import DELTA, make_record

import lethe
from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.report.sections.build import document_of
from lethe.report.subject import described, subject_of
from lethe.report.wording import percent
from lethe.report.writing import content, written

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


def test_the_first_screen_says_what_for_of_what_whom_it_protects_and_what_must_be_believed() -> None:
    stated = described(subject_of(certify(make_record(), DELTA)), purpose="Who comes back", data_set="Patients of 2024", by="A. Bell")
    document = document_of(described(stated, by="B. Bell"))
    assert document.title == "Who comes back"
    assert document.facts[:2] == (("Data set", "Patients of 2024"), ("Who ran it", "B. Bell"))
    assert re.fullmatch(r"[1-3]?\d [A-Z][a-z]+ 20\d\d", dict(document.facts)["Report of"])
    sentence, facts, picture, *_ = document.section("guarantee").blocks
    assert "the best possible attack" in str(sentence)
    words = dict(facts.rows)  # type: ignore[union-attr]
    assert "each single record in the training data is protected" in words["Who is protected"]
    assert "of those who trained (" in words["What must be believed"]
    best = 100.0 * document.section("guarantee").data["best_guess_right"]
    assert picture.plot.series[1].across == [50, best]  # type: ignore[union-attr]
    assert f"at most {percent(best / 100.0)} of the time" in picture.alt  # type: ignore[union-attr]
    page = written(stated, ".html")
    assert (
        page.index("<h1>Who comes back</h1>")
        < page.index("Patients of 2024")
        < page.index('class="lead"')
        < page.index("<dt>Who is protected")
    )
    assert [content(document)[name] for name in ("title", "about")] == ["Who comes back", dict(document.facts)]
    with pytest.raises(lethe.InputError, match="purpose: got ' '; it needs a text"):
        described(stated, purpose=" ")


def test_a_title_is_short_whatever_was_released() -> None:
    several = "mean and second moments of 3 columns; pass_ends: envelope of bound 0.5 of the logistic loss, 20 passes"
    bare: dict[str, Any] = {"guarantee": GDP(0.3), "neighbours": "replace_one", "findings": (), "citations": ()}
    kinds: list[dict[str, Any]] = [{"name": "a mean"}, {"name": several, "records": 20_000}, {"name": several}]
    titles = [document_of(subject_of(Statement(**bare, **kind))).title for kind in kinds]
    assert titles == ["Privacy report: a mean", "Privacy report: a release from 20,000 records", "Privacy report: a release"]
    assert document_of(subject_of(lethe.certify(make_run(passes=2), DELTA))).title == "Privacy report: softmax regression"


def test_a_folder_says_its_purpose_its_data_and_what_is_taken_as_public(tmp_path: Path) -> None:
    config = {
        "purpose": "Who comes back",
        "by": "A. Bell",
        "data": {"path": "/home/bell/patients.csv", "target": "back"},
        "columns": {"age: years": {}, "id": "drop"},
    }
    report = {"date": "2026-02-03", "public": ["age: years: 0 to 120", "id: not used"]}
    document = document_of(subject_of(trained_folder(tmp_path / "run", config__json=config, report__json=report)))
    assert document.title == "Who comes back"
    stated = {"Data set": "patients.csv, to predict back", "Trained on": "3 February 2026", "Who ran it": "A. Bell"}
    assert {name: words for name, words in document.facts if name in stated} == stated
    assert "/home" not in str(document.facts)
    section = document.section("hypotheses")
    assert section.data["columns"] == {"age: years": "0 to 120", "id": "not used"}
    assert "What is taken as public of each column" in str(section.blocks)
    assert "the ranges and categories of 1 column stand" in str(document.section("guarantee").blocks)
