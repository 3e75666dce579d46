"""Plots for people, as PNG bytes, from data computed elsewhere."""

from __future__ import annotations

import io
from typing import Any

from lethe.errors import MissingExtraError

try:
    from matplotlib.figure import Figure  # used directly, without pyplot: no window, no display, no global state
except ImportError as error:
    raise MissingExtraError("plots need matplotlib, which is not installed.", remedy='pip install "lethe-dp[report]"') from error

_PRIVATE, _OPEN = "#2a6f97", "#b0b0b0"


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
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
