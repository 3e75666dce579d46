"""The report: every section for every kind of run, the numbers of certify, what must stand on top, and no word that contradicts another."""

import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from helpers import DESIGNS, LOSSES, NEIGHBOURS, batches, make_run
from reading_html import Read
from report_cases import KEYS, audit_page, trained_folder
from seal_cases import DELTA, make_record, stranger

import lethe
import lethe.report
from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP
from lethe.calculus.upward_formatting import shown
from lethe.certificates.records import TrainingRecord
from lethe.certificates.statement import Statement
from lethe.documents.strict import to_json
from lethe.report.model import Document, Table
from lethe.report.sections import numbers as steps_section
from lethe.report.sections.build import document_of
from lethe.report.sections.promise import facts_of_run
from lethe.report.subject import subject_of, with_extras
from lethe.report.wording import factor, percent, proved_by
from lethe.report.writing import FORMATS, content, written
from lethe.theorems.registry import OURS

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


def digits_run(**changes: Any) -> lethe.Run:
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


def of(value: Any, delta: float | None = DELTA, **options: Any) -> Callable[[], Any]:
    return lambda: subject_of(value() if callable(value) else value, delta=delta, **options)


def mean(**changes: Any) -> Statement:
    return Statement(**{"name": "a mean", "guarantee": GDP(0.3), "neighbours": "replace_one", "findings": (), "citations": (), **changes})


def total() -> Any:
    return lethe.total([lethe.certify(make_run(), DELTA), lethe.certify(make_run(noise_multiplier=7.0), DELTA)], delta=DELTA)


NETWORK = make_run(release="all", loss={"kind": "unknown"}, clip_norm=1.0, passes=2)
TRAINED = TrainingRecord(run=NETWORK, by="lethe.train", released=make_record().released)
USERS = digits_run(unit="user", loss={"kind": "unknown"}, clip_norm=1.0, noise_at="every_step", noise_multiplier=3.0, release="all")
SUBJECTS: dict[str, Callable[[], Any]] = {
    "once": of(digits_run(), 1e-5),
    "scored": lambda: with_extras(subject_of(digits_run(), delta=1e-5), scores=[("accuracy", "0.9")]),
    "often": of(digits_run(passes=3), 1e-5),
    "plain": of(make_run(passes=2)),
    "clipped": of(make_run(clip_norm=0.5)),
    "seeded": of(make_run(seeded=True)),
    "without noise": of(make_run(noise_multiplier=0.0)),
    "large delta": of(make_run(), 0.5, allow_large_delta=True),
    "sealed": of(lambda: certify(make_record(), DELTA)),
    "sealed by a stranger": lambda: subject_of(certify(make_record(), DELTA), key=stranger().public),
    "audited": lambda: with_extras(subject_of(make_record(), delta=DELTA), audits=[audit_page(9.0)]),
    "network": of(NETWORK),
    "network, last": of(NETWORK.replace(release="last")),
    "trained": of(lambda: certify(TRAINED, DELTA)),
    "trained by Adam": of(lambda: certify(TRAINED.with_declared("optimiser", "AdamW"), DELTA)),
    "users": of(USERS, 1e-5),
    "their records": of(USERS.replace(unit="record"), 1e-5),
    "statement": of(mean(), None),
    "seeded statement": of(mean(seeded=True), None),
    "total": of(total),
    "sealed total": of(lambda: lethe.total([lethe.certify(make_record(), DELTA)], delta=DELTA)),
}
_KINDS: dict[str, dict[str, Any]] = {
    **{design: {"batches": batches(design, 50), "passes": 1} for design in DESIGNS},
    **{loss["kind"]: {"loss": loss, "passes": 2} for loss in LOSSES},
    **{one: {"neighbours": one, "batches": batches("poisson", 10), "passes": 1} for one in NEIGHBOURS},
    "all iterates": {"release": "all"},
    "pass ends": {"noise_at": "pass_ends"},
    "averaged passes": {"noise_at": "pass_ends", "pass_weights": 1.0},
    "ball": {"regulariser": {"kind": "ball", "radius": 2.0}},
    "seeded": {"seeded": True},
    "no noise": {"noise_multiplier": 0.0},
    "budget filter": {"release": "all", "noise_budget": 0.5},
    "one step": {"steps": 1},
    "schedule, clipped": {"noise_multiplier": {"schedule": "exponential", "first": 5.0, "ratio": 0.99}, "clip_norm": 0.5},
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_section, "_POINTS", 3)


