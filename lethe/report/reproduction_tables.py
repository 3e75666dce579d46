"""Tables of reproductions for people, from data computed elsewhere."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lethe.calculus.shown import shown

_MOST_POINTS = 5
_DIGITS = 6  # of the published numbers
_CLAIM = "in parentheses: as printed, which is false"


def reproduction_tables(content: dict[str, Any]) -> list[Table]:
    """A reproduction's numbers: one line a curve and a column for some numbers of steps, or one line a published number."""
    return _curves(content) if content["shape"] == "panels" else [_pairs(content)]


def list_table(titles: dict[str, str]) -> Table:
    """What can be reproduced."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for name, title in titles.items():
        table.add_row(escape(name), escape(title))
    return table


def _curves(content: dict[str, Any]) -> list[Table]:
    tables: list[Table] = []
    for panel in dict.fromkeys(row["panel"] for row in content["rows"]):
        rows = [row for row in content["rows"] if row["panel"] == panel]
        steps = _spread(sorted({row["steps"] for row in rows}))
        lines: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            lines.setdefault(row["curve"], []).append(row)
        claims = any(row["standing"] == "refuted" for row in rows)
        table = Table(title=f"{panel}: RDP bound / alpha, and epsilon", caption=_CLAIM if claims else None)
        table.add_column("curve", overflow="fold")
        for step in steps:
            table.add_column(f"T = {step:g}", justify="right", no_wrap=True)
        table.add_column("epsilon, last T", justify="right", no_wrap=True)
        for name, line in sorted(lines.items(), key=lambda pair: -_last(pair[1])["rdp_over_alpha"]):
            cells = [f"{row['rdp_over_alpha']:.4g}" for step in steps for row in line if row["steps"] == step]
            cells.append(shown(_last(line)["epsilon"]))
            claim = line[0]["standing"] == "refuted"
            style = "bold" if line[0]["ours"] else "dim" if claim else ""
            table.add_row(escape(name), *(f"({cell})" if claim else cell for cell in cells), style=style)
        tables.append(table)
    return tables


def _pairs(content: dict[str, Any]) -> Table:
    rows = content["rows"]
    table = Table(title=escape(content["title"]), box=SIMPLE_HEAD, pad_edge=False)
    by_passes = any(row["passes"] is not None for row in rows)
    shuffled = any(row["shuffled_once"] is not None for row in rows)
    for name in ("algorithm", "run", "accounting"):
        table.add_column(name, overflow="fold")
    for name in ("passes" if by_passes else "steps", "published", "recomputed", "difference", "last iterate"):
        table.add_column(name, justify="right", no_wrap=True)
    if shuffled:
        table.add_column("shuffled once", justify="right", no_wrap=True)
    for place, row in enumerate(rows):
        cells = [row["algorithm"], row["run"], row["method"], str(row["passes"] if by_passes else row["steps"])]
        cells += [_digits(row["published"]), _digits(row["recomputed"]), f"{row['relative_difference']:+.1e}"]
        cells += [_digits(row["last_iterate"]), *([_digits(row["shuffled_once"])] if shuffled else [])]
        last = place + 1 == len(rows) or rows[place + 1]["steps"] != row["steps"]
        table.add_row(*map(escape, cells), end_section=last)
    return table


def _digits(value: float | None) -> str:
    """To the nearest, as what is published is: the two are compared here."""
    return "" if value is None else f"{value:.{_DIGITS}g}"


def _last(line: list[dict[str, Any]]) -> dict[str, Any]:
    return max(line, key=lambda row: row["steps"])


def _spread(steps: list[int]) -> list[int]:
    """A few of them, the first and the last among them, even in number."""
    if len(steps) <= _MOST_POINTS:
        return steps
    return [steps[round(place * (len(steps) - 1) / (_MOST_POINTS - 1))] for place in range(_MOST_POINTS)]
