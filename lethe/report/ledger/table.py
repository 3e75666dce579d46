"""An account of a data set as tables of the terminal."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lethe.report.ledger.columns import COLUMNS, cells

_STYLES = {"reserved": "yellow", "started": "yellow", "voided": "dim"}


def account_tables(account: dict[str, Any]) -> list[Table | Text]:
    """What is counted and left of a data set, and a line for each reservation.

    Args:
        account: plain data, `Account.to_dict`.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in ("number", "priced as epsilon") else "left", overflow="fold")
    for line in account["reservations"]:
        table.add_row(*(Text(cell) for cell in cells(line)), style=_STYLES.get(line["state"], ""))
    return [*map(Text, account["title"]), table, Text(f"note: {account['note']}")]
