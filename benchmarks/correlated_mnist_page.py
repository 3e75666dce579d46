"""The table and the picture of a CNN on MNIST by kind of noise, from the file of results."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from private_linear_summary import half_width
from resumable import read_lines

RESULTS = Path(__file__).with_name("results") / "correlated_mnist.jsonl"
KINDS = ("cyclic, independent noise", "cyclic, correlated noise", "Poisson, independent noise")


def tuning(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The rows of the grid, by step size."""
    return sorted((row for row in rows if row["kind"] == kind and row["judged_on"] == "held out"), key=lambda row: row["step_size"])


def best(rows: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The row of the grid that was best on the records held out."""
    return max(tuning(rows, kind), key=lambda row: row["accuracy"])


def scores(rows: list[dict[str, Any]], kind: str) -> list[float]:
    """On the test records, one a seed, at the settings that were best."""
    tuned = best(rows, kind)
    same = ("kind", "passes", "batches", "step_size")
    return [row["accuracy"] for row in rows if row["judged_on"] == "test" and all(row[name] == tuned[name] for name in same)]


def table(rows: list[dict[str, Any]] | None = None) -> str:
    """A row a kind; without any training that was judged on the test records, the best of the grid, on those held out for it.

    Args:
        rows: of the file; None: those that are stored.
    """
    rows = read_lines(RESULTS) if rows is None else rows
    lines = [
        "| batches and noise | noise multiplier | step size | accuracy, held out | accuracy, test | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        tuned, found = best(rows, kind), scores(rows, kind)
        tested = f"{statistics.fmean(found):.4f} ± {half_width(found):.4f}" if len(found) > 1 else "not measured yet"
        cells = (kind, f"{tuned['noise_multiplier']:.2f}", f"{tuned['step_size']:g}", f"{tuned['accuracy']:.4f}", tested, str(len(found)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def figure() -> Figure:
    """Accuracy on the records held out against the step size, a line a kind."""
    rows = read_lines(RESULTS)
    made = Figure(figsize=(6.5, 3.2), layout="constrained")
    axes = made.subplots()
    for number, kind in enumerate(KINDS):
        found = tuning(rows, kind)
        axes.plot(
            [row["step_size"] for row in found], [row["accuracy"] for row in found], marker="o", color=f"C{(1, 0, 2)[number]}", label=kind
        )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("step size")
    axes.set_ylabel("accuracy")
    axes.legend()
    return made