@cache
def _document(name: str) -> Document:
    return document_of(SUBJECTS[name]())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", _KINDS)
def test_every_section_is_there_and_says_what_is_certified(kind: str) -> None:
    run = make_run(**_KINDS[kind])
    certificate = lethe.certify(run, DELTA)
    document = document_of(subject_of(run, delta=DELTA))
    assert tuple(section.key for section in document.sections) == KEYS
    assert all(section.blocks and section.title for section in document.sections)
    data = json.loads(to_json(content(document)))
    assert data["sections"]["guarantee"]["epsilon"] == ("inf" if certificate.epsilon == math.inf else certificate.epsilon)
    assert data["certificate"] == json.loads(json.dumps(certificate.to_dict()))
    assert data["private"] is (certificate.epsilon < math.inf)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", ["plain", "seeded", "network", "statement", "total"])
def test_every_format_has_every_section_what_must_be_read_first_and_the_numbers_rounded_up(name: str, suffix: str) -> None:
    document, subject = _document(name), SUBJECTS[name]()
    text = written(subject, suffix)
    assert text.endswith("\n")
    if subject.private and suffix in (".html", ".md"):
        assert f"({shown(subject.epsilon)}, {subject.delta:g})-differential privacy" in text
    for section in document.sections if suffix != ".tex" else ():
        assert f'"{section.key}"' in text if suffix != ".md" else f"## {section.title}\n" in text
    before = {".html": '<main id="content">', ".md": "\n## ", ".tex": "\\begin{center}", ".json": '"sections"'}[suffix]
    assert document.notices[0].heading in text[: text.index(before)]


@pytest.mark.parametrize(
    ("name", "headings"),
    [
        ("seeded", ["NOT PRIVATE"]),
        ("without noise", ["NOT PRIVATE"]),
        ("plain", ["DECLARED ONLY"]),
        ("large delta", ["DELTA IS TOO LARGE", "DECLARED ONLY"]),
        ("audited", ["THE AUDIT SAYS REFUTED", "Sealed"]),
        ("sealed", ["Sealed"]),
        ("sealed by a stranger", ["DECLARED ONLY"]),
        ("statement", ["DECLARED ONLY"]),
        ("seeded statement", ["NOT PRIVATE"]),
        ("total", ["DECLARED ONLY"]),
        ("sealed total", ["Sealed"]),
    ],
)
def test_what_must_be_read_first(name: str, headings: list[str]) -> None:
    assert [notice.heading for notice in _document(name).notices] == headings


def test_the_numbers_are_those_of_the_certificate() -> None:
    certificate = lethe.certify(make_run(), DELTA)
    sections = {section.key: section.data for section in document_of(subject_of(certificate)).sections}
    for pair in sections["deltas"]["pairs"]:
        assert pair["epsilon"] == certificate.epsilon_at(pair["delta"])
    assert min(pair["delta"] for pair in sections["deltas"]["pairs"]) == 1e-12
    assert all(pair["delta"] < 1 / certificate.run.records for pair in sections["deltas"]["pairs"])
    assert sections["steps"]["last_iterate"][-1] == pytest.approx(certificate.epsilon, rel=1e-9)
    assert sections["steps"]["every_iterate"][-1] == pytest.approx(lethe.certify(make_run(release="all"), DELTA).epsilon, rel=1e-9)
    rows = {row["theorem"]: row["epsilon"] for row in sections["theorems"]["rows"]}
    assert rows == {row.theorem: row.epsilon for row in lethe.compare(make_run(), DELTA).rows}


