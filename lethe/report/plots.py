"""What the plots of commands show: comparisons, sweeps, the demonstration, a plan, an audit, budgets; `drawing.plotted` draws them.

The commands with `--plot`, and `figure_of` of a comparison or a sweep, call it with results; pictures within a report are made by its
sections.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeGuard

from lethe.audit.page import AuditPage
from lethe.calculus.upward_formatting import shown
from lethe.certificates.comparison import NOT_PRIVATE
from lethe.certificates.sweep import WHOLE
from lethe.report.drawing import Figure, plotted, png
from lethe.report.model import End, Panel, Series
from lethe.report.sections.evidence import audit_cells, crossed

# Colours of Okabe and Ito, which colour-blind readers can tell apart; markers say the same once more. What is no guarantee is hollow.
_BLUE, _SKY, _GREEN, _ORANGE, _RED, _PINK, _GREY = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#777777"
_STATUSES = {
    "used": (_BLUE, "D", "used: nothing smaller is proved"),
    "looser": (_SKY, "o", "holds, no smaller"),
    "dominated": (_GREEN, "o", "holds, never better than another"),
    "proof-gap": (_ORANGE, "s", "NOT a guarantee: gap in the proof"),
    "one-sided": (_PINK, "p", "NOT a guarantee: one direction only"),
    "refuted": (_RED, "X", "NOT a guarantee: refuted"),
    "lower-bound": (_GREY, "v", "NOT a guarantee: a lower bound"),
}
_GUARANTEES = ("used", "looser", "dominated")
_CLAIMED = tuple(status for status in _STATUSES if status not in _GUARANTEES)
_PUBLISHED = (_ORANGE, _SKY, _GREEN, _PINK, _RED, "#8C6D31")
_DASHES = ("-", "--", "-.")
_CLAIM: dict[str, Any] = {"color": "#8a8a8a", "linestyle": ":", "linewidth": 1.4, "zorder": 2}
_SCHEDULES = {"uniform": _GREY, "pass_ends": _SKY, "exponential": _ORANGE, "influence": _GREEN, "joint": _BLUE, "correlated": _PINK}
_AUDITS = {"certified": (_GREEN, "^"), "conditional": (_ORANGE, "D"), "credible": (_SKY, "s"), "point_estimate": (_GREY, "o")}
_CROSSED, _LINE = "#D00000", "#444444"
_PROPORTION = 1000.0
_ABOVE = 1e12  # of the largest that is drawn
_ARROW = 0.035  # of the width of the axes
_MARKS_UP_TO = 60  # more points than this are drawn as a line
_BELOW: dict[str, Any] = {"loc": "outside lower center", "fontsize": "small"}
_ON_TOP = {"clip_on": False, "zorder": 4}
_AT_THE_EDGE = ("axes fraction", "data")  # a part of the width, and a place among the lines


def demo_plot(content: dict[str, Any]) -> bytes:
    """The demo's table as bars: mean test accuracy, with a mark for every seed."""
    rows = content["rows"][::-1]
    series: list[Series] = []
    notes: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        colour = "#b0b0b0" if row["epsilon"] == "inf" else "#2a6f97"
        series.append(Series([0, row["accuracy_mean"]], [index] * 2, {"color": colour, "linewidth": 24, "solid_capstyle": "butt"}))
        series.append(Series(row["accuracies"], [index] * len(row["accuracies"]), _marker("black", "|", 11, True)))
        look = {"color": "white", "va": "center", "fontweight": "bold"}
        notes.append({"text": f" {row['accuracy_mean']:.3f}", "xy": (0.0, index), **look})
    settings = {
        "yticks": range(len(rows)),
        "yticklabels": [f"({row['letter']}) {row['label']}" for row in rows],
        "xlim": (0, 1),
        "ylim": (-0.6, len(rows) - 0.4),
        "xlabel": "test accuracy: mean (bar) and each seed (mark)",
    }
    return png(plotted([Panel(series, settings, notes=notes)], (8.5, 0.55 * len(rows) + 1.3), content["title"]))


