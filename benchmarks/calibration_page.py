"""The table and the picture of how true private probabilities are, from the file of results."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from resumable import read_lines

RESULTS = Path(__file__).with_name("results") / "calibration.jsonl"
SETS = ("uniform, 7 %", "correlated, 2 %", "categories, 8 %", "clusters, 30 %", "normal, 50 %", "three classes, 3 %")
EPSILONS = (0.5, 1.0, 3.0)
MECHANISMS = ("auto", "objective_perturbation", "output_perturbation", "pass_ends", "cyclic", "poisson", "full_batch", "correlated")
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_FEWEST = 200  # records of a bin


def _of(rows: list[dict[str, Any]], **asked: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[name] == value for name, value in asked.items())]


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    return statistics.fmean(row[name] for row in rows)


def table(rows: list[dict[str, Any]] | None = None) -> str:
    """A row a set and mechanism, a column an epsilon.

    Args:
        rows: of the file; None: those that are stored.
    """
    rows = read_lines(RESULTS) if rows is None else rows
    head = f"| set | mechanism | {' | '.join(f'epsilon {epsilon:g}' for epsilon in EPSILONS)} |"
    lines = [head, "|---|---|---|---|---|"]
    for name in SETS:
        known = _of(rows, data=name)
        if not known:
            continue
        what = f"{name}; constant {known[0]['constant']:.4f}, no privacy {known[0]['not_private']:.4f}"
        for mechanism in MECHANISMS:
            cells = [_of(known, mechanism=mechanism, epsilon=epsilon) for epsilon in EPSILONS]
            if any(cells):
                shown = [f"{_mean(cell, 'log_loss'):.4f} ({_mean(cell, 'ratio'):.2f})" if cell else "not measured" for cell in cells]
                lines.append(f"| {what} | `{mechanism}` | {' | '.join(shown)} |")
                what = ""
    return "\n".join(lines)


def figure(rows: list[dict[str, Any]] | None = None) -> Figure:
    """A panel a set: what came true against what `auto` predicted, a line an epsilon.

    Args:
        rows: of the file; None: those that are stored.
    """
    rows = read_lines(RESULTS) if rows is None else rows
    drawn = Figure(figsize=(9, 5.6), layout="constrained")
    for axes, name in zip(drawn.subplots(2, 3).ravel(), SETS, strict=True):
        axes.plot([1e-3, 1.0], [1e-3, 1.0], color="0.7", linewidth=1.0)
        for epsilon in EPSILONS:
            bins: dict[int, list[list[float]]] = {}
            for row in _of(rows, data=name, mechanism="auto", epsilon=epsilon):
                for found in row["bins"]:
                    if found[0] >= _FEWEST:
                        bins.setdefault(bisect_right(EDGES, found[1]), []).append(found)
            points = [[statistics.fmean(part) for part in list(zip(*found, strict=True))[1:]] for found in bins.values()]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker=".", label=f"epsilon {epsilon:g}")
        axes.set(title=name, xscale="log", yscale="log", xlim=(3e-3, 1.0), ylim=(3e-3, 1.0))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", loc="upper left")
    drawn.supxlabel("predicted probability")
    drawn.supylabel("share that came true")
    return drawn