def test_rates_and_factors_are_rounded_up() -> None:
    drawn = np.random.default_rng(0)
    for value in [*drawn.uniform(0, 1, 300), *(10.0 ** drawn.uniform(-9, 0, 300)), 0.9999999, 0.5, 1.0, 0.0]:
        said = float(percent(float(value)).removesuffix(" %"))
        assert value * 100 * (1 - 1e-15) <= said <= max(value * 100 * 1.01, 1e-12)
    assert [factor(epsilon) for epsilon in (8.0, 12.0, math.inf)] == ["2981", "162,800", "infinity"]
    for epsilon in [*drawn.uniform(0.0, 45.0, 300), 6.907755278982137, 9.210340371976184]:
        said = float(factor(float(epsilon)).replace(",", ""))
        assert math.exp(epsilon) <= said <= math.exp(epsilon) * 1.0011


def test_what_is_declared_stands_first_and_voids_the_promise() -> None:
    section = _document("sealed").section("hypotheses")
    assert [block.caption.split(":")[0] for block in section.blocks if isinstance(block, Table)] == ["Declared", "Enforced", "Checked"]
    void = "\n".join(section.data["void_if"])
    assert "“start”" in void
    assert "checkpoint" in void
    assert "seed" not in void  # this training drew fresh noise, and is sealed


def test_releases_that_are_no_run_have_the_sections_that_apply(tmp_path: Path) -> None:
    for name in ("statement", "total"):
        keys = tuple(section.key for section in _document(name).sections)
        assert keys == tuple(key for key in KEYS if key not in ("steps", "noise", "theorems"))
    assert "taken as it is written" in str(_document("statement").section("hypotheses"))  # nothing computes it again
    section = _document("total").section("guarantee")
    assert section.data["epsilon"] == total().epsilon
    assert "What is added up" in str(section.blocks)
    total().save(tmp_path / "total.json")
    lethe.report.write(tmp_path / "total.json", tmp_path / "report.md")
    assert f"({shown(total().epsilon)}, {DELTA:g})-differential privacy" in (tmp_path / "report.md").read_text()


def test_the_page_is_well_made_and_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.report.sections.numbers._SECONDS", 1e9)  # a busy machine draws fewer points in its time
    page = written(SUBJECTS["plain"](), ".html")
    assert page == written(SUBJECTS["plain"](), ".html")
    read = Read(page)
    assert read.asked
    assert all(address.startswith("#") for address in read.asked)
    assert read.handlers == []
    assert "script" not in read.tags
    assert not re.search(r"@import|url\((?!#)", " ".join(read.styles))
    assert {"header", "main", "footer"} <= set(read.tags)
    assert read.tags.count("h1") == 1
    labels = [attributes.get("id") for _, attributes in read.starts if attributes.get("id")]
    assert len(labels) == len(set(labels))
    drawings = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert len(drawings) == 5
    assert all(ElementTree.fromstring(drawing).get("aria-label") for drawing in drawings)
    # Colours are those of the page, light or dark.
    assert not re.search(r"#[0-9a-f]{6}", " ".join(drawings))
    for tag, attributes in read.starts:
        assert tag != "th" or attributes.get("scope") in ("row", "col")


@pytest.mark.parametrize("name", ["seeded", "plain"])
def test_the_metadata_of_a_model_card_never_calls_private_what_is_not(name: str) -> None:
    begin, metadata, _ = written(SUBJECTS[name](), ".md").split("---\n", maxsplit=2)
    card = yaml.safe_load(metadata)
    assert (begin, card["differential_privacy"]["private"]) == ("", name == "plain")
    assert "library_name" not in card  # it names what loads the weights, such as peft
    assert ("differential-privacy" in card["tags"]) is (name == "plain")


