"""What a reproduction is: the numbers of a published figure or table, computed again, and what a person should know about them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lethe._version import __version__

Progress: TypeAlias = Callable[[int, int], None]
"""Told (parts done, parts in all)."""

Cell: TypeAlias = str | float | int | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A published figure or table, computed again.

    Args:
        name: as given to `lethe reproduce`.
        title: what it shows, in a line.
        source: where it is published.
        shape: how a person should be shown it: "panels" of curves over the number of steps, "curves" in one panel, or "rows" of pairs.
        columns: the names of the entries of a row.
        rows: one tuple a row, in the order of `columns`; None where there is nothing to say.
        notes: what was chosen, what could not be read, what the numbers rest on; a sentence each.
    """

    name: str
    title: str
    source: str
    shape: Literal["panels", "curves", "rows"]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]

    def records(self) -> list[dict[str, Any]]:
        """The rows with the names of their entries; an infinite number is the text "inf"."""
        return [dict(zip(self.columns, map(_finite, row), strict=True)) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """The reproduction as plain data that JSON can hold."""
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "shape": self.shape,
            "columns": list(self.columns),
            "rows": self.records(),
            "notes": list(self.notes),
            "lethe": __version__,
        }

    def fine_print(self) -> str:
        """The source and the notes, for a person."""
        return "\n".join([f"Source: {self.source}", *(f"- {note}" for note in self.notes)])


def _finite(value: Cell) -> Cell:
    return "inf" if isinstance(value, float) and value == math.inf else value
