"""What a reproduction is: the numbers of a published figure or table, computed again, and what a person should know about them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from lethe.documents.version import __version__
from lethe.errors import InputError

Progress: TypeAlias = Callable[[int, int], None]
"""Told (parts done, parts in all)."""

Cell: TypeAlias = str | float | int | bool | None

MOST_REPEATS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A published figure or table, computed again.

    Args:
        name: as given to `lethe reproduce`.
        title: what it shows, in a line.
        source: where it is published.
        shape: how a person should be shown it: "panels" of curves over the number of steps, "curves" in one panel, "rows" of pairs,
            "bounds" as printed and as proved, "rates" against the number of records, "sizes": what each method reached at each number of
            records, "epochs": bounds from below and above as epochs pass, "errors" of mechanisms against steps and passes, "orders" as
            printed beside what is proved, or the "influence" of each step's noise.
        columns: the names of the entries of a row.
        rows: one tuple a row, in the order of `columns`; None where there is nothing to say.
        notes: what was chosen, what could not be read, what the numbers rest on; a sentence each.
    """

    name: str
    title: str
    source: str
    shape: Literal["panels", "curves", "rows", "bounds", "rates", "sizes", "epochs", "errors", "orders", "influence"]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person may choose of a reproduction that trains; the others take none of it.

    Args:
        data: a file to train on, None: fetched.
        repeats: how often everything is trained, >= 1, None: as the reproduction has it.
        full: the published extent, which takes much longer.
    Raises:
        InputError: a number of repeats that nothing can be done with.
    """

    data: Path | None = None
    repeats: int | None = None
    full: bool = False

    def __post_init__(self) -> None:
        if self.repeats is None:
            return
        try:
            count = 0 if isinstance(self.repeats, bool) else operator.index(self.repeats)
        except TypeError:
            count = 0
        if not 1 <= count <= MOST_REPEATS:
            raise InputError(f"--repeats: got {self.repeats!r}; it needs a whole number from 1 to {MOST_REPEATS}.", remedy="give 5, say.")

    def given(self) -> tuple[str, ...]:
        """The options that were given, as on the command line."""
        wanted = {"--data": self.data is not None, "--repeats": self.repeats is not None, "--full": self.full}
        return tuple(name for name, there in wanted.items() if there)


def _finite(value: Cell) -> Cell:
    return "inf" if isinstance(value, float) and value == math.inf else value
