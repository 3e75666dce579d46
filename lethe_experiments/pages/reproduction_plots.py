"""Plots of reproductions, as PNG bytes, from data computed elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lethe.report.drawing import Axes, End, Figure, LogLocator, NullFormatter, clear, label_ends, png
from lethe_experiments.pages.epoch_plots import epoch_plot
from lethe_experiments.pages.error_pages import error_plot
from lethe_experiments.pages.hong_pages import influence_plot, order_plot
from lethe_experiments.pages.rate_pages import rate_plot

# Colours of Okabe and Ito, which colour-blind readers can tell apart; dashes and markers say the same once more.
_SETTINGS = ("#0072B2", "#009E73", "#D55E00")
_BASELINE, _CLAIM = "#444444", "#8a8a8a"
_OURS, _SHUFFLED, _PUBLISHED = "#0072B2", "#D55E00", "#000000"
_METHODS = {
    "composition": ("#444444", ":"),
    "prior RDP": ("#D55E00", "-."),
    "Bok et al. as RDP": ("#009E73", "--"),
    "Bok et al. (exact)": ("#0072B2", "-"),
}


_KINDS = {"uniform": ("#444444", "--", "s"), "exponential": ("#0072B2", "-", "o")}
_REACHED = (("training_loss", 1.0, "training loss (nats)"), ("test_accuracy", 100.0, "test accuracy (%)"))


def reproduction_plot(content: dict[str, Any]) -> bytes:
    """A reproduction as a plot of its shape."""
    shapes = {"panels": _panels, "curves": _curves, "rows": _dots, "sizes": _sizes, "epochs": epoch_plot, "errors": error_plot}
    shapes |= {"bounds": _bounds, "rates": rate_plot, "orders": order_plot, "influence": influence_plot}
    return shapes[content["shape"]](content)


def _panels(content: dict[str, Any]) -> bytes:
    """RDP bound over alpha against the number of steps, both logarithmic: ours thick, what is false grey and dotted."""
    panels = list(dict.fromkeys(row["panel"] for row in content["rows"]))
    figure = Figure(figsize=(14.5, 7.2), layout="constrained")
    every = [row["rdp_over_alpha"] for row in content["rows"]]
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        rows = [row for row in content["rows"] if row["panel"] == panel]
        lines: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            lines.setdefault(row["curve"], []).append(row)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(min(every) / 1.5, max(every) * 1.5)
        ends: list[End] = []
        looks = _looks([line[0] for line in lines.values()])
        for (name, line), look in zip(lines.items(), looks, strict=True):
            axes.plot([row["steps"] for row in line], [row["rdp_over_alpha"] for row in line], marker="o", markersize=2.5, **look)
            last, refuted = line[-1], line[0]["standing"] == "refuted"
            label = f"{name} (false)" if refuted else name
            ends.append(End(last["steps"], last["rdp_over_alpha"], label, look["color"], last["ours"]))
        label_ends(axes, ends)
        axes.set_title(panel, fontsize="medium")
        axes.set_xlabel("number of iterations T")
        axes.set_ylabel("RDP bound / α")
        clear(axes)
    figure.suptitle(
        f"{content['title']}\nthick: ours; dashed: published, for the run of the same colour; grey, dotted: printed, but false as stated",
        fontsize="medium",
    )
    return png(figure)


def _looks(firsts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Colour says which run a curve is for, thickness whose it is."""
    runs = list(dict.fromkeys(_setting(row) for row in firsts if row["ours"]))
    looks: list[dict[str, Any]] = []
    for row in firsts:
        if row["standing"] == "refuted":
            looks.append({"color": _CLAIM, "linestyle": ":", "linewidth": 1.4, "zorder": 2})
        elif row["ours"]:
            looks.append({"color": _SETTINGS[runs.index(_setting(row))], "linestyle": "-", "linewidth": 3.0, "zorder": 4})
        elif _setting(row) in runs:
            looks.append({"color": _SETTINGS[runs.index(_setting(row))], "linestyle": "--", "linewidth": 1.7, "zorder": 5})
        else:
            dash = "-" if row["m"] is None else (0, (6, 2, 1, 2))
            looks.append({"color": _BASELINE, "linestyle": dash, "linewidth": 1.2, "zorder": 3})
    return looks


