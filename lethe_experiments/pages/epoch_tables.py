"""What an attack found and what is proved, as epochs pass: a table for each level of noise."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lethe.audit.statistics.result import rounded_down
from lethe.calculus.upward_formatting import shown

_CAPTION = (
    "estimate: a point estimate, which proves nothing\n"
    "at least: certified, rounded down; at most: the certificate, rounded up\n"
    "in parentheses: published, false as stated"
)


def epoch_tables(content: dict[str, Any]) -> list[Table]:
    """One table a level of noise, a section a setting, a line a number of epochs."""
    tables: list[Table] = []
    for panel in dict.fromkeys(row["noise"] for row in content["rows"]):
        rows = [row for row in content["rows"] if row["noise"] == panel]
        domains = any(row["diameter"] is not None for row in rows)
        table = Table(title=f"{escape(panel)}: epsilon after that many epochs", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.caption = _CAPTION
        for name in ("b", *(["D"] if domains else []), "epochs", "training\nloss", "estimate", "at least", "(published)", "at most"):
            table.add_column(name, justify="right", no_wrap=True)
        for place, row in enumerate(rows):
            words = [str(row["batch_size"]), *([f"{row['diameter']:g}"] if domains else []), str(row["epochs"])]
            words += [_measured(row, "training_loss"), _measured(row, "estimate"), rounded_down(row["certified_bound"])]
            words += [f"({float(row['published']):.4g})", shown(float(row["certificate"]))]
            last = place + 1 == len(rows) or _setting(rows[place + 1]) != _setting(row)
            table.add_row(*words, end_section=last)
        tables.append(table)
    return tables


def _setting(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["batch_size"], row["diameter"]


def _measured(row: dict[str, Any], key: str) -> str:
    value, margin = row[key], row[f"{key}_margin"]
    if value is None:
        return ""
    return f"{float(value):.3f}" if margin is None else f"{float(value):.3f} ± {margin:.3f}"
