"""A comparison or a sweep as the files of a folder: its data, a table for spreadsheets, a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from lethe.certificates.comparison import Comparison, ComparisonRow, Sweep
from lethe.documents.strict import to_json
from lethe.report.plots import comparison_plot, sweep_plot

_COLUMNS = ("theorem", "epsilon", "status", "guarantee", "reason", "covers", "citations")


def comparison_files(comparison: Comparison | Sweep) -> dict[str, bytes]:
    """comparison.json, comparison.csv and comparison.png; the table of a sweep has a line for each theorem and value."""
    content = comparison.to_dict()
    if isinstance(comparison, Comparison):
        table, plot = _csv("", ((None, row) for row in comparison.rows)), comparison_plot(content)
    else:
        pairs = ((value, row) for line in comparison.lines for value, row in zip(comparison.values, line, strict=True))
        table, plot = _csv(comparison.over, pairs), sweep_plot(content)
    return {"comparison.json": to_json(content).encode(), "comparison.csv": table.encode(), "comparison.png": plot}


def _csv(over: str, pairs: Iterable[tuple[float | None, ComparisonRow]]) -> str:
    """An empty epsilon is a theorem that does not apply. A row's `guarantee` is "yes"; "no": its epsilon is only a claim, or there is
    none; "none": it holds and bounds nothing."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*([over] if over else []), *_COLUMNS])
    for value, row in pairs:
        writer.writerow([*([value] if over else []), *_fields(row)])
    return text.getvalue()


def _fields(row: ComparisonRow) -> list[Any]:
    epsilon = "" if row.epsilon is None else repr(row.epsilon)
    guarantee = "yes" if row.proves else "none" if row.usable else "no"
    return [row.theorem, epsilon, row.status, guarantee, row.reason, row.covers, " ".join(row.citations)]
