"""What an attack found and what is proved, as epochs pass: a column of panels for each level of noise."""

from __future__ import annotations

from typing import Any

from lethe.report.drawing import Axes, Figure, clear, png

# Colours of Okabe and Ito, which colour-blind readers can tell apart; markers say the same once more.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_LABELS = (
    "ε found by the attack\n(▲: certified from below)",
    "ε from above\n(dashed: published, false)",
    "training loss (nats)",
)
_APART = 0.015  # of the epochs, so that bars stand beside each other


def epoch_plot(content: dict[str, Any]) -> bytes:
    """Below: the point estimate with its confidence interval, and the bound; above: the certificate and the published curve; the loss."""
    panels = list(dict.fromkeys(row["noise"] for row in content["rows"]))
    figure = Figure(figsize=(5.6 * len(panels), 9.6), layout="constrained")
    grid = figure.subplots(len(_LABELS), len(panels), squeeze=False, sharex=True)
    for column, panel in enumerate(panels):
        rows = [row for row in content["rows"] if row["noise"] == panel]
        curves: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            curves.setdefault(setting_name(row), []).append(row)
        for axes, draw, label in zip(grid[:, column], (_found, _proved, _loss), _LABELS, strict=True):
            for place, (name, drawn) in enumerate(curves.items()):
                line = [{**row, "epochs": row["epochs"] * (1.0 + _APART * place)} for row in drawn]
                draw(axes, line, {"color": _COLOURS[place % 6], "marker": _MARKERS[place % 6], "markersize": 4}, name)
            axes.set_ylabel(label, fontsize="small")
            clear(axes)
        grid[0, column].set_title(panel, fontsize="medium")
        grid[-1, column].set_xlabel("epochs")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    figure.suptitle(
        f"{content['title'].replace(': ', ':' + chr(10), 1)}\nbars: 95% confidence of the mean of a point estimate", fontsize="medium"
    )
    return png(figure)


def setting_name(row: dict[str, Any]) -> str:
    """Such as `b = 25, D = 6`."""
    domain = "" if row["diameter"] is None else f", D = {row['diameter']:g}"
    return f"b = {row['batch_size']}{domain}"


def _found(axes: Axes, line: list[dict[str, Any]], look: dict[str, Any], name: str) -> None:
    known = [row for row in line if isinstance(row["estimate"], float)]  # neither infinite nor unknown
    axes.errorbar(
        [row["epochs"] for row in known],
        [row["estimate"] for row in known],
        yerr=[row["estimate_margin"] or 0.0 for row in known],
        capsize=3,
        label=name,
        **look,
    )
    bounds = [row["certified_bound"] for row in line]
    axes.plot([row["epochs"] for row in line], bounds, color=look["color"], linestyle=":", marker="^", markerfacecolor="none")
    axes.axhline(0.0, color="#bbbbbb", linewidth=0.8, zorder=1)


def _proved(axes: Axes, line: list[dict[str, Any]], look: dict[str, Any], name: str) -> None:
    del name
    axes.set_yscale("log")
    for key, dash, width in (("certificate", "-", 2.2), ("published", "--", 1.0)):
        finite = [row for row in line if isinstance(row[key], float)]
        axes.plot([row["epochs"] for row in finite], [row[key] for row in finite], linestyle=dash, linewidth=width, **look)


def _loss(axes: Axes, line: list[dict[str, Any]], look: dict[str, Any], name: str) -> None:
    del name
    known = [row for row in line if isinstance(row["training_loss"], float)]
    margins = [row["training_loss_margin"] or 0.0 for row in known]
    axes.errorbar([row["epochs"] for row in known], [row["training_loss"] for row in known], yerr=margins, capsize=3, **look)
