"""Shared drawing code of all plots, the small pictures of a report, and the only import of matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from lethe.errors import MissingExtraError
from lethe.report.model import COLOURS

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


def svg(figure: Figure) -> str:
    """The figure as the text of an SVG file, without a date."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return buffer.getvalue()


class Line(NamedTuple):
    """A line of a small picture: its points, where there are any, its colour, and its name in the legend, if it needs one."""

    across: Sequence[float]
    up: Sequence[float]
    colour: str = "main"
    name: str = ""
    look: dict[str, Any] = {}  # noqa: RUF012


def small_picture(
    lines: Sequence[Line], across: str, up: str, *, height: float = 3.1, log: bool = False, shade: bool = False, nothing: str = ""
) -> str:
    """An SVG in the colours of the page, with its words as words, in the fonts of whoever looks at it; the same every time.

    It is so wide that words stay readable on a telephone. The axis across is logarithmic or of whole steps; or else (`shade`) both axes
    are of rates, and what is below the last line is shaded: no attack can be there. `nothing` is written where there is no line.
    """
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "lethe", "font.size": 10.5, "axes.unicode_minus": False}):
        figure = Figure(figsize=(4.6, height), layout="constrained")
        axes = figure.subplots()
        axes.grid(color=COLOURS["grid"], linewidth=0.8)
        axes.set_axisbelow(True)
        open_sides(axes)
        for side in ("bottom", "left"):
            axes.spines[side].set_color(COLOURS["muted"])
        axes.tick_params(colors=COLOURS["muted"], which="both")
        shown = [line for line in lines if len(line.across)]
        for line in shown:
            axes.plot(line.across, line.up, **{"color": COLOURS[line.colour], "linewidth": 1.8, "label": line.name, **line.look})
        if not shown:
            axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", va="center", color=COLOURS["alert"])
        if shade:
            axes.fill_between(lines[-1].across, lines[-1].up, color=COLOURS["alert"], alpha=0.08, linewidth=0)
            axes.set(xlim=(0, 1), ylim=(0, 1.005), aspect="equal")
        else:
            axes.set_ylim(0, 1.1 * max((max(line.up) for line in shown), default=1.0) or 1.0)
            axes.set_xscale("log" if log else "linear")
        if not log and not shade:
            axes.set_xlim(0, 1.03 * max((max(line.across) for line in shown), default=1.0))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        if any(line.name for line in shown):
            axes.legend(frameon=False, fontsize=9.5, labelcolor=COLOURS["ink"], loc="upper right" if shade else "best")
        axes.set_xlabel(across, color=COLOURS["ink"])
        axes.set_ylabel(up, color=COLOURS["ink"])
        return svg(figure)
