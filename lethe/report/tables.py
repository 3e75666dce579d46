"""Tables for people, from data computed elsewhere."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lethe.calculus.shown import shown
from lethe.comparison import Comparison, Row, Sweep

_CLAIM_STYLES = {"refuted": "red", "one-sided": "red", "proof-gap": "yellow", "lower-bound": "yellow"}
_CLAIMS = "in parentheses: a claim, not a guarantee"
_PROVED = "smallest proved"
_VALUE_WIDTH = 11  # "(0.00123)" between two spaces


def comparison_table(comparison: Comparison) -> Table:
    """One line a theorem: the one used, those that hold, those that only claim; then those refused, a reason for each group of them."""
    table = Table(title=escape(comparison.title), caption=_CLAIMS if any(_claims(row) for row in comparison.rows) else None)
    table.add_column("theorem", overflow="fold")
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("why", overflow="fold")
    before: Row | None = None
    for row in comparison.rows:
        if row.epsilon is None:
            continue
        if before is not None and before.usable != row.usable:
            table.add_section()
        before = row
        status = f"[{_CLAIM_STYLES[row.status]}]{row.status}[/]" if _claims(row) else row.status
        table.add_row(escape(row.theorem), row.shown(), status, escape(row.reason), style="bold" if row.status == "used" else "")
    refused: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.epsilon is None:
            refused.setdefault(row.reason, []).append(row.theorem)
    for reason, names in refused.items():
        table.add_section()
        table.add_row(escape("\n".join(names)), "-", "refused", escape(reason), style="dim")
    return table


def sweep_tables(sweep: Sweep, width: int = 100) -> list[Table]:
    """One line a theorem that says anything, one column a value; several tables where the values do not fit side by side in `width`."""
    lines = sorted((line for line in sweep.lines if any(row.epsilon is not None for row in line)), key=_line_rank)
    silent = len(sweep.lines) - len(lines)
    notes = [f"{silent} more do{'es' if silent == 1 else ''} not apply at any of these values"] if silent else []
    if any(_claims(row) for line in lines for row in line):
        notes.append(_CLAIMS)
    names = max(len(name) for name in (sweep.axis, _PROVED, *(line[0].theorem for line in lines)))
    across = max(1, (width - names) // _VALUE_WIDTH)
    across = -(-len(sweep.values) // -(-len(sweep.values) // across))  # the same number in each table, but for the last
    tables: list[Table] = []
    for first in range(0, len(sweep.values), across):
        part = slice(first, first + across)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(sweep.axis, overflow="fold", min_width=names)
        for value in sweep.values[part]:
            table.add_column(f"{value:g}" if isinstance(value, float) else str(value), justify="right", no_wrap=True)
        table.add_row(_PROVED, *map(_cell, sweep.certified[part]), end_section=True)
        for line in lines:
            table.add_row(escape(line[0].theorem), *map(_cell, line[part]))
        tables.append(table)
    tables[-1].caption = "; ".join(notes) or None
    return tables


def demo_table(content: dict[str, Any]) -> Table:
    """The demo's table: one line a way of batching and accounting."""
    table = Table(title=content["title"])
    for column in ("", "batches and accounting", "noise z", "epsilon", "test accuracy", "seeds: lowest to highest"):
        table.add_column(column, justify="left" if column in ("", "batches and accounting") else "right", overflow="fold")
    for row in content["rows"]:
        table.add_row(
            row["letter"],
            row["label"],
            "-" if row["noise_multiplier"] is None else f"{row['noise_multiplier']:.4g}",
            _epsilon(row["epsilon"]),
            f"{row['accuracy_mean']:.3f} ± {row['accuracy_std']:.3f}",
            f"{row['accuracy_min']:.3f} to {row['accuracy_max']:.3f}",
        )
    return table


def _epsilon(epsilon: float | str | None) -> str:
    return "-" if epsilon is None else shown(float(epsilon))


def _claims(row: Row) -> bool:
    return row.epsilon is not None and not row.usable


def _line_rank(line: tuple[Row, ...]) -> tuple[bool, float]:
    """Guarantees before claims, each by the last epsilon that they give."""
    last = [row for row in line if row.epsilon is not None][-1]
    return _claims(last), last.epsilon or 0.0


def _cell(row: Row) -> str:
    text = row.shown(3)
    if _claims(row):
        return f"[{_CLAIM_STYLES[row.status]}]{text}[/]"
    return f"[bold]{text}[/]" if row.status == "used" else text