def comparison_figure(content: dict[str, Any]) -> Figure:
    """A comparison as dots: each theorem's epsilon on a logarithmic axis; hollow where it is no guarantee, an arrow at the edge where it is
    out of proportion."""
    rows, best = [row for row in content["rows"] if row["epsilon"] is not None][::-1], content["epsilon"]
    refused = len(content["rows"]) - len(rows)
    low, high = _window((row["epsilon"] for row in rows), [best])
    series = [Series([best] * 2, [-0.7, len(rows) - 0.3], {"color": _BLUE, "linewidth": 1, "zorder": 0})] if _drawable(best) else []
    notes: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        epsilon, status = float(row["epsilon"]), row["status"]
        number = "no bound" if epsilon == math.inf else shown(epsilon)
        text = number if status in _GUARANTEES else f"({number})"
        look = {"va": "center", "fontsize": "small", "fontweight": "bold" if status == "used" else "normal"}
        if low <= epsilon <= high:
            series.append(Series([epsilon], [index], _dot(status)))
            notes.append({"text": text, "xy": (epsilon, index), "xytext": (9, 0), "textcoords": "offset points", **look})
            continue
        tip, tail, side = (1.0, 1.0 - _ARROW, "right") if epsilon > high else (0.0, _ARROW, "left")
        arrow = {"arrowstyle": "-|>", "color": _STATUSES[status][0], "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
        ends = {"xytext": (tail, index), "xycoords": _AT_THE_EDGE, "textcoords": _AT_THE_EDGE}
        notes.append({"text": "", "xy": (tip, index), "arrowprops": arrow, **ends})
        notes.append({"text": f" {text} ", "xy": (tail, index), "xycoords": _AT_THE_EDGE, "ha": side, **look})
    for status, (_, _, meaning) in _STATUSES.items():
        if any(row["status"] == status and _drawable(row["epsilon"]) for row in rows):
            series.append(Series([], [], _dot(status), meaning))
    if any(not low <= float(row["epsilon"]) <= high for row in rows):
        arrow = {"marker": r"$\rightarrow$", "color": _LINE, "markersize": 12, "linestyle": "none"}
        series.append(Series([], [], arrow, "off the scale: see the number"))
    note = f"; {refused} more do{'es' if refused == 1 else ''} not apply" if refused else ""
    settings = {
        "xlim": (low / 1.5, high * (high / low) ** 0.16 * 1.8),  # room for the numbers
        "ylim": (-0.7, len(rows) - 0.3),
        "yticks": range(len(rows)),
        "yticklabels": [row["theorem"] for row in rows],
        "xlabel": f"epsilon at delta = {content['delta']:g} (bold: what certify tries{note})",
    }
    panel = Panel(series, settings, log="x", notes=notes, legend={**_BELOW, "ncols": 2})
    figure = plotted([panel], (9.5, 0.3 * len(rows) + 2.3), content["title"])
    for label, row in zip(figure.axes[0].get_yticklabels(), rows, strict=True):
        label.set(fontweight="bold" if row["ours"] else "normal", color="black" if row["status"] in _GUARANTEES else _GREY)
    return _warned(figure) if best == "inf" else figure


def sweep_figure(content: dict[str, Any]) -> Figure:
    """A sweep as lines, one a theorem that applies: ours thick, what is no guarantee grey and dotted; the smallest proved shaded."""
    values, certified = content["values"], content["certified"]
    every = [row["epsilon"] for line in content["lines"] for row in line["rows"]]
    low, high = _window(every, (point["epsilon"] for point in certified))

    def fits(epsilon: float | str | None) -> bool:
        return _drawable(epsilon) and low <= epsilon <= high

    def height(epsilon: float | str | None) -> float:
        """What is too large leaves through the top: the axes cut it off; so does what is infinite."""
        return _ABOVE * high if epsilon == "inf" else epsilon if _drawable(epsilon) else math.nan

    lines = [line for line in content["lines"] if any(fits(row["epsilon"]) for row in line["rows"])]
    rest = [line for line in content["lines"] if line not in lines and any(row["epsilon"] is not None for row in line["rows"])]
    ends: list[End] = []
    series = [
        Series(values, [height(point["epsilon"]) for point in certified], {"color": _BLUE, "alpha": 0.18, "linewidth": 9, "zorder": 1})
    ]
    for line, look in zip(lines, _looks(lines), strict=True):
        rows = line["rows"]
        # What is a guarantee at some values only changes its look where it stops being one.
        for part, style in ((_GUARANTEES, look), (_CLAIMED, _CLAIM)):
            heights = [height(row["epsilon"]) if row["status"] in part else math.nan for row in rows]
            series.append(Series(values, heights, {**style, "marker": "o", "markersize": 3}))
        last = max(index for index, row in enumerate(rows) if fits(row["epsilon"]))
        claims = rows[last]["status"] in _CLAIMED
        name = _name({**line, "rows": rows[: last + 1]})  # with the status that it has where its name stands
        if any(height(row["epsilon"]) > 0 and not fits(row["epsilon"]) for row in rows):
            name += ", off the scale elsewhere"
        ends.append(End(values[last], rows[last]["epsilon"], name, (_CLAIM if claims else look)["color"], rows[last]["ours"]))
    notes: list[dict[str, Any]] = []
    limits = (low / (high / low) ** 0.05 / 1.1, high * (high / low) ** 0.05 * 1.1)
    if content["own"] is not None and min(values) <= content["own"] <= max(values):
        series.append(Series([content["own"]] * 2, limits, {"color": _LINE, "linewidth": 0.8, "zorder": 0}))
        label_position = {"xy": (content["own"], 1.01), "xycoords": ("data", "axes fraction")}
        notes.append({"text": "the run", "ha": "center", "fontsize": "small", **label_position})
    nothing = [f"{value:g}" for value, point in zip(values, certified, strict=True) if point["epsilon"] == "inf"]
    far = [_name(line) for line in rest if any(_drawable(row["epsilon"]) for row in line["rows"])]
    boundless = [_name(line) for line in rest if all(row["epsilon"] in (None, "inf") for row in line["rows"])]
    below = [content["axis"]]
    below += [f"{what}: {', '.join(names)}" for what, names in (("off the scale", far), ("no bound", boundless)) if names]
    below += [f"NOT PRIVATE, nothing is proved, at {', '.join(nothing)}"] if 0 < len(nothing) < len(values) else []
    settings = {
        "ylim": limits,
        "xlabel": "\n".join(below),
        "ylabel": "epsilon" if content["over"] == "delta" else f"epsilon at delta = {content['delta']:g}",
    }
    log = "xy" if 0 < 3 * min(values) <= max(values) else "y"
    panel = Panel(series, settings, log=log, whole=log == "y" and content["over"] in WHOLE, ends=ends, notes=notes)
    meaning = "thick: what certify tries; shaded: the smallest epsilon that is proved; grey and dotted: NOT a guarantee"
    figure = plotted([panel], (11, max(5.0, 0.24 * len(lines) + 1.5)), f"{content['title']}\n{meaning}")
    figure.axes[0].xaxis.label.set_wrap(True)
    return _warned(figure) if len(nothing) == len(values) else figure


def _warned(figure: Figure) -> Figure:
    """Above the axes: a plot of nothing but arrows, or of nothing at all, must not look like good news."""
    figure.axes[0].set_title(NOT_PRIVATE, fontsize="medium", color="#B00000", fontweight="bold", pad=18)
    return figure


def _window(epsilons: Iterable[float | str | None], proved: Iterable[float | str | None]) -> tuple[float, float]:
    """The epsilons a plot has room for: all but those out of proportion to what is proved, which would press the rest into a corner."""
    best = [epsilon for epsilon in proved if _drawable(epsilon)]
    finite = [epsilon for epsilon in epsilons if _drawable(epsilon)]
    if best:
        low, high = min(best) / _PROPORTION, max(1.0, *best) * _PROPORTION
        finite = [epsilon for epsilon in finite if low <= epsilon <= high]
    return (min(finite), max(finite)) if finite else (0.1, 10.0)


def _dot(status: str) -> dict[str, Any]:
    colour, marker, _ = _STATUSES[status]
    return _marker(colour, marker, 9 if status == "used" else 7, status in _GUARANTEES)


def _marker(colour: str, marker: str, size: float, filled: bool) -> dict[str, Any]:
    fill = colour if filled else "white"
    return {"color": colour, "marker": marker, "linestyle": "", "markerfacecolor": fill, "markersize": size, "markeredgewidth": 1.5}


def _looks(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A look for each line: ours thick and blue; the published ones thin, by colour first, then by dashes."""
    looks: list[dict[str, Any]] = []
    counts = {True: 0, False: 0}
    for line in lines:
        ours = line["rows"][0]["ours"]
        colours, width = ((_BLUE,), 2.6) if ours else (_PUBLISHED, 1.4)
        turn, colour_index = divmod(counts[ours], len(colours))
        looks.append({"color": colours[colour_index], "linestyle": _DASHES[turn % 3], "linewidth": width, "zorder": 3 if ours else 2})
        counts[ours] += any(row["status"] in _GUARANTEES for row in line["rows"])
    return looks


def _name(line: dict[str, Any]) -> str:
    """A theorem's name, with its status where the last thing it says is no guarantee."""
    status = [row["status"] for row in line["rows"] if row["epsilon"] is not None][-1]
    return f"{line['theorem']} ({status})" if status in _CLAIMED else line["theorem"]


def _drawable(epsilon: float | str | None) -> TypeGuard[float]:
    """Whether a logarithmic axis has a place for it."""
    return isinstance(epsilon, float) and epsilon > 0


def schedule_plot(content: dict[str, Any]) -> bytes:
    """Two panels: the noise multiplier of each noisy step, the chosen schedule thick; epsilon had the run stopped earlier."""
    series: list[Series] = []
    ends: list[End] = []
    for schedule in sorted(content["schedules"], key=lambda one: one["chosen"]):
        points = [(step, level) for step, level in zip(schedule["steps"], schedule["noise_multipliers"], strict=True) if level > 0]
        look = {"color": _SCHEDULES.get(schedule["name"], _BLUE), "linewidth": 2.2 if schedule["chosen"] else 1.2}
        series.append(Series.through(points, {**look, "marker": "o" if len(points) <= _MARKS_UP_TO else "", "markersize": 3}))
        ends.append(End(*points[-1], schedule["name"], look["color"], schedule["chosen"]))
    noise = Panel(series, {"ylabel": "noise multiplier (steps without noise left out)"}, log="y", ends=ends)
    grown, series, ends, notes = content["cumulative"], [], [], []
    for key, colour, dash in (("every_iterate", _RED, "--"), ("last_iterate", _BLUE, "-")):
        points = [(step, value) for step, value in zip(grown["steps"], grown[key], strict=True) if value != "inf"]
        if points:
            series.append(Series.through(points, {"color": colour, "linestyle": dash, "marker": "o", "markersize": 3}))
            ends.append(End(*points[-1], key.replace("_", " "), colour, key == "last_iterate"))
        elif key == "every_iterate":
            words = "all iterates together: no bound (steps without noise)"
            notes.append({"text": words, "xy": (0.01, 0.92), "xycoords": "axes fraction", "fontsize": "small"})
    settings = {"ylim": (0, None), "ylabel": f"epsilon at delta = {grown['delta']:g}", "xlabel": "steps, had the run stopped there"}
    loss = Panel(series, settings, whole=True, ends=ends, notes=notes)
    return png(plotted([noise, loss], (10, 7), content["title"], share=True))


def audit_figure(page: AuditPage, curve: Sequence[tuple[float, float]] = ()) -> Figure:
    r"""The claim, at every $\delta$ where a curve is known, and each audit at its own; red where a certified bound is above the claim."""
    finite_curve = [(delta, epsilon) for delta, epsilon in curve if epsilon != math.inf]
    claim, finite_audits = page.claim, [result for result in page.audits if result.epsilon != math.inf]
    deltas = [*(delta for delta, _ in finite_curve), *(result.delta for result in page.audits), *([] if claim is None else [claim.delta])]
    positive = [delta for delta in deltas if delta > 0.0]
    log = "x" if len(positive) == len(deltas) else ""
    smallest, right = (min(positive, default=1e-5) / 10.0 if log else 0.0), min(1.0, 10.0 * max(positive, default=1e-5))
    heights = [0.1, *(result.epsilon for result in finite_audits)]
    series: list[Series] = []
    notes: list[dict[str, Any]] = []
    if claim is not None:
        if finite_curve:
            look = {"color": _BLUE, "linewidth": 2.2}
            series.append(Series.through(finite_curve, look, "certified from above, at every delta"))
            # Beyond what there is to see, the curve leaves through the top.
            heights += [epsilon for delta, epsilon in finite_curve if delta >= claim.delta / 10.0]
        if claim.epsilon == math.inf:
            words = "claimed: epsilon = infinity, which is nothing"
            notes.append({"text": words, "xy": (0.02, 0.95), "xycoords": "axes fraction", "color": _BLUE})
        else:
            heights.append(claim.epsilon)
            label = f"claimed: epsilon ≤ {shown(claim.epsilon)} at delta = {claim.delta:g}"
            series.append(Series([claim.delta], [claim.epsilon], _marker(_BLUE, "v", 10, True) | _ON_TOP, label))
            if not finite_curve:  # what holds at a delta holds at every larger one
                series.append(Series([claim.delta, right], [claim.epsilon] * 2, {"color": _BLUE, "linestyle": ":"}))
    for result in page.audits:
        kind, epsilon, delta, wrong, adversary, _ = audit_cells(result)
        colour, marker = _AUDITS[result.kind]
        colour = _CROSSED if crossed(page, result) else colour
        level = "" if result.level is None else f", wrong at most {wrong}"
        family = "" if result.family is None else f" on {result.family}"
        point = [(result.delta, result.epsilon)] if result in finite_audits else []
        look = _marker(colour, marker, 10, result.kind == "certified") | _ON_TOP
        series.append(Series.through(point, look, f"{kind}{family}: epsilon {epsilon} at delta = {delta}{level} ({adversary})"))
        if result in finite_audits and result.kind != "point_estimate":  # what is too much at a delta is too much at every smaller one
            series.append(Series([smallest, result.delta], [result.epsilon] * 2, {"color": colour, "linestyle": ":"}))
    settings = {"xlim": (smallest, right), "ylim": (0.0, 1.12 * max(heights)), "xlabel": "delta", "ylabel": "epsilon"}
    figure = plotted([Panel(series, settings, log=log, notes=notes, legend=_BELOW)], (8.5, 5.6))
    figure.suptitle(f"{page.subject}\n{page.says}", fontsize="small", color=_CROSSED if page.failed else "black")
    return figure


def budget_figure(accounts: Sequence[dict[str, Any]]) -> Figure:
    """A panel for each of some data sets (`Account.to_dict`): the share of its budget that was counted over time."""
    panels: list[Panel] = []
    for index, account in enumerate(accounts):
        times = [datetime.fromisoformat(point["at"]) for point in account["history"]]
        look = {"drawstyle": "steps-post", "color": (_BLUE, *_PUBLISHED)[index % 7], "linewidth": 2}
        shares = Series(times, [100.0 * point["share"] for point in account["history"]], look)
        whole = Series([times[0], times[-1]], [100.0] * 2, {"color": _GREY, "linestyle": "--", "linewidth": 1})
        panels.append(Panel([shares, whole], {"ylim": (0, 108), "ylabel": "% of the budget", "title": account["title"][0]}))
    figure = plotted(panels, (10, 2.6 * len(accounts) + 1))
    for axes in figure.axes:
        axes.tick_params(axis="x", labelrotation=20)
    return figure
