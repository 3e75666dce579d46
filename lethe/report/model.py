"""What a page is made of: notices, sections, and a few kinds of blocks that every format knows how to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Level = Literal["danger", "caution", "plain"]
COLOURS = {"ink": "#010101", "muted": "#020202", "grid": "#030303", "main": "#040404", "other": "#050505", "alert": "#060606"}
"""Colours to draw with; in a page they are its own, light or dark."""


class Notice(NamedTuple):
    """What must be read before anything else: "danger", nothing is protected or something is wrong; "caution", it is somebody's word."""

    level: Level
    heading: str
    words: str


class Text(NamedTuple):
    """A paragraph; the first one of a report leads, and is set large."""

    words: str
    lead: bool = False


class Heading(NamedTuple):
    """The title of a part of a section."""

    words: str


class Items(NamedTuple):
    """A list."""

    entries: tuple[str, ...]


class Facts(NamedTuple):
    """Terms, each with what is known of it."""

    rows: tuple[tuple[str, str], ...]


class Table(NamedTuple):
    """Rows below a head; the first column names the row. Each row may have a mark for its look: "", "danger", "strong" or "quiet"."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()  # the columns that hold numbers
    marks: tuple[str, ...] = ()


class Picture(NamedTuple):
    """A drawing, with what is to be seen for whoever does not see it; the SVG is made only where the format can show it."""

    alt: str
    caption: str
    draw: Callable[[], str]


class Code(NamedTuple):
    """Commands to type, or text that stands as it is."""

    text: str


Block = Text | Items | Facts | Table | Picture | Code | Notice | Heading


class Section(NamedTuple):
    """A part with a title: its key in links and in JSON, its blocks, and the same as numbers, for JSON."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    data: dict[str, Any]


class Document(NamedTuple):
    """A page in words, before it is written in any format."""

    title: str
    subtitle: str  # which version wrote it, and of which run
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    data: dict[str, Any]  # what no section holds, for JSON
    sources: tuple[tuple[str, str], ...]  # what to cite, (key, text)

    def section(self, key: str) -> Section:
        """The section of that name."""
        return next(one for one in self.sections if one.key == key)
