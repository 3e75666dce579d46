"""The table of `lethe verify`."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


def verification_table(answers: Iterable[tuple[str, bool, str]]) -> Table:
    """A line for each question, whether the answer is yes, and the reason. Reasons are wrapped, never cut."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for question, yes, why in answers:
        table.add_row(Text(question), Text("yes" if yes else "no", style="green" if yes else "red"), Text(why))
    return table
