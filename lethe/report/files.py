"""A comparison or a sweep as the files of a folder, and reservations of a ledger as a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from lethe.certificates.comparison import Comparison, ComparisonRow
from lethe.certificates.sweep import Sweep
from lethe.documents.strict import to_json
from lethe.report import figure_of
from lethe.report.sections.evidence import RESERVED, reservation_cells

_COLUMNS = ("theorem", "epsilon", "status", "guarantee", "reason", "covers", "citations")


def comparison_files(comparison: Comparison | Sweep) -> dict[str, bytes]:
    """comparison.json, comparison.csv and comparison.png; the table of a sweep has a line for each theorem and value.

    An empty epsilon is a theorem that does not apply. A row's `guarantee` is "yes"; "no": its epsilon is only a claim, or there is none;
    "none": it holds and bounds nothing.
    """
    from lethe.report.drawing import png  # plots need the optional matplotlib

    if isinstance(comparison, Comparison):
        head, lines = _COLUMNS, [_fields(row) for row in comparison.rows]
    else:
        head = (comparison.over, *_COLUMNS)
        lines = [[value, *_fields(row)] for line in comparison.lines for value, row in zip(comparison.values, line, strict=True)]
    data = {"comparison.json": to_json(comparison.to_dict()), "comparison.csv": _csv(head, lines)}
    return {**{name: text.encode() for name, text in data.items()}, "comparison.png": png(figure_of(comparison))}


def _fields(row: ComparisonRow) -> list[Any]:
    epsilon = "" if row.epsilon is None else repr(row.epsilon)
    guarantee = "yes" if row.proves else "none" if row.usable else "no"
    return [row.theorem, epsilon, row.status, guarantee, row.reason, row.covers, " ".join(row.citations)]


def reservations_csv(accounts: Sequence[dict[str, Any]]) -> str:
    """All reservations of all data sets, a line each; of plain data, `Account.to_dict`."""
    head = ("data_set", *RESERVED, "settled_at", "artefact", "reason", "declared")
    lines: list[tuple[str, ...]] = []
    for account in accounts:
        for line in account["reservations"]:
            rest = (line["settled_at"], line["artefact"], line["reason"], "; ".join(line["declared"]))
            lines.append((account["data_set"], *reservation_cells(line), *rest))
    # A spreadsheet would compute what begins so.
    return _csv(head, [[f"'{cell}" if cell.startswith(("=", "+", "-", "@")) else cell for cell in line] for line in lines])


def _csv(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()