def _setting(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["m"], row["M"], row["Q"]


def _curves(content: dict[str, Any]) -> bytes:
    """The published numbers as rings around curves computed again."""
    rows = content["rows"]
    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    ends: list[End] = []
    for method in dict.fromkeys(row["method"] for row in rows):
        line = [row for row in rows if row["method"] == method]
        colour, dash = _METHODS[method]
        steps = [row["steps"] for row in line]
        bold = "exact" in method
        axes.plot(steps, [row["recomputed"] for row in line], color=colour, linestyle=dash, linewidth=3.0 if bold else 1.6)
        axes.plot(steps, [row["published"] for row in line], "o", markersize=8, markerfacecolor="none", color=_PUBLISHED)
        ends.append(End(steps[-1], line[-1]["recomputed"], f"{method}, and ours" if bold else method, colour, bold))
    axes.plot([], [], "o", markersize=8, markerfacecolor="none", color=_PUBLISHED, label="published")
    axes.plot([], [], "-", color=_BASELINE, label="lines: computed again")
    axes.legend(loc="upper left", frameon=False, fontsize="small")
    axes.set_ylim(bottom=0)
    label_ends(axes, ends)
    every = sorted({row["steps"] for row in rows})
    axes.set_xticks(every, [f"{step:g}" for step in every])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("iterations t")
    axes.set_ylabel("privacy ε")
    figure.suptitle(content["title"], fontsize="medium")
    clear(axes)
    return png(figure)


def _bounds(content: dict[str, Any]) -> bytes:
    """A line a bound: epsilon as printed, of its theorem, and ours of the same run."""
    rows = content["rows"][::-1]
    figure = Figure(figsize=(9.5, 0.3 * len(rows) + 1.9), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    marks = (("epsilon_as_printed", "x", _CLAIM, "as printed"), ("epsilon", "o", _PUBLISHED, "as proved"), ("ours", "D", _OURS, "ours"))
    for key, marker, colour, label in marks:
        drawn = [(float(row[key]), place) for place, row in enumerate(rows) if row[key] is not None]
        axes.plot(*zip(*drawn, strict=True), marker, color=colour, label=label, markersize=6)
    axes.set_yticks(range(len(rows)), [f"{row['bound']}, {row['losses']}" for row in rows], fontsize="small")
    axes.set_xlabel("epsilon at delta = 1e-5")
    axes.legend(frameon=False, fontsize="small")
    figure.suptitle(content["title"], fontsize="medium")
    clear(axes)
    return png(figure)


def _dots(content: dict[str, Any]) -> bytes:
    """A line a published number: a ring, the number computed again in it, and ours where it is smaller."""
    rows = content["rows"][::-1]
    figure = Figure(figsize=(9.5, 0.3 * len(rows) + 1.9), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    for place, row in enumerate(rows):
        axes.plot(row["published"], place, "o", markersize=11, markerfacecolor="none", color=_PUBLISHED)
        axes.plot(row["recomputed"], place, "o", markersize=5, color=_PUBLISHED)
        for key, colour, marker in (("last_iterate", _OURS, "D"), ("shuffled_once", _SHUFFLED, "<")):
            if row[key] is not None:
                axes.plot(row[key], place, marker, markersize=7, color=colour)
        text = f"{row['published']:.6g}"
        axes.annotate(text, (row["published"], place), xytext=(9, 0), textcoords="offset points", va="center", fontsize="small")
        if place and rows[place - 1]["steps"] != row["steps"]:
            axes.axhline(place - 0.5, color="#bbbbbb", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [_row_name(row) for row in rows], fontsize="small")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * (right / left) ** 0.1)  # room for the numbers
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="both", labelsize="small")
    quantity = rows[0]["quantity"]
    axes.set_xlabel("ε at δ = 1e-5" if quantity == "epsilon" else "μ")
    axes.plot([], [], "o", markersize=11, markerfacecolor="none", color=_PUBLISHED, label="published (the number)")
    axes.plot([], [], "o", markersize=5, color=_PUBLISHED, label="computed again, same accounting")
    ours = (
        ("last_iterate", _OURS, "D", "ours where smaller, last iterate only"),
        ("shuffled_once", _SHUFFLED, "<", "ours where smaller, order shuffled once and secret"),
    )
    drawn = [entry for entry in ours if any(row[entry[0]] is not None for row in rows)]
    for _, colour, marker, label in drawn:
        axes.plot([], [], marker, markersize=7, color=colour, label=label)
    if not drawn:
        axes.plot([], [], linestyle="none", label="ours: nowhere smaller, so not drawn")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    figure.suptitle(content["title"], fontsize="medium")
    clear(axes)
    return png(figure)


def _row_name(row: dict[str, Any]) -> str:
    length = f"t = {row['steps']}" if row["passes"] is None else f"E = {row['passes']}"
    return f"{length}, {row['algorithm']}, {row['run']}: {row['method']}".replace("lambda", "λ")


def _sizes(content: dict[str, Any]) -> bytes:
    """A row of panels a task and reading: what each method reached against the number of records, with its confidence intervals."""
    tasks = list(dict.fromkeys((row["task"], row["reading"]) for row in content["rows"]))
    figure = Figure(figsize=(9.5, 3.2 * len(tasks) + 1.0), layout="constrained")
    for line, task in zip(figure.subplots(len(tasks), len(_REACHED), squeeze=False), tasks, strict=True):
        rows = [row for row in content["rows"] if (row["task"], row["reading"]) == task]
        for axes, (key, unit, label) in zip(line, _REACHED, strict=True):
            _reached(axes, rows, key, unit)
            axes.set_ylabel(label)
            axes.set_title(", ".join(task), fontsize="medium")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    title = content["title"].replace(": ", ":\n", 1)
    figure.suptitle(f"{title}; bars: 95% confidence", fontsize="medium")
    return png(figure)


def _reached(axes: Axes, rows: Sequence[dict[str, Any]], key: str, unit: float) -> None:
    axes.set_xscale("log")
    for place, (method, (colour, dash, marker)) in enumerate(_KINDS.items()):
        line = [row for row in rows if row["method"] == method]
        sizes = [row["records"] * (1.01 if place else 0.99) for row in line]  # beside each other, not on top
        heights = [float(row[key]) * unit for row in line]
        margins = [unit * (row[f"{key}_margin"] or 0.0) for row in line]
        axes.errorbar(sizes, heights, yerr=margins, color=colour, linestyle=dash, marker=marker, markersize=5, capsize=3, label=method)
    every = sorted({row["records"] for row in rows})
    axes.set_xlim(min(every) / 1.25, max(every) * 1.25)
    axes.set_xticks(every, [str(size) for size in every])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("training records N")
    clear(axes)
