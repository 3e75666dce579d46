"""What a report is made of: notices, sections, and a few kinds of blocks that every format knows how to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["danger", "caution", "plain"]


@dataclass(frozen=True, slots=True)
class Notice:
    """What must be read before anything else.

    Args:
        level: "danger": nothing is protected, or something is wrong; "caution": it is only as good as somebody's word; "plain": neither.
        heading: in a few words.
        words: what it means.
    """

    level: Level
    heading: str
    words: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; the first one of a report is set large."""

    words: str
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list; `ordered` where its order matters."""

    entries: tuple[str, ...]
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Terms, each with what is known of it."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a head; the first column names the row, unless `named` says another.

    Args:
        caption: what it shows.
        head: one entry a column.
        rows: one entry a column each.
        numbers: the columns that hold numbers.
        named: the column that names the row.
        marks: of each row a word for its look: "", "danger", "strong" or "quiet"; empty: none.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    named: int = 0
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, made only where the format can show it.

    Args:
        alt: what is to be seen, for whoever does not see it.
        caption: how to read it.
        draw: gives the SVG.
    """

    alt: str
    caption: str
    draw: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Code:
    """Commands to type, or data."""

    text: str


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a part of a section."""

    words: str


Block = Text | Items | Facts | Table | Picture | Code | Notice | Heading


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report with a title of its own.

    Args:
        key: its name in links and in JSON.
        title: what people read.
        blocks: its content.
        data: the same as numbers, for JSON.
    """

    key: str
    title: str
    blocks: tuple[Block, ...]
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """A report in words, before it is written in any format.

    Args:
        title: what it is about.
        subtitle: which version wrote it, and of which run.
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

    def section(self, key: str) -> Section | None:
        """The section of that name, if it applies."""
        return next((one for one in self.sections if one.key == key), None)
