"""What is certified from above and what audits found from below, in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lethe.audit.page import AuditPage
from lethe.audit.statistics.result import AuditResult
from lethe.calculus.upward_formatting import shown
from lethe.report.audit_tables import audit_cells, crossed
from lethe.report.drawing import Axes, Figure, clear, png

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


def audit_plot(page: AuditPage, curve: Sequence[tuple[float, float]] = ()) -> bytes:
    r"""The claim at every $\delta$ that is known, and each audit at its own; red where a certified bound is above the claim.

    Args:
        page: claim and audits.
        curve: $(\delta, \epsilon)$ of the certificate; empty: the claim is a point.
    """
    figure = Figure(figsize=(8.5, 5.6), layout="constrained")
    axes = figure.add_subplot()
    known = [(delta, epsilon) for delta, epsilon in curve if epsilon != float("inf")]
    heights = [result.epsilon for result in page.audits if result.epsilon != float("inf")]
    _delta_axis(axes, [delta for delta, _ in known] + [result.delta for result in page.audits] + _claimed_deltas(page))
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
    return png(figure)


def _claimed_deltas(page: AuditPage) -> list[float]:
    return [] if page.claim is None else [page.claim.delta]


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
    kind, epsilon, delta, wrong, adversary = audit_cells(result)
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
