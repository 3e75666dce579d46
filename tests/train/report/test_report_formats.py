"""What a report keeps to itself, refuses, or writes down without believing it; and that LaTeX can read it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import markdown
import numpy as np
import pytest
from helpers import make_run
from reading_html import Read
from report_cases import HOSTILE, altered, audit_page, hostile_record, trained_folder
from seal_cases import DELTA, make_record, sealed_content

import lethe
import lethe.report
from lethe import estimators
from lethe.certificates.certificate import Certificate
from lethe.cli.app import main
from lethe.documents.strict import to_json
from lethe.report.formats import fenced
from lethe.report.formats import in_latex as tex
from lethe.report.formats import in_markdown as md
from lethe.report.sections import numbers as steps_section
from lethe.report.subject import Curve, Subject, described, subject_of, with_extras
from lethe.report.writing import written

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_section, "_POINTS", 2)


def _hostile_subject() -> Subject:
    words = " ".join(HOSTILE)
    page = audit_page(subject=words, canary=words, source=words, rule=words, warnings=HOSTILE)
    curves = [Curve(name=words[:200], steps=(0, 1), values=(1.0, 2.0), private=private) for private in (True, False)]
    short = dict.fromkeys(("purpose", "data_set", "by"), words[:300])
    subject = described(subject_of(hostile_record(), delta=DELTA), **short)
    extras: dict[str, Any] = {"audits": [page], "curves": curves, "scores": [(words, words)], "show_private": True}
    return with_extras(subject, **extras, commands=[f"lethe report '{words}' ``` ````"], digests=[(words, words)])


def test_hostile_words_are_only_words_in_html() -> None:
    page = written(_hostile_subject(), ".html")
    read = Read(page)
    assert {"script", "img", "b", "iframe"}.isdisjoint(read.tags)
    assert read.handlers == []
    assert all(address.startswith("#") for address in read.asked)
    for words in HOSTILE:
        assert " ".join(words.split()) in read.words
    assert "49" not in read.words.split()


def test_hostile_words_are_only_words_in_markdown() -> None:
    text = written(_hostile_subject(), ".md")
    _, _, body = text.split("---\n", maxsplit=2)
    read = Read(f"<div>{markdown.markdown(body, extensions=['tables', 'fenced_code'])}</div>")
    assert {"script", "img", "a", "iframe", "svg"}.isdisjoint(read.tags)
    assert read.tags.count("h1") == 1
    assert "<script>alert(1)</script>" in read.words
    for words in HOSTILE:
        assert "\n" not in md(words)
    assert fenced("a ```` b").startswith("`````\n")
    assert [md(words) for words in ("0.5", "-0.5", "a_b", "--- x", "===")] == ["0.5", "-0.5", "a\\_b", "\\--- x", "\\==="]
    assert [md(words) for words in ("- a", "1. b", "+ c", "= d", "12) e")] == ["\\- a", "1\\. b", "\\+ c", "\\= d", "12\\) e"]


def test_hostile_words_are_only_words_in_latex() -> None:
    text = written(_hostile_subject(), ".tex")
    assert text.isascii()
    assert "\\input{/etc" not in text
    for words in HOSTILE:
        assert tex(words) in text
    assert tex("\\ { } $ & # % _ ^ ~") == (r"\textbackslash{} \{ \} \$ \& \# \% \_ \textasciicircum{} \textasciitilde{}")
    assert tex("é ü ø 漢 ≥\n\n% x") == r"\'{e} \"{u} {\o} (U+6F22) \ensuremath{\ge} \% x"


def test_private_numbers_are_left_out_unless_asked_for_and_then_marked(tmp_path: Path) -> None:
    curves = {"curves": [{"name": "loss of every epoch", "steps": [1, 2], "values": [0.777, 0.666]}]}
    folder, out = trained_folder(tmp_path / "trained", curves__json=curves), tmp_path / "report.md"
    lethe.report.write(folder, out)
    assert not any(words in out.read_text() for words in ("0.9877", "0.777", "loss of every epoch"))
    assert "left out: no guarantee" in out.read_text()
    lethe.report.write(folder, out, private=True)
    text = out.read_text()
    assert text.index("NOT COVERED BY THE GUARANTEE") < text.index("0.9877")
    assert "loss of every epoch (private, not covered by the guarantee)" in text


@pytest.mark.parametrize(("page", "mine"), [(audit_page(), True), (audit_page(0.1, claim=0.05), False)])
def test_an_audit_in_the_folder_is_found_and_one_of_another_claim_supports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Any, mine: bool
) -> None:
    document, out = page.to_document(), tmp_path / "report.json"
    folder = trained_folder(tmp_path / "trained", audit__json={**document, "lethe": "0.2.0", "certificate": None}, notes__json={"a": 1})
    status = _call(monkeypatch, "report", folder, "-o", out)
    assert status == (0 if mine else 1)  # something is wrong with what lies there, whoever claims it
    (found,) = json.loads(out.read_text())["sections"]["audit"]["pages"]
    assert found["of_this_claim"] is mine
    assert ("another claim" in out.read_text()) is not mine
    (folder / "audit.json").write_text(to_json({**document, "audits": [{"epsilon": -1.0}]}))
    with pytest.raises(lethe.InputError, match=r"audit\.json|audits"):
        lethe.report.write(folder, tmp_path / "again.html")


def _call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["lethe", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_the_verb_says_by_its_status_whether_anything_is_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    make_run().save(tmp_path / "run.yaml")
    make_run(seeded=True).save(tmp_path / "seeded.yaml")
    lethe.certify(make_record(), DELTA).save(tmp_path / "certificate.json")
    assert _call(monkeypatch, "report", tmp_path / "run.yaml", "--delta", DELTA, "-o", tmp_path / "a.md") == 0
    assert _call(monkeypatch, "report", tmp_path / "certificate.json", "-o", tmp_path / "b.tex") == 0
    assert _call(monkeypatch, "report", tmp_path / "seeded.yaml", "--delta", DELTA, "-o", tmp_path / "c.md") == 1
    assert "NOT PRIVATE" in capsys.readouterr().err
    assert (tmp_path / "c.md").read_text().count("NOT PRIVATE") >= 2
    (tmp_path / "empty").mkdir()
    for refused in (tmp_path / "run.yaml", altered(tmp_path), tmp_path / "empty"):
        assert _call(monkeypatch, "report", refused, "-o", tmp_path / "d.md") == 2
    assert "--delta" in capsys.readouterr().err
    assert not (tmp_path / "d.md").exists()
    monkeypatch.chdir(tmp_path)
    assert _call(monkeypatch, "report", "certificate.json") == 0
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    capsys.readouterr()
    assert _call(monkeypatch, "report", "certificate.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["sealed"] is True


def test_notebooks_show_tables_in_which_words_are_only_words() -> None:
    certificate = lethe.certify(hostile_record(), DELTA)
    for shown in (make_run(), certificate, lethe.compare(make_run(), DELTA), lethe.certify(make_run(seeded=True), DELTA)):
        page = shown._repr_html_()
        read = Read(page)
        assert set(read.tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
        assert read.asked == read.handlers == []
    assert "alert(1)" in Read(certificate._repr_html_()).words
    assert "NOT PRIVATE" in lethe.certify(make_run(seeded=True), DELTA)._repr_html_()
    assert "NOT PRIVATE" in lethe.compare(make_run(seeded=True), DELTA)._repr_html_()


@pytest.mark.parametrize("planned", [True, False])
def test_a_fitted_network_shows_its_certificate_or_its_run(planned: bool) -> None:
    torch = pytest.importorskip("torch")
    from lethe.train import TrainOptions, fit

    data = torch.randn(60, 4), torch.arange(60) % 2
    run = make_run(
        records=60, batches=lethe.batches.Poisson(20), steps=2, passes=None, clip_norm=1.0, release="all", loss=lethe.losses.Unknown()
    )
    asked = {"epsilon": 3.0, "delta": 1e-3, "epochs": 1, "batch_size": 20} if planned else {"run": run}
    fitted = fit(torch.nn.Linear(4, 2), torch.nn.CrossEntropyLoss(), data, options=TrainOptions(progress=False), **asked)
    page = fitted._repr_html_()
    assert page.startswith("<table>")
    assert f"Linear trained by run {fitted.run.run_id}" in Read(page).words
    assert ("(3, 0.001)-DP" in page) is planned
    assert ("noise_multiplier" in page) is not planned


def test_a_fitted_estimator_shows_its_privacy_and_has_a_report(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(500, 3)) / 4
    options = estimators.EstimatorOptions(mechanism="objective_perturbation")
    model = estimators.LogisticRegression(classes=[0, 1], feature_norm=1.0, options=options)
    assert "privacy:" not in model._repr_mimebundle_()["text/html"]
    model.fit(features, (features[:, 0] > 0).astype(int))
    assert "privacy: (1," in model._repr_mimebundle_()["text/html"]
    lethe.report.write(model, tmp_path / "report.html")
    assert "1e-05" in (tmp_path / "report.html").read_text()
    assert "DECLARED ONLY" not in (tmp_path / "report.html").read_text()
    model.certificate_.save(tmp_path / "sealed.json")
    lethe.report.write(tmp_path / "sealed.json", tmp_path / "sealed.md")
    assert "key of the seal" in (tmp_path / "sealed.md").read_text()
    # Of a file without a seal nothing is enforced but by its own word, and a smaller number in it is refused.
    model.statement_.save(tmp_path / "statement.json")
    lethe.report.write(tmp_path / "statement.json", tmp_path / "report.md")
    assert "DECLARED ONLY" in (tmp_path / "report.md").read_text()
    stated = json.loads((tmp_path / "statement.json").read_text())
    stated["guarantee"]["mu" if "mu" in stated["guarantee"] else "epsilon_bound"] = 1e-3
    (tmp_path / "altered.json").write_text(to_json({name: entry for name, entry in stated.items() if name not in ("epsilon", "delta")}))
    with pytest.raises(lethe.InputError):
        lethe.report.write(tmp_path / "altered.json", tmp_path / "altered.md")
    seeded = estimators.LogisticRegression(classes=[0, 1], feature_norm=1.0, seed_noise=True, random_state=0)
    seeded.fit(features, (features[:, 0] > 0).astype(int))
    assert "privacy: NOT PRIVATE" in seeded._repr_html_()


ARTICLE = "\\documentclass{article}\n\\begin{document}\n\\input{report}\n\\end{document}\n"
# What no article holds: a page with more on it than fits, or a letter that the font lacks.
FAULTS = ("Overfull \\vbox", "Missing character", "Undefined control sequence")


def long_record() -> Any:
    """Declares far more than a page holds."""
    record = make_record()
    for number in range(60):
        record = record.with_declared(f"assumption {number}", "somebody has to answer for it, and so it is told at some length " * 2)
    return record


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "last": lambda: subject_of(make_run(), delta=DELTA),
    "seeded": lambda: subject_of(make_run(seeded=True), delta=DELTA),
    "sealed": lambda: subject_of(lethe.certify(make_record(), DELTA)),
    "audited": lambda: with_extras(subject_of(make_record(), delta=DELTA), audits=[audit_page(9.0)]),
    "hostile": lambda: subject_of(hostile_record(), delta=DELTA),
    "long": lambda: subject_of(long_record(), delta=DELTA),
}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
@pytest.mark.parametrize("name", [*SUBJECTS, "letters"])
def test_it_compiles_and_every_page_holds_its_text(name: str, tmp_path: Path) -> None:
    letters = "".join(map(chr, range(32, 0x250))) + "–—“”‘’…≥≤εδμρ∞漢 ?` !` -- --- << >> ,," + "".join(HOSTILE)
    every = "\n\n".join(tex(letters[place : place + 40]) for place in range(0, len(letters), 40)) + "\n"
    (tmp_path / "report.tex").write_text(every if name == "letters" else written(SUBJECTS[name](), ".tex"))
    (tmp_path / "article.tex").write_text(ARTICLE)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "article"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert not [fault for fault in FAULTS if fault in done.stdout]


@pytest.mark.parametrize("name", SUBJECTS)
def test_it_is_balanced_and_no_table_grows_with_what_is_declared(name: str) -> None:
    """A tabular is never broken between two pages."""
    text = written(SUBJECTS[name](), ".tex")
    depth = 0
    for letter in text.replace("\\\\", "").replace("\\{", "").replace("\\}", ""):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    for block in ("center", "tabular", "description", "itemize"):
        assert text.count(f"\\begin{{{block}}}") == text.count(f"\\end{{{block}}}") > 0
    assert text.count("\\begin{tabular}") == 1
    lines = text.partition("\\begin{tabular}")[2].partition("\\end{tabular}")[0].splitlines()
    rows = [line for line in lines if line.endswith("\\tabularnewline")]
    assert 8 < len(rows) <= 14
    assert all(row.replace("\\&", "").count("&") == 1 for row in rows)
    assert "\\begin{description}\n\\end{description}" not in text


def test_what_does_not_follow_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path, out = altered(tmp_path), tmp_path / "report.html"
    words, seal = lethe.certify(make_run(), DELTA).to_dict(), sealed_content()
    words["hypotheses"][0]["detail"] = "all is well"
    seal["seal"]["signatures"][0]["sig"] = seal["seal"]["signatures"][0]["sig"][::-1]
    other = trained_folder(tmp_path / "other", run__json=make_run(noise_multiplier=50.0).to_document())
    beside = trained_folder(tmp_path / "altered", certificate__json=json.loads(path.read_text()), run__json=None)
    for subject, said in (
        (path, "does not follow from its run"),
        (Certificate.load(path), "does not follow from its run"),
        (beside, "does not follow from its run"),
        (other, "another run"),
        (Certificate.from_dict(words), "reasons are not those"),
        (Certificate.from_dict(seal), "seal"),
    ):
        with pytest.raises(lethe.InputError, match=said):
            lethe.report.write(subject, out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("subject", "arguments", "said"),
    [
        (make_run(), {}, "delta: missing"),
        (make_run(), {"delta": 0.5}, "below 1/records"),
        (make_run(noise_multiplier=None), {"delta": DELTA}, "no noise yet"),
        (lethe.certify(make_run(), DELTA), {"delta": 1e-4}, "this certificate is at delta"),
        ("nowhere.yaml", {"delta": DELTA}, "cannot be read"),
        (3.0, {}, "got float"),
        (make_run(), {"delta": DELTA, "audits": [1]}, "audits: one is int"),
        (make_run(), {"delta": DELTA, "private": "yes"}, "private = 'yes'"),
        (make_run(), {"delta": DELTA, "curves": [{"name": "a", "steps": [1, 2], "values": [1.0]}]}, "1 for 2 steps"),
        (make_run(), {"delta": DELTA, "curves": [{"name": "a", "steps": [2, 1], "values": [1.0, 2.0]}]}, "ascend"),
        (make_run(), {"delta": DELTA, "curves": [{"name": "a", "steps": [1], "values": [float("nan")]}]}, "curves"),
        (make_run(), {"delta": DELTA, "curves": "none"}, "needs a list"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(tmp_path: Path, subject: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(lethe.InputError, match=said):
        lethe.report.write(subject, tmp_path / "report.html", **arguments)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["report.pdf", "report", "nowhere/report.html"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(lethe.InputError, match="report"):
        lethe.report.write("no such run", tmp_path / name)
