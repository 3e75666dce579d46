"""The report: every section for every kind of run, the numbers of certify, and what must stand on top."""

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from helpers import DESIGNS, LOSSES, NEIGHBOURS, batches, make_run
from report_cases import KEYS, audit_page, trained_folder
from scipy.stats import norm
from seal_cases import DELTA, make_record, stranger

import lethe
import lethe.report
from lethe.calculus.guarantees import GDP
from lethe.calculus.upward_formatting import shown
from lethe.certificates.keys import signing_key
from lethe.certificates.statement import Statement
from lethe.documents.strict import to_json
from lethe.report.model import Table
from lethe.report.sections import numbers as steps_section
from lethe.report.sections.build import document_of
from lethe.report.sections.numbers import Lines
from lethe.report.subject import subject_of, with_extras
from lethe.report.wording import percent
from lethe.report.writing import FORMATS, content, written

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
from reading_html import Read

_KINDS: list[Any] = [
    *(pytest.param({"batches": batches(design, 50), "passes": 1}, id=design) for design in DESIGNS),
    *(pytest.param({"loss": loss, "passes": 2}, id=loss["kind"]) for loss in LOSSES),
    *(pytest.param({"neighbours": one, "batches": batches("poisson", 10), "passes": 1}, id=one) for one in NEIGHBOURS),
    pytest.param({"release": "all"}, id="all iterates"),
    pytest.param({"noise_at": "pass_ends"}, id="pass ends"),
    pytest.param({"noise_at": "pass_ends", "pass_weights": 1.0}, id="averaged passes"),
    pytest.param({"regulariser": {"kind": "ball", "radius": 2.0}}, id="ball"),
    pytest.param({"seeded": True}, id="seeded"),
    pytest.param({"noise_multiplier": 0.0}, id="no noise"),
    pytest.param({"release": "all", "noise_budget": 0.5}, id="budget filter"),
    pytest.param({"steps": 1}, id="one step"),
    pytest.param({"noise_multiplier": {"schedule": "exponential", "first": 5.0, "ratio": 0.99}, "clip_norm": 0.5}, id="schedule, clipped"),
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_section, "_POINTS", 3)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("changes", _KINDS)
def test_every_section_is_there_and_says_what_is_certified(changes: dict[str, Any]) -> None:
    run = make_run(**changes)
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
@pytest.mark.parametrize(
    "changes", [{}, {"seeded": True}, {"batches": batches("poisson", 10), "release": "all", "neighbours": "replace_one"}]
)
def test_every_format_has_every_section_and_the_numbers_rounded_up(changes: dict[str, Any], suffix: str) -> None:
    certificate = lethe.certify(make_run(**changes), DELTA)
    text = written(subject_of(certificate), suffix)
    assert text.endswith("\n")
    if suffix == ".tex":
        return
    if certificate.epsilon < math.inf and suffix != ".json":
        assert f"({shown(certificate.epsilon)}, {DELTA:g})-differential privacy" in text
    for section in document_of(subject_of(certificate)).sections:
        assert f'"{section.key}"' in text if suffix != ".md" else f"## {section.title}\n" in text


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


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0, 8.0])
def test_the_trade_off_curve_is_never_above_the_exact_one_of_a_gaussian_and_near_it(mu: float) -> None:
    lines = Lines.of(GDP(mu), GDP(mu).epsilon(1e-5))
    for alpha in (0.0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0):
        exact = norm.cdf(norm.isf(alpha) - mu)
        assert exact - 0.01 <= lines.type_two(alpha) <= exact + 1e-12
        assert lines.found(alpha) >= 1 - exact - 1e-12
    assert norm.cdf(mu / 2) <= lines.right <= norm.cdf(mu / 2) + 1e-9


def test_rates_are_rounded_up() -> None:
    drawn = np.random.default_rng(0)
    for value in [*drawn.uniform(0, 1, 300), *(10.0 ** drawn.uniform(-9, 0, 300)), 0.9999999, 0.5, 1.0]:
        said = float(percent(float(value)).removesuffix(" %"))
        assert value * 100 * (1 - 1e-15) <= said <= max(value * 100 * 1.01, 1e-12)
    assert percent(0.5734) == "57.4 %"
    assert percent(0.0) == "0 %"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", [".html", ".md", ".tex"])
@pytest.mark.parametrize(
    ("subject", "first"),
    [
        (lambda: subject_of(make_run(seeded=True), delta=DELTA), "NOT PRIVATE"),
        (lambda: subject_of(make_run(noise_multiplier=0.0), delta=DELTA), "NOT PRIVATE"),
        (lambda: subject_of(make_run(), delta=DELTA), "DECLARED ONLY"),
        (lambda: subject_of(make_run(), delta=0.5, allow_large_delta=True), "DELTA IS TOO LARGE"),
        (lambda: with_extras(subject_of(make_record(), delta=DELTA), audits=[audit_page(9.0)]), "THE AUDIT SAYS REFUTED"),
    ],
)
def test_what_must_be_read_first_stands_on_top_in_words(subject: Any, first: str, suffix: str) -> None:
    text = written(subject(), suffix)
    before = {".html": '<nav aria-label="Contents">', ".md": "\n## ", ".tex": "\\begin{center}"}[suffix]
    top = text[: text.index(before)]
    assert first in top
    assert sum(top.count(words) for words in ("NOT PRIVATE", "DECLARED", "DELTA IS", "THE AUDIT")) >= 1


