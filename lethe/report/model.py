"""What a page is made of: notices, sections, and a few kinds of blocks that every format knows how to write. A paragraph is a string.

The sections (sections/*.py) build a `Document` of these blocks, and formats.py and tables.py write them, so that no section knows a format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

COLOURS = {"ink": "#010101", "muted": "#020202", "grid": "#030303", "main": "#040404", "other": "#050505", "alert": "#060606"}
"""Colours to draw with; in a page they are its own, light or dark."""


class Notice(NamedTuple):
    """What must be read before anything else: "danger", nothing is protected or something is wrong; "caution", it is somebody's word."""

    level: Literal["danger", "caution", "plain"]
    heading: str
    words: str


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


class Code(NamedTuple):
    """Commands to type, or text that stands as it is."""

    text: str


class Series(NamedTuple):
    """Points of a plot, how matplotlib draws them, and their name in the legend, if any."""

    across: Any  # lists or arrays
    up: Any
    look: Mapping[str, Any]
    name: str = ""

    @classmethod
    def through(cls, points: Sequence[tuple[Any, float]], look: Mapping[str, Any], name: str = "") -> Series:
        """Through pairs of a place across and one up, if any."""
        across, up = zip(*points, strict=True) if points else ((), ())
        return cls(across, up, look, name)


class End(NamedTuple):
    """Where a line ends, and what is written there."""

    where: float
    height: float
    name: str
    colour: str
    bold: bool


class Panel(NamedTuple):
    """One pair of axes, and all that is drawn between them."""

    series: Sequence[Series]
    settings: Mapping[str, Any]  # of matplotlib's Axes.set
    log: str = ""  # which axes are logarithmic: x, y or both
    whole: bool = False  # whether only whole numbers stand along the axis across
    shaded: bool = False  # below the last line: no attack can be there
    ends: Sequence[End] = ()
    notes: Sequence[Mapping[str, Any]] = ()  # of matplotlib's Axes.annotate
    legend: Mapping[str, Any] | None = None  # of matplotlib's legend


class Picture(NamedTuple):
    """A plot, drawn only where the format can show it, or an SVG; and what is to be seen, for whoever does not see it."""

    caption: str
    plot: Panel | str
    height: float = 3.1  # inches, of 4.6 across: words stay readable on a telephone

    @property
    def alt(self) -> str:
        """The same in words: the axes, what is drawn, and where the numbers are."""
        named = {} if isinstance(self.plot, str) else {"Across": self.plot.settings["xlabel"], "Up": self.plot.settings["ylabel"]}
        axes = "".join(f" {axis}: {words}." for axis, words in named.items() if words)
        return f"{'Picture' if isinstance(self.plot, str) else 'Line plot'}.{axes} {self.caption} The table has the numbers."


Block = str | Items | Facts | Table | Picture | Code | Notice | Heading


class Section(NamedTuple):
    """A part with a title: its key in links and in JSON, its blocks, the same as numbers, for JSON, and after how many blocks a page
    folds the rest away; None: nowhere."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    data: dict[str, Any]
    shown: int | None = None


class Document(NamedTuple):
    """A page in words, before it is written in any format."""

    title: str
    subtitle: str  # which version wrote it, and of which run
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    data: dict[str, Any]  # what no section holds, for JSON
    sources: tuple[tuple[str, str], ...]  # what to cite, (key, text)
    facts: tuple[tuple[str, str], ...] = ()  # of the data, the day, and who ran it, (term, words)

    def section(self, key: str) -> Section:
        """The section of that name."""
        return next(section for section in self.sections if section.key == key)
