"""A planned run as a picture: where its noise is, and how its privacy loss grows."""

from __future__ import annotations

import math
from typing import Any

from lethe.report.drawing import Axes, End, Figure, MaxNLocator, clear, label_ends, png

_COLOURS = {
    "uniform": "#777777",
    "pass_ends": "#56B4E9",
    "exponential": "#E69F00",
    "influence": "#009E73",
    "joint": "#0072B2",
    "correlated": "#CC79A7",
}
_CHOSEN = "#0072B2"
_MARKS_UP_TO = 60  # more points than this are drawn as a line


def schedule_plot(content: dict[str, Any]) -> bytes:
    """Two panels: the noise multiplier of each noisy step, the chosen schedule thick; epsilon had the run stopped earlier.

    Args:
        content: {"title", "schedules": [{"name", "chosen", "steps", "noise_multipliers"}], "cumulative": Cumulative.to_dict()}.
    """
    figure = Figure(figsize=(10, 7), layout="constrained")
    noise, loss = figure.subplots(2, 1, sharex=True)
    _draw_noise(noise, content["schedules"])
    _draw_loss(loss, content["cumulative"])
    figure.suptitle(content["title"], fontsize="medium")
    figure.draw_without_rendering()  # the layout decides where names have room
    return png(figure)


def _draw_noise(axes: Axes, schedules: list[dict[str, Any]]) -> None:
    ends: list[End] = []
    for schedule in sorted(schedules, key=lambda one: one["chosen"]):
        points = [(step, level) for step, level in zip(schedule["steps"], schedule["noise_multipliers"], strict=True) if level > 0]
        steps, levels = [step for step, _ in points], [level for _, level in points]
        few = len(points) <= _MARKS_UP_TO
        colour, width = _COLOURS.get(schedule["name"], _CHOSEN), 2.2 if schedule["chosen"] else 1.2
        axes.plot(steps, levels, "o-" if few else "-", color=colour, linewidth=width, markersize=4 if schedule["chosen"] else 2.5)
        ends.append(End(steps[-1], levels[-1], schedule["name"], colour, schedule["chosen"]))
    axes.set_yscale("log")
    axes.set_ylabel("noise multiplier (steps without noise left out)")
    clear(axes)
    label_ends(axes, ends)


def _draw_loss(axes: Axes, cumulative: dict[str, Any]) -> None:
    ends: list[End] = []
    for name, key, colour, dash in (
        ("every iterate", "every_iterate", "#D55E00", "--"),
        ("last iterate", "last_iterate", _CHOSEN, "-"),
    ):
        points = [(step, value) for step, value in zip(cumulative["steps"], cumulative[key], strict=True) if value != "inf"]
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), dash, color=colour, marker="o", markersize=3)
        ends.append(End(*points[-1], name, colour, key == "last_iterate"))
    missing = [key for key in ("every_iterate", "last_iterate") if all(value == "inf" for value in cumulative[key])]
    if "every_iterate" in missing:
        axes.annotate("all iterates together: no bound (steps without noise)", (0.01, 0.92), xycoords="axes fraction", fontsize="small")
    top = max((end.height for end in ends), default=1.0)
    axes.set_ylim(0, 1.08 * top if math.isfinite(top) else 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(f"epsilon at delta = {cumulative['delta']:g}")
    axes.set_xlabel("steps, had the run stopped there")
    clear(axes)
    label_ends(axes, ends)
