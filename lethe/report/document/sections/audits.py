"""The audit: what attacks on real trainings found, beside what is claimed."""

from __future__ import annotations

from typing import Any

from lethe.audit.page import AuditPage
from lethe.audit.statistics.result import AuditResult
from lethe.report.document.model import Block, Heading, Notice, Section, Table, Text
from lethe.report.document.subject import Subject

_KINDS = {
    "certified": "proved, but for the stated chance of error",
    "conditional": "proved only if an assumption on the mechanism is true",
    "credible": "a belief, given a prior",
    "point_estimate": "an estimate that proves nothing",
}


def audits(subject: Subject) -> Section:
    """The section."""
    if not subject.audits:
        words = (
            "No audit lies beside this certificate. An audit attacks real trainings and finds faults of code that no proof sees: "
            "“lethe audit” makes one."
        )
        return Section("audit", "Audit", (Text(words),), {"pages": []})
    blocks: list[Block] = [
        Text(
            "An audit trains many times with and without a planted record and attacks the results. It can show that a claim is false; it "
            "can never prove one. A small number found means that this attack found little, not that there is little to find."
        )
    ]
    pages: list[dict[str, Any]] = []
    for page in subject.audits:
        blocks += _of_page(subject, page)
        pages.append({**page.to_document(), "of_this_claim": subject.matches(page)})
    return Section("audit", "Audit", tuple(blocks), {"pages": pages})


def _of_page(subject: Subject, page: AuditPage) -> list[Block]:
    blocks: list[Block] = [Heading(page.stated[0]), Text(f"The planted record: {page.canary}.")]
    if len(page.stated) > 2:
        blocks.append(Text(f"Held against the claim: {page.stated[2].removeprefix('claimed').strip()}."))
    if not subject.matches(page):
        words = "It was held against another claim than the one of this report, and neither supports nor refutes this one."
        blocks.append(Notice("caution", "ANOTHER CLAIM", words))
    if page.audits:
        rows = tuple(_row(result) for result in page.audits)
        blocks.append(
            Table(
                "What was found",
                ("kind", "epsilon is at least", "delta", "wrong with probability at most", "in words"),
                rows,
                numbers=(1, 2, 3),
            )
        )
    elif page.refused:
        blocks.append(Text(page.refused))
    blocks.append(Notice("danger" if page.failed else "plain", f"Verdict: {page.verdict.replace('_', ' ')}", f"{page.says}."))
    return blocks


def _row(result: AuditResult) -> tuple[str, ...]:
    words = result.describe().splitlines()
    told = "; ".join(" ".join(line.split()) for line in words[1:])
    level = "-" if result.level is None else f"{result.level:g}"
    # The first line says the number rounded to the safe side: down.
    number = words[0].partition(" at delta")[0].split()[-1]
    return f"{result.kind.replace('_', ' ')}: {_KINDS[result.kind]}", number, f"{result.delta:g}", level, told
