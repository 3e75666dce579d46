"""The table of a self-test: each trainer, its fault, and whether the audit found it."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table


def self_test_table(rows: list[dict[str, Any]]) -> Table:
    """One line a trainer, red where a fault was missed or one was found where there is none.

    Args:
        rows: those of `SelfTest.to_dict`.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("", "trainer", "broken", "must be", "was", "verdict", "seconds"):
        table.add_column(name, justify="right" if name == "seconds" else "left", overflow="fold")
    for row in rows:
        was = "caught" if row["caught"] else "quiet"
        words = [row["name"], row["trainer"], row["broken"] or "-", row["expected"], was, row["page"]["verdict"], f"{row['seconds']:.1f}"]
        table.add_row(*map(escape, words), style="" if row["right"] else "bold red")
    return table
