"""Blocks, sweeps and plans as tables of the terminal; comparisons and reservations as files.

The commands print results by `terminal`; `lethe compare` and `lethe ledger export` write the files.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lethe.calculus.upward_formatting import shown
from lethe.certificates.comparison import Comparison, ComparisonRow
from lethe.certificates.sweep import Sweep
from lethe.documents.strict import to_json
from lethe.report import figure_of, model
from lethe.report.sections.evidence import RESERVED, reservation_cells

_STYLES = {"danger": "bold red", "strong": "bold", "quiet": "yellow", "": ""}
_LEVELS = {"danger": "red", "caution": "yellow", "plain": "green"}
_PROVED, _BY = "smallest proved", "proved by"
_COLUMNS = ("theorem", "epsilon", "status", "guarantee", "reason", "covers", "citations")  # of comparison.csv
_VALUE_WIDTH = 11  # "(0.00123)" between two spaces


def terminal(blocks: Iterable[model.Block]) -> list[RenderableType]:
    """Blocks for the terminal, pictures left out. Names and numbers stand whole, however narrow the page: the last column gives way."""
    page: list[RenderableType] = []
    for block in blocks:
        match block:
            case str():
                page.append(Text(block))
            case model.Heading():
                page.append(Text(block.words, style="bold"))
            case model.Items():
                page += [Text(f"- {entry}") for entry in block.entries]
            case model.Facts():
                page += [Text(f"{term}: {words}") for term, words in block.rows]
            case model.Code():
                page.append(Text(block.text))
            case model.Notice():
                colour = _LEVELS[block.level]
                words = Text(block.words, style=f"bold {colour}")
                page.append(Panel(words, border_style=colour, title=block.heading, title_align="left"))
            case model.Table():
                page.append(_table(block))
            case model.Picture():
                pass
    return page


def _table(block: model.Table, **around: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, **around)  # pyright: ignore[reportArgumentType]
    last = len(block.head) - 1
    for index, name in enumerate(block.head):
        justify = "right" if index in block.numbers else "left"
        table.add_column(name, justify=justify, no_wrap=index in (0, *block.numbers), overflow="ignore" if index == 0 < last else "fold")
    for row, mark in zip(block.rows, block.marks or [""] * len(block.rows), strict=True):
        table.add_row(*map(escape, row), style=_STYLES[mark])
    return table


def sweep_tables(sweep: Sweep, width: int = 100) -> list[RenderableType]:
    """One line a theorem that says anything, one column a value; several tables where the values do not fit side by side in `width`."""
    lines = sorted((line for line in sweep.lines if any(row.epsilon is not None for row in line)), key=_line_rank)
    used = dict.fromkeys(row.theorem for row in sweep.certified if row.proves)
    letters = {name: chr(ord("a") + index % 26) + (str(index // 26) if index >= 26 else "") for index, name in enumerate(used)}
    names = max(len(name) for name in (sweep.axis, _PROVED, *(line[0].theorem for line in lines)))
    across = max(1, (width - names) // _VALUE_WIDTH)
    across = -(-len(sweep.values) // -(-len(sweep.values) // across))  # the same number in each table, but for the last
    page: list[model.Block] = [sweep.title]
    for first in range(0, len(sweep.values), across):
        part = slice(first, first + across)
        head = (sweep.axis.ljust(names), *(f"{value:g}" if isinstance(value, float) else str(value) for value in sweep.values[part]))
        proved = sweep.certified[part]
        rows = [
            (_PROVED, *(row.formatted_epsilon(3) for row in proved)),
            (_BY, *(letters[row.theorem] if row.proves else "nothing" for row in proved)),
        ]
        rows += [(line[0].theorem, *(row.formatted_epsilon(3) for row in line[part])) for line in lines]
        marks = ("strong", "strong", *("quiet" if _line_rank(line)[0] else "" for line in lines))
        page.append(model.Table("", head, tuple(rows), numbers=tuple(range(1, len(head))), marks=marks))
    by = [f"{_BY}: {', '.join(f'{letter} = {name}' for name, letter in letters.items())}"] if letters else []
    return terminal([*page, *by, *sweep.notes])


def _line_rank(line: tuple[ComparisonRow, ...]) -> tuple[bool, float]:
    """Guarantees before claims, each by the last epsilon that they give."""
    last = [row for row in line if row.epsilon is not None][-1]
    return not last.usable, last.epsilon or 0.0


def demo_table(content: dict[str, Any]) -> RenderableType:
    """The demo's table: one line a way of batching and accounting."""
    rows = tuple(
        (
            row["letter"],
            row["label"],
            "-" if row["noise_multiplier"] is None else f"{row['noise_multiplier']:.4g}",
            "-" if row["epsilon"] is None else shown(float(row["epsilon"])),
            f"{row['accuracy_mean']:.3f} ± {row['accuracy_std']:.3f}",
            f"{row['accuracy_min']:.3f} to {row['accuracy_max']:.3f}",
        )
        for row in content["rows"]
    )
    head = ("", "batches and accounting", "noise z", "epsilon", "test accuracy", "seeds: lowest to highest")
    return _table(model.Table("", head, rows, numbers=(2, 3, 4, 5)), title=content["title"])


def allocation_table(content: dict[str, Any]) -> RenderableType:
    """The schedules that were tried: the noise that each leaves in the last model, its harm beside the chosen one's; or why not."""
    rows: list[tuple[str, ...]] = []
    for row in content["candidates"]:
        tried = ("-", "-", "-", row["why"])
        if row["harm"] is not None:
            tried = (f"{row['noise']:.4g}", f"{row['harm']:.4g}", shown(row["epsilon"]), f"{row['words']} ({row['theorem']})")
        rows.append((row["schedule"], *tried))
    marks = tuple("strong" if row["schedule"] == content["schedule"] else "" for row in content["candidates"])
    head = ("schedule", "noise", "harm", "epsilon", "what it is, and what proves it")
    harm = f"noise: standard deviation in a coordinate of the last model; harm: its square; {content['influence']}"
    return _table(model.Table("", head, tuple(rows), numbers=(1, 2, 3), marks=marks), caption=harm)


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