def test_a_sealed_training_is_not_called_declared_only_and_a_strangers_is() -> None:
    certificate = lethe.certify(make_record(), DELTA)
    assert [one.heading for one in document_of(subject_of(certificate)).notices] == ["Sealed"]
    assert "lethe.train" in str(document_of(subject_of(certificate)).section("hypotheses"))
    other = document_of(subject_of(certificate, key=stranger().public))
    assert [one.heading for one in other.notices] == ["DECLARED ONLY"]
    assert "not believed" in other.notices[0].words
    assert document_of(subject_of(certificate, key=signing_key().public)).notices[0].heading == "Sealed"


def test_what_is_declared_stands_first_and_voids_the_promise() -> None:
    section = document_of(subject_of(make_record(), delta=DELTA)).section("hypotheses")
    assert section is not None
    captions = [block.caption.split(":")[0] for block in section.blocks if isinstance(block, Table)]
    assert captions == ["Declared", "Enforced", "Checked"]
    void = "\n".join(section.data["void_if"])
    assert "“start”" in void
    assert "checkpoint" in void
    assert "seed" not in void  # this training drew fresh noise, and is sealed


def test_a_statement_without_a_run_has_the_sections_that_apply() -> None:
    stated = Statement(name="a mean", guarantee=GDP(0.3), neighbours="replace_one", findings=(), citations=())
    document = document_of(subject_of(stated))
    assert tuple(section.key for section in document.sections) == tuple(key for key in KEYS if key not in ("steps", "noise", "theorems"))
    assert document.notices[0].heading == "DECLARED ONLY"
    assert "taken as it is written" in str(document.section("hypotheses"))  # nothing computes it again
    assert f"({shown(GDP(0.3).epsilon(1e-5))}, 1e-05)" in written(subject_of(stated), ".md")
    seeded = Statement(name="a mean", guarantee=GDP(0.3), neighbours="replace_one", findings=(), citations=(), seeded=True)
    assert document_of(subject_of(seeded)).notices[0].heading == "NOT PRIVATE"
    Read(written(subject_of(seeded), ".html"))


def test_a_total_shows_its_parts_and_what_they_declare(tmp_path: Path) -> None:
    total = lethe.total([lethe.certify(make_run(), DELTA), lethe.certify(make_run(noise_multiplier=7.0), DELTA)], delta=DELTA)
    document = document_of(subject_of(total))
    assert document.notices[0].heading == "DECLARED ONLY"
    section = document.section("guarantee")
    assert section is not None
    assert section.data["epsilon"] == total.epsilon
    assert "What is added up" in str(section.blocks)
    total.save(tmp_path / "total.json")
    lethe.report.write(tmp_path / "total.json", tmp_path / "report.md")
    assert f"({shown(total.epsilon)}, {DELTA:g})-differential privacy" in (tmp_path / "report.md").read_text()
    sealed = lethe.total([lethe.certify(make_record(), DELTA)], delta=DELTA)
    assert document_of(subject_of(sealed)).notices[0].heading == "Sealed"


def test_the_page_is_well_made_and_asks_for_nothing() -> None:
    page = written(subject_of(make_run(), delta=DELTA), ".html")
    assert page == written(subject_of(make_run(), delta=DELTA), ".html")
    read = Read(page)
    assert read.asked
    assert all(address.startswith("#") for address in read.asked)
    assert read.handlers == []
    assert "script" not in read.tags
    assert not re.search(r"@import|url\((?!#)", " ".join(read.styles))
    assert {"header", "nav", "main", "footer"} <= set(read.tags)
    assert [tag for tag in read.tags if tag == "h1"] == ["h1"]
    labels = [attributes.get("id") for _, attributes in read.starts if attributes.get("id")]
    assert len(labels) == len(set(labels))
    drawings = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert len(drawings) == 4
    assert all(ElementTree.fromstring(drawing).get("aria-label") for drawing in drawings)
    # Colours are those of the page, light or dark.
    assert not re.search(r"#[0-9a-f]{6}", " ".join(drawings))
    for tag, attributes in read.starts:
        assert tag != "th" or attributes.get("scope") in ("row", "col")


def test_the_metadata_of_a_model_card_never_calls_private_what_is_not() -> None:
    for changes, private in (({}, True), ({"seeded": True}, False)):
        text = written(subject_of(make_run(**changes), delta=DELTA), ".md")
        begin, metadata, _ = text.split("---\n", maxsplit=2)
        assert begin == ""
        card = yaml.safe_load(metadata)
        assert card["differential_privacy"]["private"] is private
        assert "library_name" not in card  # it names what loads the weights, such as peft
        assert ("differential-privacy" in card["tags"]) is private


def test_a_folder_s_weights_are_held_against_the_seal(tmp_path: Path) -> None:
    folder = trained_folder(tmp_path / "trained")
    lethe.report.write(folder, tmp_path / "report.json")
    content = json.loads((tmp_path / "report.json").read_text())
    assert [one["heading"] for one in content["notices"]] == ["Sealed"]
    assert {"belongs to weights.npz": True}.items() <= {
        one["question"]: one["yes"] for one in content["sections"]["provenance"]["verified"]
    }.items()
    np.savez(folder / "weights.npz", weights=np.ones((3, 2)), intercept=np.zeros(2))
    lethe.report.write(folder, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["notices"][0]["heading"] == "OTHER WEIGHTS"
