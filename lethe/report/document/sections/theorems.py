"""Every theorem's answer: what was used, what holds besides, what only claims, and what does not apply."""

from __future__ import annotations

import warnings

from lethe.accounting.compare import compare
from lethe.calculus.upward_formatting import shown
from lethe.certificates.comparison import Comparison, ComparisonRow
from lethe.report.document.model import Block, Section, Table, Text
from lethe.report.document.subject import Subject

_SAME = 1.0 + 1e-6


def theorems(subject: Subject) -> Section | None:
    """The section; None of what is no run."""
    if subject.run is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a large delta, which the report says on top
        comparison = compare(subject.run, subject.delta, allow_large_delta=True)
    said = [row for row in comparison.rows if row.epsilon is not None]
    refused: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.epsilon is None:
            reason = f"{row.hypothesis}: {row.why}" if row.hypothesis else row.why
            refused.setdefault(reason, []).append(row.theorem)
    claims = ""
    if any(not row.usable for row in said):
        claims = " A number in parentheses is a claim of a paper that does not hold here, and no guarantee."
    blocks: list[Block] = [
        Text(
            f"What Lethe's own theorems and the published ones say of this run at delta = {subject.delta:g}. The smallest epsilon that is "
            "proved is used." + claims
        ),
        Table(
            "Theorems that say something",
            ("theorem", "epsilon", "standing", "why"),
            tuple((row.theorem, row.shown(), _standing(row), row.reason) for row in said),
            numbers=(1,),
            marks=tuple(_mark(row) for row in said),
        ),
    ]
    if refused:
        rows = tuple((", ".join(names), f"{reason}.") for reason, names in refused.items())
        if subject.private:
            words = (
                "The others were made for other trainings than this one. That they do not apply is no fault of this training, and takes "
                "nothing from what is proved."
            )
            blocks.append(Text(words))
        blocks.append(Table("Theorems that do not apply", ("theorems", "why they say nothing here"), rows))
    if (better := _better(subject, comparison)) is not None:
        blocks.append(Text(better))
    return Section("theorems", "Every theorem's answer", tuple(blocks), {"rows": [row.to_dict() for row in comparison.rows]})


def _standing(row: ComparisonRow) -> str:
    return row.standing if row.usable else f"NOT a guarantee: {row.standing}"


def _mark(row: ComparisonRow) -> str:
    if not row.usable:
        return "quiet"
    return "strong" if row.status == "used" else ""


def _better(subject: Subject, comparison: Comparison) -> str | None:
    """A word where the certificate was made by fewer theorems than there are."""
    best = comparison.certificate
    if best.epsilon * _SAME >= subject.epsilon:
        return None
    words = f"The certificate was made with fewer theorems: {best.theorem} proves epsilon = {shown(best.epsilon)}."
    return f"{words} Certify the run again to use it."
