"""What else is known of a guarantee, as blocks that report and terminal share: other theorems, audits, totals, accounts of a ledger.

build.py and the commands call it; an audit is a lower bound on epsilon, measured by attacks, beside the proved upper bound.
"""

import warnings
from typing import Any

from lethe.accounting.compare import compare
from lethe.accounting.totals import Total
from lethe.audit.page import AuditPage
from lethe.audit.statistics.result import AuditResult, rounded_down
from lethe.calculus.upward_formatting import shown
from lethe.certificates.comparison import Comparison
from lethe.documents.version import __version__
from lethe.report.model import Block, Code, Document, Heading, Notice, Picture, Section, Table
from lethe.report.subject import Subject

_KINDS = {
    "certified": "proved, but for the stated chance of error",
    "conditional": "proved only if an assumption on the mechanism is true",
    "credible": "a belief, given a prior",
    "point_estimate": "an estimate that proves nothing",
}
RESERVED = ("number", "state", "at", "by", "why", "counts as epsilon", "what", "guarantee")
"""The columns of every table of reservations."""


def theorems(subject: Subject) -> Section | None:
    """Every theorem's answer: what was used, what holds besides, what only claims, and what does not apply; None of what is no run."""
    if subject.run is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a large delta, which the report says on top
        comparison = compare(subject.run, subject.delta, allow_large_delta=True)
    used, *refused = _theorem_tables(comparison, short=False)
    words = f"What Lethe's own and published theorems say of this run at delta = {subject.delta:g}; the smallest that is proved is used."
    if any(row.epsilon is not None and not row.usable for row in comparison.rows):
        words += " A number in parentheses is a claim of a paper that does not hold here, and no guarantee."
    blocks: list[Block] = [words, used]
    if refused and subject.private:
        blocks.append("The others were made for other trainings. That they do not apply takes nothing from what is proved.")
    blocks += refused
    best = comparison.certificate
    if best.epsilon * (1.0 + 1e-6) < subject.epsilon:
        proved = f"{best.theorem} proves epsilon = {shown(best.epsilon)}"
        blocks.append(f"The certificate was made with fewer theorems: {proved}. Certify the run again to use it.")
    return Section("theorems", "Every theorem's answer", tuple(blocks), {"rows": [row.to_dict() for row in comparison.rows]})


def _theorem_tables(comparison: Comparison, *, short: bool) -> list[Table]:
    """The theorems that say something, the one used first and those that only claim last; then those refused, grouped by the reason. If
    `short`, in the words of the terminal, where names stand below each other, with the other hypotheses that fail."""
    bounded = [row for row in comparison.rows if row.epsilon is not None]
    refused: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.epsilon is None:
            reason = row.reason if short else f"{row.hypothesis}: {row.why}" if row.hypothesis else row.why
            refused.setdefault(f"{reason}.", []).append(row.theorem)
    standing = [row.standing if row.usable or short else f"NOT a guarantee: {row.standing}" for row in bounded]
    rows = tuple((row.theorem, row.formatted_epsilon(), words, row.reason) for row, words in zip(bounded, standing, strict=True))
    marks = tuple("quiet" if not row.usable else "strong" if row.status == "used" else "" for row in bounded)
    tables = [Table("Theorems that say something", ("theorem", "epsilon", "standing", "why"), rows, numbers=(1,), marks=marks)]
    if refused:
        refusals = tuple((("\n" if short else ", ").join(names), reason) for reason, names in refused.items())
        tables.append(Table("Theorems that do not apply", ("theorems", "why they say nothing here"), refusals))
    return tables


def comparison_blocks(comparison: Comparison, *, applicable: bool = False) -> list[Block]:
    """A comparison for the terminal; `applicable` leaves out the theorems that are refused."""
    used, *refused = _theorem_tables(comparison, short=True)
    claims = any(row.epsilon is not None and not row.usable for row in comparison.rows)
    notes = [*comparison.warnings, *(["in parentheses: a claim, not a guarantee"] if claims else [])]
    hidden = sum(row.epsilon is None for row in comparison.rows) if applicable else 0
    notes += [f"{hidden} more do{'es' if hidden == 1 else ''} not apply"] if hidden else []
    return [comparison.title, used, *notes, *comparison.notes, *([] if applicable else refused)]


def total_blocks(total: Total) -> list[Block]:
    """What holds of all together, a line for each part, and what has to be known beside the numbers."""
    return [total.title, total_table(total), *total.notes]


def total_table(total: Total) -> Table:
    """The parts of a total; what was not computed is taken as it is written."""
    marks = tuple("" if row[4] == "computed" else "quiet" for row in total.rows)
    head = ("release", "times", "epsilon alone", "guarantee", "known how")
    return Table("What is added up", head, total.rows, numbers=(1, 2), marks=marks)


