"""The report in LaTeX is compiled, where LaTeX is installed: nothing is refused and nothing runs off the page."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import make_run
from report_cases import HOSTILE, audit_page, hostile_record
from seal_cases import DELTA, make_record

import lethe
from lethe.report.formats import in_latex as escaped
from lethe.report.subject import Subject, subject_of, with_extras
from lethe.report.writing import written

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

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


def compiled(text: str, folder: Path) -> str:
    """What pdflatex says of an article with this report in it."""
    (folder / "report.tex").write_text(text)
    (folder / "article.tex").write_text(ARTICLE)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "article"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
@pytest.mark.parametrize("name", SUBJECTS)
def test_it_compiles_and_every_page_holds_its_text(name: str, tmp_path: Path) -> None:
    said = compiled(written(SUBJECTS[name](), ".tex"), tmp_path)
    assert not [fault for fault in FAULTS if fault in said]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_every_letter_compiles(tmp_path: Path) -> None:
    letters = "".join(map(chr, range(32, 0x250))) + "–—“”‘’…≥≤εδμρ∞漢 ?` !` -- --- << >> ,," + "".join(HOSTILE)
    lines = "\n\n".join(escaped(letters[place : place + 40]) for place in range(0, len(letters), 40))
    said = compiled(lines + "\n", tmp_path)
    assert not [fault for fault in FAULTS if fault in said]


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
