"""The neighbouring relations in words."""

from __future__ import annotations

from lethe.run.neighbours import NOUNS, Unit
from lethe.run.run import Neighbours

RELATIONS: dict[Neighbours, str] = {"replace_one": "replace one", "zero_out": "zero out one", "add_or_remove": "add or remove one"}

UNITS_SAID: dict[Unit, str] = {
    "record": "one record: a row, text or image, as the data were given. Of a person with several, each is protected by itself",
    "user": "one user, with all of its records: where a record is spoken of below, read user",
}
"""What is protected as a whole, which a page says once, whose other lines are those of the theorems."""


def relation_words(neighbours: Neighbours, unit: Unit) -> str:
    """A relation in words: "replace one"; about users "replace one user"."""
    words = RELATIONS[neighbours]
    return words if unit == "record" else f"{words} {NOUNS[unit][0]}"
