"""An audit for the terminal: what is claimed, what was found, what follows."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lethe.audit.page import AuditPage
from lethe.audit.statistics.result import AuditResult, rounded_down

KINDS = {
    "certified": "certified",
    "conditional": "conditional",
    "credible": "credible",
    "point_estimate": "point estimate",
}
"""What each kind of result is called."""
_COLOURS = {"refuted": "red", "void": "red", "consistent": "green", "no_claim": "yellow", "not_comparable": "yellow"}


def audit_tables(page: AuditPage, certificate: str | None = None) -> list[RenderableType]:
    """The certificate, the audits, and last the verdict, red where the claim is refuted or the audit void.

    Args:
        page: what is shown.
        certificate: in words, where there is one.
    """
    above = "\n".join(page.stated) if certificate is None else "\n".join([*page.stated[:2], "", certificate])
    shown: list[RenderableType] = [Panel(Text(above), title="claimed from above", title_align="left")]
    if page.audits:
        shown.append(_found(page))
        shown += [Text(f"{place}: {note}") for place, result in enumerate(page.audits, start=1) for note in notes_of(result)]
    else:
        shown.append(Text(f"no audit: {page.refused}"))
    colour = "yellow" if page.powerless else _COLOURS[page.verdict]
    return [*shown, Panel(Text(page.says, style=f"bold {colour}"), border_style=colour, title="verdict", title_align="left")]


def audit_cells(result: AuditResult) -> tuple[str, str, str, str, str]:
    """A line of the table: kind, epsilon (bounds rounded down), delta, the probability of being wrong, the adversary."""
    sign = "about" if result.kind == "point_estimate" else "≥"
    wrong = "-" if result.level is None else f"{result.level:g}"
    epsilon = "infinity" if result.epsilon == float("inf") else rounded_down(result.epsilon)
    return KINDS[result.kind], f"{sign} {epsilon}", f"{result.delta:g}", wrong, result.threat.replace("_", " ")


def notes_of(result: AuditResult) -> list[str]:
    """What the table has no room for: the statement's first lines up to its adversary are in it, the rest is here."""
    lines = [line.strip() for line in result.describe().splitlines()]
    family = [] if result.family is None else [f"conditional on a trade-off curve of the family: {result.family}"]
    return [*family, *(" ".join(line.split()) for line in lines if line.startswith(("counted", "rule", "at best", "warning")))]


def crossed(page: AuditPage, result: AuditResult) -> bool:
    """Whether this result refutes the page's claim."""
    return page.claim is not None and page.claim.refuted_by(result)


def _found(page: AuditPage) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title="found from below", title_justify="left")
    for name in ("", "kind", "epsilon", "delta", "wrong at most", "adversary"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("epsilon", "delta", "wrong at most") else "left")
    for place, result in enumerate(page.audits, start=1):
        style = "bold red" if crossed(page, result) else ""
        table.add_row(str(place), *map(escape, audit_cells(result)), style=style)
    return table