def audits(subject: Subject) -> Section:
    """The audit: what attacks on real trainings found, beside what is claimed."""
    blocks: list[Block] = [
        "An audit trains many times with and without a planted record and attacks the results. It can show that a claim is false, and "
        "never prove one: a small number says that this attack found little, not that there is little to find."
        if subject.audits
        else "No audit lies beside this certificate. An audit attacks real trainings and finds faults of code that no proof sees: “lethe "
        "audit” makes one."
    ]
    mismatch = Notice(
        "caution", "ANOTHER CLAIM", "It was held against another claim, and neither supports nor refutes the one of this report."
    )
    for page in subject.audits:
        begin, *rest = audit_blocks(page)
        blocks += [begin, *([] if subject.matches(page) else [mismatch]), *rest]
    pages = [{**page.to_document(), "of_this_claim": subject.matches(page)} for page in subject.audits]
    return Section("audit", "Audit", tuple(blocks), {"pages": pages})


def audit_blocks(page: AuditPage, certificate: str | None = None, picture: Picture | None = None) -> list[Block]:
    """The claim above, or the certificate that it comes from, in words; the audits, and the plot, if any; the verdict last."""
    title, _, *claimed = page.stated
    blocks: list[Block] = [Heading(title), f"The planted record: {page.canary}."]
    if certificate is None:
        blocks.append(f"Held against the claim: {claimed[0].removeprefix('claimed').strip() if claimed else 'nothing'}.")
    else:
        blocks += [Heading("Claimed from above"), Code(certificate)]
    head = ("kind", "epsilon", "delta", "wrong at most", "adversary", "in words")
    marks = tuple("danger" if crossed(page, result) else "" for result in page.audits)
    results_table = Table("What was found", head, tuple(map(audit_cells, page.audits)), numbers=(1, 2, 3), marks=marks)
    blocks += [results_table if page.audits else f"No audit: {page.refused}", *([] if picture is None else [picture])]
    level = "danger" if page.failed else "plain" if page.verdict == "consistent" and not page.powerless else "caution"
    return [*blocks, Notice(level, f"Verdict: {page.verdict.replace('_', ' ')}", f"{page.says}.")]


def audit_cells(result: AuditResult) -> tuple[str, str, str, str, str, str]:
    """A line of the table: kind, epsilon (bounds rounded down), delta, the probability of being wrong, the adversary, and the rest."""
    sign = "about" if result.kind == "point_estimate" else "≥"
    wrong = "-" if result.level is None else f"{result.level:g}"
    epsilon = "infinity" if result.epsilon == float("inf") else rounded_down(result.epsilon)
    family = [] if result.family is None else [f"conditional on a trade-off curve of the family: {result.family}"]
    lines = [" ".join(line.split()) for line in result.describe().splitlines()]
    lines = [line for line in lines if line.startswith(("counted", "rule", "at best", "warning"))]
    rest = "; ".join([_KINDS[result.kind], *family, *lines])
    return result.kind.replace("_", " "), f"{sign} {epsilon}", f"{result.delta:g}", wrong, result.threat.replace("_", " "), rest


def crossed(page: AuditPage, result: AuditResult) -> bool:
    """Whether this result refutes the page's claim."""
    return page.claim is not None and page.claim.refuted_by(result)


def audit_document(page: AuditPage, certificate: str | None, picture: Picture) -> Document:
    """An audit as a page of its own."""
    return bare_document(page.stated[0], Section("audit", "Audit", tuple(audit_blocks(page, certificate, picture)), page.to_document()))


def account_blocks(account: dict[str, Any]) -> list[Block]:
    """What is counted and left of a data set (`Account.to_dict`), and a line for each reservation."""
    title, *counted = account["title"]
    lines = account["reservations"]
    marks = tuple("quiet" if line["state"] == "voided" else "" for line in lines)
    table = Table("Reservations", RESERVED, tuple(map(reservation_cells, lines)), numbers=(0, 5), marks=marks)
    return [Heading(title), *counted, table, f"note: {account['note']}"]


def reservation_cells(line: dict[str, Any]) -> tuple[str, ...]:
    """A reservation in the columns of every table; an entry of `reservations` in `Account.to_dict`."""
    epsilon = line.get("epsilon")
    own_epsilon = "" if epsilon is None else shown(epsilon)
    return (str(line["number"]), line["state"], line["at"][:19], line["by"], line["why"], own_epsilon, line["what"], line["guarantee"])


def bare_document(title: str, *sections: Section) -> Document:
    """Sections as a page of their own."""
    return Document(title, f"written by Lethe {__version__}", (), sections, {}, ())
