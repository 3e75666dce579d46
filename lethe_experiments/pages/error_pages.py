"""Errors of matrix mechanisms: tables and a plot."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

_NUMBERS = ("error", "at_least", "published")
# Colours of Okabe and Ito, which colour-blind readers can tell apart; markers say the same once more.
_LOOKS = {
    "independent": ("#444444", "s"),
    "binary tree": ("#E69F00", "^"),
    "square root": ("#009E73", "D"),
    "banded": ("#0072B2", "o"),
    "buffered": ("#CC79A7", "v"),
    "dense": ("#D55E00", "P"),
}


def error_tables(content: dict[str, Any]) -> list[Table]:
    """One table a number of passes, a section a number of steps, a line a mechanism and a measure."""
    tables: list[Table] = []
    for passes in dict.fromkeys(row["passes"] for row in content["rows"]):
        rows = sorted((row for row in content["rows"] if row["passes"] == passes), key=lambda row: row["steps"])
        table = Table(title=f"{passes} pass{'es' if passes > 1 else ''}", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.add_column("steps", justify="right", no_wrap=True)
        for name in ("mechanism", "measure"):
            table.add_column(name, no_wrap=True, overflow="ignore")
        for name in _NUMBERS:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("published as", overflow="fold")
        for place, row in enumerate(rows):
            numbers = ["" if row[name] is None else f"{row[name]:.5g}" for name in _NUMBERS]
            words = [str(row["steps"]), row["mechanism"], row["measure"], *numbers, row["published_as"] or ""]
            table.add_row(*map(escape, words), end_section=place + 1 == len(rows) or rows[place + 1]["steps"] != row["steps"])
        tables.append(table)
    return tables


def error_plot(content: dict[str, Any]) -> bytes:
    """Mean error against steps, of one pass, and against passes, of the most steps that several passes have."""
    from lethe.report.drawing import Figure, clear, png  # plots need the optional matplotlib

    rows = [row for row in content["rows"] if row["measure"] == "mean" and row["mechanism"] in _LOOKS]
    largest = max((row["steps"] for row in rows if row["passes"] > 1), default=max(row["steps"] for row in rows))
    panels = (
        ("steps", "steps, one pass", [row for row in rows if row["passes"] == 1]),
        ("passes", f"passes, {largest} steps", [row for row in rows if row["steps"] == largest]),
    )
    figure = Figure(figsize=(11, 5), layout="constrained")
    for axes, (key, label, shown) in zip(figure.subplots(1, 2), panels, strict=True):
        axes.set_xscale("log")
        axes.set_yscale("log")
        for name, (colour, marker) in _LOOKS.items():
            line = sorted({row[key]: row["error"] for row in shown if row["mechanism"] == name}.items())
            if line:
                axes.plot(*zip(*line, strict=True), color=colour, marker=marker, markersize=5, label=name)
        if key == "steps":
            least = sorted({row["steps"]: row["at_least"] for row in shown}.items())
            axes.plot(*zip(*least, strict=True), color="#000000", linestyle=":", label="no mechanism is below")
            axes.legend(frameon=False, fontsize="small")
        axes.set_xlabel(label)
        axes.set_ylabel("mean error at sensitivity 1")
        clear(axes)
    figure.suptitle(content["title"], fontsize="medium")
    return png(figure)
