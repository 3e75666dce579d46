"""How every plot is drawn: one function with settings. The only import of matplotlib, without pyplot: no window, no global state.

plots.py and the HTML format call it with panels (model.py), so that every picture looks alike; `png` and `svg` give a file's bytes.
"""

import io
from collections.abc import Sequence
from typing import Any

from lethe.errors import MissingExtraError
from lethe.report.model import COLOURS, End, Panel

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator
except ImportError as error:
    raise MissingExtraError("plots need matplotlib, which is not installed.", remedy='pip install "lethe-dp[report]"') from error

# In a page: its own colours, its words as words in the fonts of whoever looks at it, and the same file every time.
_PAGE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lethe",
    "font.size": 10.5,
    "axes.unicode_minus": False,
    "lines.linewidth": 1.8,
    "legend.fontsize": 9.5,
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), COLOURS["muted"]),
    **dict.fromkeys(("axes.labelcolor", "legend.labelcolor"), COLOURS["ink"]),
}


def plotted(panels: Sequence[Panel], size: tuple[float, float], title: str = "", *, share: bool = False, grid: str = "#eeeeee") -> Figure:
    """A column of panels, `size` inches across and up, which `share` the axis across or not."""
    figure = Figure(figsize=size, layout="constrained")
    for axes, panel in zip(figure.subplots(len(panels), squeeze=False, sharex=share)[:, 0], panels, strict=True):
        for line in panel.series:
            axes.plot(line.across, line.up, **{"label": line.name or "_", **line.look})
        if panel.shaded:
            axes.fill_between(panel.series[-1].across, panel.series[-1].up, color=COLOURS["alert"], alpha=0.08, linewidth=0)
        axes.set(**dict.fromkeys((f"{axis}scale" for axis in panel.log), "log"))
        axes.set(**panel.settings)
        for axis in panel.log:
            _plain_numbers(axes.xaxis if axis == "x" else axes.yaxis)
        if panel.whole:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        for note in panel.notes:
            axes.annotate(**note)
        clear(axes, grid)
        label_ends(axes, panel.ends)
        if panel.legend is not None and any(line.name for line in panel.series):
            (figure if panel.legend["loc"].startswith("outside") else axes).legend(frameon=False, **panel.legend)
    if title:
        figure.suptitle(title, fontsize="medium")
    if any(panel.ends for panel in panels):
        figure.draw_without_rendering()  # the layout decides where names have room
    return figure


def page_svg(panel: Panel, height: float) -> str:
    """An SVG that is to stand in a page, 4.6 inches wide."""
    with rc_context(_PAGE):
        return svg(plotted([panel], (4.6, height), grid=COLOURS["grid"]))


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Names in the right margin, spread so that none covers another, each tied to the end of its line."""
    if not ends:
        return
    scale = axes.transData.transform
    bottom, top = axes.transAxes.transform([(0, 0), (0, 1)])[:, 1]
    ordered = sorted(ends, key=lambda end: end.height)
    heights = [float((scale((end.where, end.height))[1] - bottom) / (top - bottom)) for end in ordered]
    gap = min(0.046, 1.0 / len(ends))
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + gap)
    heights[-1] = min(heights[-1], 1.0)
    for index in reversed(range(len(heights) - 1)):
        heights[index] = min(heights[index], heights[index + 1] - gap)
    for end, height in zip(ordered, heights, strict=True):
        axes.annotate(
            end.name,
            (end.where, end.height),
            xytext=(1.035, height),
            textcoords="axes fraction",
            va="center",
            fontsize="small",
            color=end.colour,
            fontweight="bold" if end.bold else "normal",
            arrowprops={"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def _plain_numbers(axis: Axis) -> None:
    """10 instead of 10^1 along a logarithmic axis, and as many numbers as there is room for."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_formatter("{x:g}")
    if high <= 3 * low:
        axis.set_major_locator(MaxNLocator(6))
        axis.set_minor_locator(NullLocator())
        return
    axis.set_minor_locator(LogLocator(subs=(2, 3, 5, 7) if high <= 20 * low else (2, 5)))
    axis.set_minor_formatter("{x:g}" if high <= 3e4 * low else NullFormatter())
    axis.set_tick_params(which="minor", labelsize="small")


def clear(axes: Axes, grid: str = "#eeeeee") -> None:
    """A pale grid behind the data, and no frame above and to the right."""
    axes.grid(color=grid)
    axes.set_axisbelow(True)
    open_sides(axes)


def open_sides(axes: Axes) -> None:
    """No frame above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def svg(figure: Figure) -> str:
    """The figure as the text of an SVG file, without a date."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return buffer.getvalue()
