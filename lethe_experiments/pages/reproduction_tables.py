"""Tables of reproductions for people, from data computed elsewhere."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lethe.calculus.upward_formatting import shown
from lethe_experiments.pages.epoch_tables import epoch_tables
from lethe_experiments.pages.error_pages import error_tables
from lethe_experiments.pages.hong_pages import influence_tables, order_tables
from lethe_experiments.pages.rate_pages import rate_tables

_MOST_POINTS = 5
_NUMBER, _GAP = 8, 2  # characters of "(2.6e+04" and between columns
_DIGITS = 6  # of the published numbers
_LABELS = ("algorithm", "run", "method")
_CLAIM = "in parentheses: as printed, which is false"
_ROUNDED = "rdp_over_alpha to the nearest, epsilon rounded up"
_NEAREST = "published, recomputed: to the nearest; last_iterate, shuffled_once: rounded up"


def reproduction_tables(content: dict[str, Any], width: int = 140) -> list[Table]:
    """A reproduction's numbers: one line a curve and a column for some numbers of steps, or one line a published number, or
    one line a method and a number of records, or one line a number of epochs.

    Labels stand whole, however narrow the page is: where `width` is short, there are fewer numbers of steps, or no differences.
    """
    if content["shape"] == "bounds":
        return [_bounds(content)]
    if content["shape"] == "sizes":
        return [_sizes(content)]
    if content["shape"] == "epochs":
        return epoch_tables(content)
    others = {"errors": error_tables, "orders": order_tables, "influence": influence_tables, "rates": rate_tables}
    if content["shape"] in others:
        return others[content["shape"]](content)
    return _curves(content, width) if content["shape"] == "panels" else [_pairs(content, width)]


def list_table(titles: dict[str, str]) -> Table:
    """What can be reproduced."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True, overflow="ignore")
    table.add_column("what it is", overflow="fold")
    for name, title in titles.items():
        table.add_row(escape(name), escape(title))
    return table


