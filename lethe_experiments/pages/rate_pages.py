"""Rates as printed, their constants left out, and bounds with every constant, against the number of records: a table and panels."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lethe.report.drawing import Figure, clear, png

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # of Okabe and Ito


def rate_tables(content: dict[str, Any]) -> list[Table]:
    """A line a rate: its order at each number of records and, below it, what is proved, rounded to the nearest."""
    table = Table(title=escape(content["title"]), box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("losses", "bound", "order"):
        table.add_column(name, overflow="fold")
    for size in dict.fromkeys(row["records"] for row in content["rows"]):
        table.add_column(f"n = {size:.0e}", justify="right", no_wrap=True)
    for line in _lines(content):
        first = line[0]
        cells = [f"{row['order']:.3g}" + ("" if row["proved"] is None else f"\n{row['proved']:.3g}") for row in line]
        table.add_row(*map(escape, (first["losses"], f"{first['bound']},\nfrom {first['direction']}", first["formula"], *cells)))
    table.caption = "above: the order as printed, constants left out; below it: as proved, with every constant"
    return [table]


def rate_plot(content: dict[str, Any]) -> bytes:
    """A panel for each kind of losses: orders dashed, what is proved thick."""
    panels = list(dict.fromkeys(row["losses"] for row in content["rows"]))
    figure = Figure(figsize=(6.2 * len(panels), 6.0), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set_xscale("log")
        axes.set_yscale("log")
        for place, line in enumerate(line for line in _lines(content) if line[0]["losses"] == panel):
            look, sizes = {"color": _COLOURS[place]}, [row["records"] for row in line]
            axes.plot(sizes, [row["order"] for row in line], linestyle="--", label=f"{line[0]['bound']}, order", **look)
            if line[0]["proved"] is not None:
                axes.plot(sizes, [row["proved"] for row in line], linewidth=2.5, label=f"{line[0]['bound']}, proved", **look)
        axes.set_title(f"{panel} losses", fontsize="medium")
        axes.set_xlabel("records n")
        axes.set_ylabel("excess risk (loss)")
        axes.legend(frameon=False, fontsize="small")
        clear(axes)
    figure.suptitle(content["title"], fontsize="medium")
    return png(figure)


def _lines(content: dict[str, Any]) -> list[list[dict[str, Any]]]:
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in content["rows"]:
        lines.setdefault((row["losses"], row["bound"]), []).append(row)
    return list(lines.values())
