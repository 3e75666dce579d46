"""What a page is made of: notices, sections, and a few kinds of blocks that every format knows how to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["danger", "caution", "plain"]
COLOURS = {"ink": "#010101", "muted": "#020202", "grid": "#030303", "main": "#040404", "other": "#050505", "alert": "#060606"}
"""Colours to draw with; in a page they are its own, light or dark."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What must be read before anything else: "danger", nothing is protected or something is wrong; "caution", it is somebody's word."""

    level: Level
    heading: str
    words: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; the first one of a report leads, and is set large."""

    words: str
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a part of a section."""

    words: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Terms, each with what is known of it."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a head; the first column names the row.

    Args:
        caption: what it shows.
        head: one entry a column.
        rows: one entry a column each.
        numbers: the columns that hold numbers.
        marks: of each row a word for its look: "", "danger", "strong" or "quiet"; empty: none.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, with what is to be seen for whoever does not see it; the SVG is made only where the format can show it."""

    alt: str
    caption: str
    draw: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Code:
    """Commands to type, or text that stands as it is."""

    text: str


Block = Text | Items | Facts | Table | Picture | Code | Notice | Heading


@dataclass(frozen=True, slots=True)
class Section:
    """A part with a title: its key in links and in JSON, its blocks, and the same as numbers, for JSON."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """A page in words, before it is written in any format.

    Args:
        title, subtitle: what it is about; which version wrote it, and of which run.
        notices: what stands on top.
        sections: in their order.
        data: what no section holds, for JSON.
        sources: what to cite, (key, text).
    """

    title: str
    subtitle: str
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    data: dict[str, Any]
    sources: tuple[tuple[str, str], ...]

    def section(self, key: str) -> Section:
        """The section of that name."""
        return next(one for one in self.sections if one.key == key)
