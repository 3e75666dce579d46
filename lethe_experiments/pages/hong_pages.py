"""Orders of the excess risk, and the influence of each step's noise: tables and plots."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

# Colours of Okabe and Ito, which colour-blind readers can tell apart; markers say the same once more.
_LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"))


def order_tables(content: dict[str, Any]) -> list[Table]:
    """A table for each of the paper's: a line a method."""
    tables: list[Table] = []
    for number in dict.fromkeys(row["table"] for row in content["rows"]):
        table = Table(title=f"Table {number}: excess risk", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.caption = "order: as printed, constants 1, a bound of nothing"
        table.add_column("method", no_wrap=True, overflow="ignore")
        for name in ("printed T", "order", "proved", "its T"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("as printed", overflow="fold")
        table.add_column("what is wrong with it", overflow="fold")
        for row in content["rows"]:
            if row["table"] == number:
                proved = "" if row["proved"] is None else f"{row['proved']:.3g}"
                numbers = (f"{row['steps_as_printed']:.3g}", f"{row['order']:.2g}", proved, str(row["proved_steps"] or ""))
                table.add_row(*map(escape, (row["method"], *numbers, row["formula"], row["remark"] or "")))
        tables.append(table)
    return tables


def influence_tables(content: dict[str, Any]) -> list[Table]:
    """A line a scale of the data, a column a step; the last influence is 1."""
    steps = list(dict.fromkeys(row["step"] for row in content["rows"]))
    table = Table(title=escape(content["title"]), box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.caption = "influence relative to that of the last step ± standard error; rate: r of the nearest r^(T-t)"
    for name in ("data scale", *(f"step {step}" for step in steps), "last, absolute", "rate"):
        table.add_column(name, justify="right", no_wrap=True)
    for scale, rows in _by_scale(content).items():
        last = rows[-1]["influence"]
        cells = [f"{row['influence'] / last:.2f} ± {row['error'] / abs(last):.2f}" for row in rows]
        table.add_row(f"{scale:g}", *cells, f"{last:.3g}", f"{rows[0]['rate']:.4f}" if rows[0]["rate"] else "none")
    return [table]


def order_plot(content: dict[str, Any]) -> bytes:
    """A line a method: the order as printed, and what is proved."""
    from lethe.report.drawing import Figure, clear, png  # plots need the optional matplotlib

    rows = content["rows"][::-1]
    figure = Figure(figsize=(9.5, 0.3 * len(rows) + 1.9), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    for key, (colour, marker), label in (("order", ("#8a8a8a", "x"), "order as printed, constant 1"), ("proved", _LOOKS[0], "proved")):
        drawn = [(row[key], place) for place, row in enumerate(rows) if row[key] is not None]
        axes.plot(*zip(*drawn, strict=True), marker, color=colour, label=label, markersize=6)
    axes.set_yticks(range(len(rows)), [f"Table {row['table']}, {row['method']}" for row in rows], fontsize="small")
    axes.set_xlabel("excess risk, initial gap 1")
    axes.legend(frameon=False, fontsize="small")
    figure.suptitle(content["title"], fontsize="medium")
    clear(axes)
    return png(figure)


def influence_plot(content: dict[str, Any]) -> bytes:
    """Influence against the step, a line a scale, with standard errors, and the nearest exponential dashed."""
    from lethe.report.drawing import Figure, clear, png

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_yscale("symlog", linthresh=1.0)
    axes.axhline(0.0, color="#bbbbbb", linewidth=0.8, zorder=1)
    for (scale, rows), (colour, marker) in zip(_by_scale(content).items(), _LOOKS, strict=False):
        steps, errors = [row["step"] for row in rows], [row["error"] for row in rows]
        axes.errorbar(
            steps, [row["influence"] for row in rows], yerr=errors, color=colour, marker=marker, capsize=3, label=f"scale {scale:g}"
        )
        if rate := rows[0]["rate"]:
            middle = np.mean([math.log(row["influence"]) - math.log(rate) * (row["steps"] - row["step"]) for row in rows])
            axes.plot(steps, [math.exp(middle) * rate ** (row["steps"] - row["step"]) for row in rows], color=colour, linestyle="--")
    axes.set_xlabel("step t")
    axes.set_ylabel("influence of its noise (loss a unit of variance)")
    axes.legend(frameon=False, fontsize="small")
    figure.suptitle(content["title"].replace(": ", ":\n", 1), fontsize="medium")
    clear(axes)
    return png(figure)


def _by_scale(content: dict[str, Any]) -> dict[float, list[dict[str, Any]]]:
    scales: dict[float, list[dict[str, Any]]] = {}
    for row in content["rows"]:
        scales.setdefault(row["data_scale"], []).append(row)
    return scales
