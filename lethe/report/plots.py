"""Plots of comparisons and of the demonstration, as PNG bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from lethe.calculus.upward_formatting import shown
from lethe.certificates.comparison import NOT_PRIVATE
from lethe.certificates.sweep import WHOLE
from lethe.report.drawing import (
    Axes,
    Axis,
    End,
    Figure,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    clear,
    label_ends,
    open_sides,
    png,
)

_PRIVATE, _OPEN = "#2a6f97", "#b0b0b0"

# Colours of Okabe and Ito, which colour-blind readers can tell apart. What is no guarantee is hollow besides.
_STATUSES = {
    "used": ("#0072B2", "D", "used: nothing smaller is proved"),
    "looser": ("#56B4E9", "o", "holds, no smaller"),
    "dominated": ("#009E73", "o", "holds, never better than another"),
    "proof-gap": ("#E69F00", "s", "NOT a guarantee: gap in the proof"),
    "one-sided": ("#CC79A7", "p", "NOT a guarantee: one direction only"),
    "refuted": ("#D55E00", "X", "NOT a guarantee: refuted"),
    "lower-bound": ("#777777", "v", "NOT a guarantee: a lower bound"),
}
_GUARANTEES = ("used", "looser", "dominated")
_CLAIMED = tuple(status for status in _STATUSES if status not in _GUARANTEES)
_LINES = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#8C6D31")
_DASHES = ("-", "--", "-.")
_PROVED = "#0072B2"
_PROPORTION = 1000.0
_ABOVE = 1e12  # of the largest that is drawn
_ARROW = 0.035  # of the width of the axes
_CLAIM: dict[str, Any] = {"color": "#8a8a8a", "linestyle": ":", "linewidth": 1.4, "zorder": 2}


def demo_plot(content: dict[str, Any]) -> bytes:
    """The demo's table as bars: mean test accuracy, with a mark for every seed."""
    rows = content["rows"][::-1]
    figure = Figure(figsize=(8.5, 0.55 * len(rows) + 1.3), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        axes.barh(place, row["accuracy_mean"], color=_OPEN if row["epsilon"] == "inf" else _PRIVATE, height=0.62)
        axes.plot(row["accuracies"], [place] * len(row["accuracies"]), "|", color="black", markersize=11)
        axes.annotate(f" {row['accuracy_mean']:.3f}", (0.0, place), color="white", va="center", fontweight="bold")
    axes.set_yticks(range(len(rows)), [f"({row['letter']}) {row['label']}" for row in rows])
    axes.set_xlim(0, 1)
    axes.set_xlabel("test accuracy: mean (bar) and each seed (mark)")
    axes.set_title(content["title"], fontsize="medium", loc="right")
    open_sides(axes)
    return png(figure)


def comparison_figure(content: dict[str, Any]) -> Figure:
    """A comparison as dots: each theorem's epsilon on a logarithmic axis; hollow where it is no guarantee."""
    rows = [row for row in content["rows"] if row["epsilon"] is not None][::-1]
    refused = len(content["rows"]) - len(rows)
    figure = Figure(figsize=(9.5, 0.3 * len(rows) + 2.3), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    low, high = _window((row["epsilon"] for row in rows), [content["epsilon"]])
    axes.set_xlim(low / 1.5, high * (high / low) ** 0.16 * 1.8)  # room for the numbers
    _plain_numbers(axes.xaxis, *axes.get_xlim())
    for place, row in enumerate(rows):
        _dot(axes, row, place, low, high)
    best = content["epsilon"]
    if _drawable(best):
        axes.axvline(best, color=_PROVED, linewidth=1, zorder=0)
    axes.set_yticks(range(len(rows)), [row["theorem"] for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row["ours"] else "normal")
        label.set_color("black" if row["status"] in _GUARANTEES else "#777777")
    axes.set_ylim(-0.7, len(rows) - 0.3)
    clear(axes)
    note = f"; {refused} more do{'es' if refused == 1 else ''} not apply" if refused else ""
    axes.set_xlabel(f"epsilon at delta = {content['delta']:g} (bold: what certify tries{note})")
    for status, (_, marker, meaning) in _STATUSES.items():
        if any(row["status"] == status and _drawable(row["epsilon"]) for row in rows):
            axes.plot([], [], marker, label=meaning, **_marks(status))
    if any(not low <= float(row["epsilon"]) <= high for row in rows):
        axes.plot([], [], marker=r"$\rightarrow$", color="#444444", markersize=12, linestyle="none", label="off the scale: see the number")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    figure.suptitle(content["title"], fontsize="medium")
    if best == "inf":
        _warn(axes)
    return figure


def sweep_figure(content: dict[str, Any]) -> Figure:
    """A sweep as lines, one a theorem that applies: ours thick, what is no guarantee grey and dotted; the smallest proved shaded."""
    values = content["values"]
    every = [row["epsilon"] for line in content["lines"] for row in line["rows"]]
    low, high = _window(every, (point["epsilon"] for point in content["certified"]))

    def fits(epsilon: float | str | None) -> bool:
        return _drawable(epsilon) and low <= epsilon <= high

    def height(epsilon: float | str | None) -> float:
        """What is too large leaves through the top: the axes cut it off; so does what is infinite."""
        return _ABOVE * high if epsilon == "inf" else epsilon if _drawable(epsilon) else math.nan

    lines = [line for line in content["lines"] if any(fits(row["epsilon"]) for row in line["rows"])]
    rest = [line for line in content["lines"] if line not in lines and any(row["epsilon"] is not None for row in line["rows"])]
    far = [_name(line) for line in rest if any(_drawable(row["epsilon"]) for row in line["rows"])]
    boundless = [_name(line) for line in rest if all(row["epsilon"] in (None, "inf") for row in line["rows"])]
    figure = Figure(figsize=(11, max(5.0, 0.24 * len(lines) + 1.5)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_yscale("log")
    axes.set_ylim(low / (high / low) ** 0.05 / 1.1, high * (high / low) ** 0.05 * 1.1)
    if 0 < 3 * min(values) <= max(values):
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis, min(values), max(values))
    elif content["over"] in WHOLE:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends: list[End] = []
    looks = _looks(lines)
    for line, look in zip(lines, looks, strict=True):
        rows = line["rows"]
        # What is a guarantee at some values only changes its look where it stops being one.
        for part, style in ((_GUARANTEES, look), (_CLAIMED, _CLAIM)):
            heights = [height(row["epsilon"]) if row["status"] in part else math.nan for row in rows]
            axes.plot(values, heights, **style, marker="o", markersize=3)
        last = max(place for place, row in enumerate(rows) if fits(row["epsilon"]))
        claims = rows[last]["status"] in _CLAIMED
        name = _name({**line, "rows": rows[: last + 1]})  # with the status that it has where its name stands
        if any(height(row["epsilon"]) > 0 and not fits(row["epsilon"]) for row in rows):
            name += ", off the scale elsewhere"
        ends.append(End(values[last], rows[last]["epsilon"], name, (_CLAIM if claims else look)["color"], rows[last]["ours"]))
    proved = [height(point["epsilon"]) for point in content["certified"]]
    axes.plot(values, proved, color=_PROVED, alpha=0.18, linewidth=9, solid_capstyle="round", zorder=1)
    if content["own"] is not None and min(values) <= content["own"] <= max(values):
        axes.axvline(content["own"], color="#444444", linewidth=0.8, zorder=0)
        axes.annotate("the run", (content["own"], 1.01), xycoords=("data", "axes fraction"), ha="center", fontsize="small")
    label_ends(axes, ends)
    _plain_numbers(axes.yaxis, *axes.get_ylim())
    open_values = [f"{value:g}" for value, point in zip(values, content["certified"], strict=True) if point["epsilon"] == "inf"]
    notes = [f"{what}: {', '.join(names)}" for what, names in (("off the scale", far), ("no bound", boundless)) if names]
    notes += [f"NOT PRIVATE, nothing is proved, at {', '.join(open_values)}"] if 0 < len(open_values) < len(values) else []
    axes.set_xlabel("\n".join([content["axis"], *notes]), wrap=True)
    axes.set_ylabel("epsilon" if content["over"] == "delta" else f"epsilon at delta = {content['delta']:g}")
    meaning = "thick: what certify tries; shaded: the smallest epsilon that is proved; grey and dotted: NOT a guarantee"
    figure.suptitle(f"{content['title']}\n{meaning}", fontsize="medium")
    if len(open_values) == len(values):
        _warn(axes)
    clear(axes)
    return figure


def _warn(axes: Axes) -> None:
    """Above the axes: a plot of nothing but arrows, or of nothing at all, must not look like good news."""
    axes.set_title(NOT_PRIVATE, fontsize="medium", color="#B00000", fontweight="bold", pad=18)


def _window(epsilons: Iterable[float | str | None], proved: Iterable[float | str | None]) -> tuple[float, float]:
    """The epsilons a plot has room for: all but those out of proportion to what is proved, which would press the rest into a corner."""
    best = [epsilon for epsilon in proved if _drawable(epsilon)]
    finite = [epsilon for epsilon in epsilons if _drawable(epsilon)]
    if best:
        low, high = min(best) / _PROPORTION, max(1.0, *best) * _PROPORTION
        finite = [epsilon for epsilon in finite if low <= epsilon <= high]
    return (min(finite), max(finite)) if finite else (0.1, 10.0)


def _dot(axes: Axes, row: dict[str, Any], place: int, low: float, high: float) -> None:
    """One theorem's epsilon with its number; what lies outside `low` to `high` is no dot but an arrow at that edge."""
    epsilon, status = float(row["epsilon"]), row["status"]
    number = "no bound" if epsilon == math.inf else shown(epsilon)
    text = number if status in _GUARANTEES else f"({number})"
    look: dict[str, Any] = {"va": "center", "fontsize": "small", "fontweight": "bold" if status == "used" else "normal"}
    if low <= epsilon <= high:
        axes.plot(epsilon, place, _STATUSES[status][1], **_marks(status))
        axes.annotate(text, (epsilon, place), xytext=(9, 0), textcoords="offset points", **look)
        return
    tip, tail, side = (1.0, 1.0 - _ARROW, "right") if epsilon > high else (0.0, _ARROW, "left")
    arrow = {"arrowstyle": "-|>", "color": _STATUSES[status][0], "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    across = axes.get_yaxis_transform()  # a part of the width, and a place among the lines
    axes.annotate("", (tip, place), xytext=(tail, place), xycoords=across, textcoords=across, arrowprops=arrow)
    axes.annotate(f" {text} ", (tail, place), xycoords=across, ha=side, **look)


def _marks(status: str) -> dict[str, Any]:
    colour = _STATUSES[status][0]
    fill = colour if status in _GUARANTEES else "white"
    return {"color": colour, "markerfacecolor": fill, "markersize": 9 if status == "used" else 7, "markeredgewidth": 1.5}


def _looks(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A look for each line: ours thick and blue; the published ones thin, by colour first, then by dashes."""
    looks: list[dict[str, Any]] = []
    counts = {True: 0, False: 0}
    for line in lines:
        ours = line["rows"][0]["ours"]
        count = counts[ours]
        if ours:
            look = {"color": _PROVED, "linestyle": _DASHES[count % len(_DASHES)], "linewidth": 2.6, "zorder": 3}
        else:
            dash = _DASHES[count // len(_LINES) % len(_DASHES)]
            look = {"color": _LINES[count % len(_LINES)], "linestyle": dash, "linewidth": 1.4, "zorder": 2}
        counts[ours] += any(row["status"] in _GUARANTEES for row in line["rows"])
        looks.append(look)
    return looks


def _name(line: dict[str, Any]) -> str:
    """A theorem's name, with its status where the last thing it says is no guarantee."""
    status = [row["status"] for row in line["rows"] if row["epsilon"] is not None][-1]
    return f"{line['theorem']} ({status})" if status in _CLAIMED else line["theorem"]


def _plain_numbers(axis: Axis, low: float, high: float) -> None:
    """10 instead of 10^1 along a logarithmic axis, and as many numbers as there is room for."""
    axis.set_major_formatter("{x:g}")
    if high <= 3 * low:
        axis.set_major_locator(MaxNLocator(6))
        axis.set_minor_locator(NullLocator())
        return
    axis.set_minor_locator(LogLocator(subs=(2, 3, 5, 7) if high <= 20 * low else (2, 5)))
    axis.set_minor_formatter("{x:g}" if high <= 1e4 * low else NullFormatter())
    axis.set_tick_params(which="minor", labelsize="small")


def _drawable(epsilon: float | str | None) -> TypeGuard[float]:
    """Whether a logarithmic axis has a place for it."""
    return isinstance(epsilon, float) and epsilon > 0