def test_a_folder_is_named_as_it_is_typed_and_its_weights_are_held_against_the_seal(tmp_path: Path) -> None:
    folder = trained_folder(tmp_path / "a b")
    lethe.report.write(folder, tmp_path / "report.json")
    found = json.loads((tmp_path / "report.json").read_text())
    assert [one["heading"] for one in found["notices"]] == ["Sealed"]
    assert ("belongs to weights.npz", True) in {(one["question"], one["yes"]) for one in found["sections"]["provenance"]["verified"]}
    lethe.report.write(folder, tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    assert f"lethe report '{folder}' --private -o private_report.html" in text
    assert f"“lethe verify '{folder}'/certificate.json --weights '{folder}'/weights.npz”".replace("_", "\\_") in text
    np.savez(folder / "weights.npz", weights=np.ones((3, 2)), intercept=np.zeros(2))
    lethe.report.write(folder, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["notices"][0]["heading"] == "OTHER WEIGHTS"


@pytest.mark.parametrize(
    ("name", "key", "words", "never"),
    [
        ("once", "hypotheses", ["Words used above", "curvature", "smoothness", "worst slot", "final weights", "no seal"], ["'[by "]),
        ("sealed", "hypotheses", ["tuned", "Nothing else was released", "lethe.train", "whoever holds it could sign anything"], []),
        ("seeded", "hypotheses", [], ["must be believed besides"]),
        ("sealed", "provenance", ["has a finite epsilon", "CERTIFICATE --weights FILE"], ["'private'"]),
        ("scored", "training", ["no breach, unless they are shown to others", "private=True"], ["0.9"]),
        ("once", "noise", ["Noise is added once, at step 4, with the multiplier 1.20046."], []),
        ("often", "noise", ["3 of 12 steps"], []),
        ("once", "steps", ["3 of 4 steps have no noise"], []),
        ("plain", "steps", [], ["no noise"]),
        ("once", "signing", ["Noise hurts small groups", "data set", "one person", "Who signs", "date"], []),
        ("clipped", "signing", ["Noise and clipping hurt small groups"], []),
        ("users", "guarantee", ["whether any one user was", "replace one user", "1,438 users", "350 users"], ["one record"]),
        ("users", "protection", ["each single user in the training data is protected", "several user ids"], ["one record"]),
        ("users", "signing", ["The unit is one user (replace one user)"], []),
        ("their records", "guarantee", [], ["user"]),
        ("network", "steps", ["head=('steps', 'all iterates')"], []),
        ("network, last", "steps", ["head=('steps', 'last iterate')"], []),
        ("often", "steps", ["head=('steps', 'all iterates', 'last iterate')"], []),
        ("trained", "noise", ["head=('step', 'noise multiplier', 'noise on the weights (standard deviation)', 'step size')"], []),
        ("trained by Adam", "noise", ["head=('step', 'noise multiplier', 'step size')"], []),
    ],
)
def test_what_a_section_says(name: str, key: str, words: list[str], never: list[str]) -> None:
    text = str(_document(name).section(key).blocks)
    assert [word for word in words if word not in text] == []
    assert [word for word in never if word in text] == []


def test_sections_are_named_by_their_numbers_and_one_number_is_to_judge_by() -> None:
    assert [one.key for one in _document("once").sections][1:4] == ["protection", "hypotheses", "attacks"]
    words = str(_document("once").section("guarantee").blocks)
    assert "except what section 2 leaves out" in words
    right = re.search(r"at most ([\d.]+ %) of the time", words)
    assert right is not None
    assert f"judge by: {right[1]}" in words
    assert "section 3 lists all that must be believed" in _document("sealed").notices[0].words


@pytest.mark.parametrize(
    ("changes", "left", "length"),
    [
        ({"passes": 3}, "; 38 of them are left over and never trained on", "12 steps, 3 passes over the data"),
        ({"records": 1401}, "; 1 of them is left over and never trained on", "4 steps, 1 pass over the data"),
        ({"records": 1400}, "", "4 steps, 1 pass over the data"),
        ({"passes": None, "steps": 1, "noise_at": "every_step"}, "; 1,088 of them are left over and never trained on", "1 step"),
        ({"batches": {"design": "shuffled", "size": 350}, "passes": 2}, "; 38 of them are left over by the batches of each pass", ""),
        ({"batches": {"design": "full"}}, "", ""),
    ],
)
def test_records_that_no_step_uses_are_counted(changes: dict[str, Any], left: str, length: str) -> None:
    facts = facts_of_run(digits_run(**changes))
    assert facts["Training data"].partition(" (a public number)")[2] == left
    assert facts["Length"] == length or not length


def test_every_theorem_of_ours_has_its_idea_in_a_few_words() -> None:
    assert all(proved_by(theorem.name).startswith(f"{theorem.name} (") for theorem in OURS)
    assert proved_by("ye-shokri-2022") == "ye-shokri-2022"