def _curves(content: dict[str, Any], width: int) -> list[Table]:
    tables: list[Table] = []
    for panel in dict.fromkeys(row["panel"] for row in content["rows"]):
        rows = [row for row in content["rows"] if row["panel"] == panel]
        lines: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            lines.setdefault(row["curve"], []).append(row)
        every = sorted({row["steps"] for row in rows})
        last = f"epsilon at {every[-1]}"
        room = width - max(map(len, lines)) - len(last) - 2 * _GAP
        steps = _spread(every, max(2, min(_MOST_POINTS, room // (_NUMBER + _GAP))))
        claims = any(row["standing"] == "refuted" for row in rows)
        table = _table(f"{panel}: rdp_over_alpha after that many steps, and epsilon")
        table.caption = f"{_ROUNDED}\n{_CLAIM}" if claims else _ROUNDED
        table.add_column("curve", no_wrap=True, overflow="ignore")
        for step in steps:
            table.add_column(str(step), justify="right", no_wrap=True)
        table.add_column(last, justify="right", no_wrap=True)
        for name, line in sorted(lines.items(), key=lambda pair: -_last(pair[1])["rdp_over_alpha"]):
            cells = [f"{row['rdp_over_alpha']:.4g}" for step in steps for row in line if row["steps"] == step]
            cells.append(shown(_last(line)["epsilon"]))
            claim = line[0]["standing"] == "refuted"
            style = "bold" if line[0]["ours"] else "dim" if claim else ""
            table.add_row(escape(name), *(f"({cell})" if claim else cell for cell in cells), style=style)
        tables.append(table)
    return tables


def _bounds(content: dict[str, Any]) -> Table:
    """A line a bound: epsilon as printed, false ones in parentheses, of its theorem, and ours of the same run."""
    table = _table(content["title"])
    for name in ("bound", "losses", "assumptions"):
        table.add_column(name, overflow="fold")
    for name in ("as printed", "theorem", "ours"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in content["rows"]:
        rho, proved = row["rho_as_printed"], row["epsilon"]
        printed = "numerical" if rho is None else f"{row['epsilon_as_printed']:.4g}"
        theorem = row["standing"] if proved is None else shown(float(proved))
        words = (row["bound"], row["losses"], row["assumptions"], f"({printed})" if row["false_as_printed"] else printed)
        table.add_row(*map(escape, words), theorem, shown(float(row["ours"])))
    table.caption = f"epsilon; {_CLAIM}"
    return table


def _pairs(content: dict[str, Any], width: int) -> Table:
    """Columns are called as in the data. A narrow page stacks the labels and leaves out the differences."""
    rows = content["rows"]
    by = "passes" if any(row["passes"] is not None for row in rows) else "steps"
    ours = [name for name in ("last_iterate", "shuffled_once") if any(row[name] is not None for row in rows)]
    numbers = [by, "published", "recomputed", "relative_difference", *ours]
    labels = [max(len(name), *(len(row[name]) for row in rows)) for name in _LABELS]
    narrow = sum(labels) + sum(map(len, numbers)) + _GAP * (len(labels) + len(numbers)) > width
    table = _table(content["title"])
    if narrow:
        numbers.remove("relative_difference")
        table.add_column("algorithm, run\nmethod", no_wrap=True, overflow="ignore")
    else:
        for name in _LABELS:
            table.add_column(name, no_wrap=True, overflow="ignore")
    for name in numbers:
        table.add_column(name.replace("_", "_\n") if narrow else name, justify="right", no_wrap=True)
    for place, row in enumerate(rows):
        words = [row[name] for name in _LABELS]
        cells = [f"{words[0]}, {words[1]}\n{words[2]}"] if narrow else words
        cells += [_written(name, row[name]) for name in numbers]
        last = place + 1 == len(rows) or rows[place + 1]["steps"] != row["steps"]
        table.add_row(*map(escape, cells), end_section=last)
    notes = [_NEAREST] if ours else []
    table.caption = "\n".join([*notes, "too narrow a page for relative_difference"] if narrow else notes) or None
    return table


def _sizes(content: dict[str, Any]) -> Table:
    """What each method reached, with its margin, and how far they are apart; accuracies in percent."""
    rows = content["rows"]
    table = _table(content["title"])
    table.add_column("task", no_wrap=True, overflow="ignore")
    table.add_column("records", justify="right", no_wrap=True)
    table.add_column("reading", no_wrap=True, overflow="ignore")
    table.add_column("method", no_wrap=True, overflow="ignore")
    for name in ("T", "gamma", "training\nloss", "test\naccuracy %"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, row in enumerate(rows):
        sign = "+" if row["steps"] is None else ""  # a difference
        loss = _measured(row["training_loss"], row["training_loss_margin"], 1.0, f"{sign}.4f")
        accuracy = _measured(row["test_accuracy"], row["test_accuracy_margin"], 100.0, f"{sign}.2f")
        gamma = "" if row["gamma"] is None else f"{row['gamma']:g}"
        last = place + 1 == len(rows) or (rows[place + 1]["records"], rows[place + 1]["reading"]) != (row["records"], row["reading"])
        words = [row["task"], str(row["records"]), row["reading"], row["method"], str(row["steps"] or ""), gamma, loss, accuracy]
        table.add_row(*map(escape, words), end_section=last)
    return table


def _measured(value: float | str | None, margin: float | None, unit: float, style: str) -> str:
    if value is None:
        return ""
    text = f"{float(value) * unit:{style}}"
    return text if margin is None else f"{text} ± {margin * unit:{style.lstrip('+')}}"


def _table(title: str) -> Table:
    return Table(title=escape(title), box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


def _written(name: str, value: float | None) -> str:
    """What is compared with a published number is rounded as that is, to the nearest; our own guarantees are rounded up."""
    if value is None:
        return ""
    if name == "relative_difference":
        return f"{value:+.1e}"
    return shown(value, _DIGITS) if name in ("last_iterate", "shuffled_once") else f"{value:.{_DIGITS}g}"


def _last(line: list[dict[str, Any]]) -> dict[str, Any]:
    return max(line, key=lambda row: row["steps"])


def _spread(steps: list[int], most: int) -> list[int]:
    """A few of them, the first and the last among them, even in number."""
    if len(steps) <= most:
        return steps
    return [steps[round(place * (len(steps) - 1) / (most - 1))] for place in range(most)]
