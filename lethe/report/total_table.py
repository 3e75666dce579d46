"""The table of `lethe total`."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lethe.accounting.totals import Total


def total_tables(total: Total) -> list[Table | Text]:
    """What holds of all together, a line for each part, and what has to be known beside the numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    # Names stand whole, however narrow the page: they are files.
    table.add_column("part", no_wrap=True, overflow="ignore")
    table.add_column("times", justify="right", no_wrap=True)
    table.add_column("epsilon alone", justify="right", no_wrap=True)
    table.add_column("is", no_wrap=True)
    table.add_column("guarantee", overflow="fold")
    for name, count, epsilon, guarantee, how in total.rows:
        table.add_row(Text(name), count, epsilon, Text(how, style="" if how == "computed" else "yellow"), Text(guarantee))
    return [Text(total.title), table, *map(Text, total.notes)]
