"""Shared drawing code of all plots, and the only import of matplotlib."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from lethe.errors import MissingExtraError

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Axis
    from matplotlib.figure import Figure  # used directly, without pyplot: no window, no display, no global state
    from matplotlib.ticker import LogLocator as LogLocator
    from matplotlib.ticker import MaxNLocator as MaxNLocator
    from matplotlib.ticker import NullFormatter as NullFormatter
    from matplotlib.ticker import NullLocator as NullLocator
except ImportError as error:
    raise MissingExtraError("plots need matplotlib, which is not installed.", remedy='pip install "lethe-dp[report]"') from error


class End(NamedTuple):
    """Where a line ends, and what is written there."""

    where: float
    height: float
    name: str
    colour: str
    bold: bool


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Names in the right margin, spread so that none covers another, each tied to the end of its line."""
    if not ends:
        return
    scale = axes.transData.transform
    bottom, top = axes.transAxes.transform([(0, 0), (0, 1)])[:, 1]
    ordered = sorted(ends, key=lambda end: end.height)
    places = [float((scale((end.where, end.height))[1] - bottom) / (top - bottom)) for end in ordered]
    gap = min(0.046, 1.0 / len(ends))
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + gap)
    places[-1] = min(places[-1], 1.0)
    for index in reversed(range(len(places) - 1)):
        places[index] = min(places[index], places[index + 1] - gap)
    for end, place in zip(ordered, places, strict=True):
        axes.annotate(
            end.name,
            (end.where, end.height),
            xytext=(1.035, place),
            textcoords="axes fraction",
            va="center",
            fontsize="small",
            color=end.colour,
            fontweight="bold" if end.bold else "normal",
            arrowprops={"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def clear(axes: Axes) -> None:
    """A pale grid behind the data, and no frame above and to the right."""
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    open_sides(axes)


def open_sides(axes: Axes) -> None:
    """No frame above and to the right."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


@contextmanager
def text_as_text() -> Iterator[None]:
    """Figures made and written inside keep their words as words, in the fonts of whoever looks at them, and are the same every time."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "lethe", "font.size": 10.5, "axes.unicode_minus": False}):
        yield


def svg(figure: Figure) -> str:
    """The figure as the text of an SVG file, without a date."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return buffer.getvalue()
