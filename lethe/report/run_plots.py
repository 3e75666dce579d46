"""Plots of one run: its planned noise and loss, its audit, and the budget of the data sets that it draws on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lethe.audit.page import AuditPage
from lethe.audit.statistics.result import AuditResult
from lethe.calculus.upward_formatting import shown
from lethe.report.drawing import Axes, End, Figure, MaxNLocator, clear, label_ends, png
from lethe.report.sections.evidence import audit_cells, crossed

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
# Colours of Okabe and Ito; markers say the same once more. What proves nothing by itself is hollow.
_LOOKS: dict[str, tuple[str, str, bool]] = {
    "certified": ("#009E73", "^", True),
    "conditional": ("#E69F00", "D", False),
    "credible": ("#56B4E9", "s", False),
    "point_estimate": ("#777777", "o", False),
}
_CLAIMED, _CROSSED = "#0072B2", "#D00000"
_ABOVE_ALL = 1.12
_ROOM = 10.0  # on a logarithmic axis
_ACCOUNTS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def schedule_plot(content: dict[str, Any]) -> bytes:
    """Two panels: the noise multiplier of each noisy step, the chosen schedule thick; epsilon had the run stopped earlier."""
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


def audit_figure(page: AuditPage, curve: Sequence[tuple[float, float]] = ()) -> Figure:
    r"""The claim, at every $\delta$ where a curve is known, and each audit at its own; red where a certified bound is above the claim."""
    figure = Figure(figsize=(8.5, 5.6), layout="constrained")
    axes = figure.add_subplot()
    known = [(delta, epsilon) for delta, epsilon in curve if epsilon != float("inf")]
    heights = [result.epsilon for result in page.audits if result.epsilon != float("inf")]
    claimed = [] if page.claim is None else [page.claim.delta]
    _delta_axis(axes, [delta for delta, _ in known] + [result.delta for result in page.audits] + claimed)
    heights += _draw_claim(axes, page, known)
    for result in page.audits:
        _draw_audit(axes, page, result)
    axes.set_ylim(0.0, _ABOVE_ALL * max([*heights, 0.1]))
    axes.set_ylabel("epsilon")
    axes.set_xlabel("delta")
    clear(axes)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=1, frameon=False, fontsize="small")
    colour = _CROSSED if page.failed else "black"
    figure.suptitle(f"{page.subject}\n{page.says}", fontsize="small", color=colour)
    return figure


def _delta_axis(axes: Axes, deltas: list[float]) -> None:
    positive = [delta for delta in deltas if delta > 0.0]
    if len(positive) == len(deltas):
        axes.set_xscale("log")
        if positive:  # a single one would leave the axis without a width
            axes.set_xlim(min(positive) / _ROOM, min(1.0, max(positive) * _ROOM))
    else:
        axes.set_xscale("symlog", linthresh=min(positive, default=1e-5))
        axes.set_xlim(0.0, min(1.0, max(positive, default=1e-5) * _ROOM))


def _draw_claim(axes: Axes, page: AuditPage, known: list[tuple[float, float]]) -> list[float]:
    """Draw it, and say at which heights."""
    claim = page.claim
    if claim is None:
        return []
    drawn: list[float] = []
    if known:
        deltas, epsilons = zip(*known, strict=True)
        axes.plot(deltas, epsilons, color=_CLAIMED, linewidth=2.2, label="certified from above, at every delta")
        # Beyond what there is to see, the curve leaves through the top.
        drawn += [epsilon for delta, epsilon in known if delta >= claim.delta / 10.0]
    if claim.epsilon == float("inf"):
        axes.annotate("claimed: epsilon = infinity, which is nothing", (0.02, 0.95), xycoords="axes fraction", color=_CLAIMED)
        return drawn
    label = f"claimed: epsilon ≤ {shown(claim.epsilon)} at delta = {claim.delta:g}"
    axes.plot([claim.delta], [claim.epsilon], "v", color=_CLAIMED, markersize=10, label=label, clip_on=False)
    if not known:  # what holds at a delta holds at every larger one
        axes.plot([claim.delta, axes.get_xlim()[1]], [claim.epsilon] * 2, ":", color=_CLAIMED)
    return [*drawn, claim.epsilon]


def _draw_audit(axes: Axes, page: AuditPage, result: AuditResult) -> None:
    kind, epsilon, delta, wrong, adversary, _ = audit_cells(result)
    colour, marker, filled = _LOOKS[result.kind]
    colour = _CROSSED if crossed(page, result) else colour
    level = "" if result.level is None else f", wrong at most {wrong}"
    family = "" if result.family is None else f" on {result.family}"
    label = f"{kind}{family}: epsilon {epsilon} at delta = {delta}{level} ({adversary})"
    if result.epsilon == float("inf"):
        axes.plot([], [], marker, color=colour, label=label)
        return
    look: dict[str, Any] = {"color": colour, "markerfacecolor": colour if filled else "none", "markersize": 10, "clip_on": False}
    axes.plot([result.delta], [result.epsilon], marker, label=label, zorder=4, **look)
    if result.kind != "point_estimate":  # what is too much at a delta is too much at every smaller one
        axes.plot([axes.get_xlim()[0], result.delta], [result.epsilon] * 2, ":", color=colour)


def budget_figure(accounts: Sequence[dict[str, Any]]) -> Figure:
    """A panel for each of some data sets (`Account.to_dict`): the share of its budget that was counted over time."""
    figure = Figure(figsize=(10, 2.6 * len(accounts) + 1), layout="constrained")
    panels = figure.subplots(len(accounts), 1, squeeze=False)[:, 0]
    for place, (axes, account) in enumerate(zip(panels, accounts, strict=True)):
        times = [datetime.fromisoformat(point["at"]) for point in account["history"]]
        shares = [100.0 * point["share"] for point in account["history"]]
        axes.step(times, shares, where="post", color=_ACCOUNTS[place % len(_ACCOUNTS)], linewidth=2)
        axes.axhline(100.0, color="#777777", linestyle="--", linewidth=1)
        axes.set_ylim(0, 108)
        axes.set_ylabel("% of the budget")
        axes.set_title(account["title"][0], fontsize="medium", loc="left")
        axes.tick_params(axis="x", labelrotation=20)
        clear(axes)
    return figure
