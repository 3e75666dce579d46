"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lethe.calculus.upward_formatting import shown
from lethe.certificates.comparison import Comparison, ComparisonRow, Sweep

_CLAIM_STYLES = {"refuted": "red", "one-sided": "red", "proof-gap": "yellow", "lower-bound": "yellow"}
_CLAIMS = "in parentheses: a claim, not a guarantee"
_PROVED, _BY = "smallest proved", "proved by"
_VALUE_WIDTH = 11  # "(0.00123)" between two spaces


def comparison_tables(comparison: Comparison, *, applicable: bool = False) -> list[Table | Text]:
    """What the theorems say: a line for the one used, those that hold, those that only claim; then those refused, grouped by the reason.

    Args:
        comparison: what is shown.
        applicable: leave out those refused.
    """
    said = [row for row in comparison.rows if row.epsilon is not None]
    notes = comparison.warnings
    notes += [_CLAIMS] if any(_claims(row) for row in said) else []
    refused: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.epsilon is None:
            refused.setdefault(row.reason, []).append(row.theorem)
    hidden = sum(map(len, refused.values())) if applicable else 0
    notes += [f"{hidden} more do{'es' if hidden == 1 else ''} not apply"] if hidden else []
    notes += comparison.notes
    # Names stand whole, however narrow the page: people search for them. What gives way is the reason.
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("theorem", no_wrap=True, overflow="ignore")
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("why", overflow="fold")
    for row, after in zip(said, [*said[1:], None], strict=True):
        status = f"[{_CLAIM_STYLES[row.status]}]{row.status}[/]" if _claims(row) else row.standing
        last = after is not None and after.usable != row.usable
        style = "bold" if row.status == "used" else ""
        table.add_row(escape(row.theorem), row.shown(), status, escape(row.reason), style=style, end_section=last)
    page: list[Table | Text] = [Text(comparison.title), table, *map(Text, notes)]
    if applicable or not refused:
        return page
    reasons = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    reasons.add_column("refused", no_wrap=True, overflow="ignore")
    reasons.add_column("the hypothesis that fails", overflow="fold")
    for reason, names in refused.items():
        reasons.add_row(escape("\n".join(names)), escape(reason), end_section=True)
    return [*page, reasons]


def sweep_tables(sweep: Sweep, width: int = 100) -> list[Table | Text]:
    """One line a theorem that says anything, one column a value; several tables where the values do not fit side by side in `width`."""
    lines = sorted((line for line in sweep.lines if any(row.epsilon is not None for row in line)), key=_line_rank)
    used = dict.fromkeys(row.theorem for row in sweep.certified if row.proves)
    letters = dict(zip(used, _letters(len(used)), strict=True))
    names = max(len(name) for name in (sweep.axis, _PROVED, *(line[0].theorem for line in lines)))
    across = max(1, (width - names) // _VALUE_WIDTH)
    across = -(-len(sweep.values) // -(-len(sweep.values) // across))  # the same number in each table, but for the last
    page: list[Table | Text] = [Text(sweep.title)]
    for first in range(0, len(sweep.values), across):
        part = slice(first, first + across)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(sweep.axis, overflow="ignore", no_wrap=True, min_width=names)
        for value in sweep.values[part]:
            table.add_column(f"{value:g}" if isinstance(value, float) else str(value), justify="right", no_wrap=True)
        certified = sweep.certified[part]
        table.add_row(_PROVED, *map(_cell, certified))
        table.add_row(_BY, *(letters[row.theorem] if row.proves else "nothing" for row in certified), end_section=True)
        for line in lines:
            table.add_row(escape(line[0].theorem), *map(_cell, line[part]))
        page.append(table)
    by = [f"{_BY}: {', '.join(f'{letter} = {name}' for name, letter in letters.items())}"] if letters else []
    return [*page, *map(Text, (*by, *sweep.notes))]


def _letters(count: int) -> list[str]:
    """a to z, then a1 to z1 and so on: a theorem's name is wider than a number."""
    return [chr(ord("a") + place % 26) + (str(place // 26) if place >= 26 else "") for place in range(count)]


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


def _claims(row: ComparisonRow) -> bool:
    return row.epsilon is not None and not row.usable


def _line_rank(line: tuple[ComparisonRow, ...]) -> tuple[bool, float]:
    """Guarantees before claims, each by the last epsilon that they give."""
    last = [row for row in line if row.epsilon is not None][-1]
    return _claims(last), last.epsilon or 0.0


def _cell(row: ComparisonRow) -> str:
    text = row.shown(3)
    if _claims(row):
        return f"[{_CLAIM_STYLES[row.status]}]{text}[/]"
    return f"[bold]{text}[/]" if row.status == "used" else text


def allocation_table(content: dict[str, Any]) -> Table:
    """The schedules that were tried: the noise that each leaves in the last model, its harm beside the chosen one's; or why not."""
    caption = f"noise: standard deviation in a coordinate of the last model; harm: its square; {content['influence']}"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=caption)
    table.add_column("schedule", no_wrap=True)
    table.add_column("noise", justify="right", no_wrap=True)
    table.add_column("harm", justify="right", no_wrap=True)
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("what it is, and what proves it", overflow="fold")
    for row in content["candidates"]:
        style = "bold" if row["schedule"] == content["schedule"] else "dim" if row["needs"] else ""
        if row["harm"] is None:
            table.add_row(row["schedule"], "-", "-", "-", escape(row["why"]), style="dim")
        else:
            how = f"{row['words']} ({row['theorem']})"
            table.add_row(row["schedule"], f"{row['noise']:.4g}", f"{row['harm']:.4g}", shown(row["epsilon"]), escape(how), style=style)
    return table
