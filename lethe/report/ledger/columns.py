"""The columns of every table of reservations."""

from __future__ import annotations

from typing import Any

from lethe.calculus.upward_formatting import shown

COLUMNS = ("number", "state", "at", "by", "why", "priced as epsilon", "what", "guarantee")


def cells(line: dict[str, Any]) -> tuple[str, ...]:
    """A reservation in these columns.

    Args:
        line: an entry of `reservations` in `Account.to_dict`.
    """
    epsilon = line.get("epsilon")
    alone = "" if epsilon is None else shown(epsilon)
    return (str(line["number"]), line["state"], line["at"][:19], line["by"], line["why"], alone, line["what"], line["guarantee"])
