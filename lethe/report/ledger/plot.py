"""The budget of data sets over time, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lethe.documents.strict import write_bytes
from lethe.report.drawing import Figure, clear, png, svg

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def budget_figure(accounts: Sequence[dict[str, Any]]) -> Figure:
    """A panel for each data set: the share of its budget that was counted, over time, up to the whole of it.

    Args:
        accounts: plain data, `Account.to_dict`; at least one.
    """
    figure = Figure(figsize=(10, 2.6 * len(accounts) + 1), layout="constrained")
    panels = figure.subplots(len(accounts), 1, squeeze=False)[:, 0]
    for place, (axes, account) in enumerate(zip(panels, accounts, strict=True)):
        times = [datetime.fromisoformat(point["at"]) for point in account["history"]]
        shares = [100.0 * point["share"] for point in account["history"]]
        axes.step(times, shares, where="post", color=_COLOURS[place % len(_COLOURS)], linewidth=2)
        axes.axhline(100.0, color="#777777", linestyle="--", linewidth=1)
        axes.set_ylim(0, 108)
        axes.set_ylabel("% of the budget")
        axes.set_title(account["title"][0], fontsize="medium", loc="left")
        axes.tick_params(axis="x", labelrotation=20)
        clear(axes)
    return figure


def save_budget_plot(path: Path, accounts: Sequence[dict[str, Any]]) -> None:
    """Draw `budget_figure` into a .png or .svg file, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    figure = budget_figure(accounts)
    write_bytes(path, svg(figure).encode() if path.suffix.lower() == ".svg" else png(figure))
