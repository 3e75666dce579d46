"""The table and the picture of a CNN on MNIST by kind of noise, from the file of results."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from private_linear_summary import half_width
from resumable import read_lines

RESULTS = Path(__file__).with_name("results") / "correlated_mnist.jsonl"
KINDS = ("cyclic, independent noise", "cyclic, correlated noise", "cyclic Poisson, correlated noise", "Poisson, independent noise")
DECAYS = (0.9, 0.97, 0.99, 0.997)
JUDGED = ("last iterate", "moving average")


class Tuned(NamedTuple):
    """The best of a kind's grid: "0" is the last iterate, else the decay of an average."""

    accuracy: float
    step_size: float
    decay: str


def judged_by(judged: str) -> tuple[str, ...]:
    """The entries of a row's accuracies that are looked at."""
    return ("0",) if judged == JUDGED[0] else tuple(f"{decay:g}" for decay in DECAYS)


def tuning(rows: list[dict[str, Any]], kind: str, judged: str) -> list[Tuned]:
    """The best decay for each step size of the grid, on the records held out; of equals the first."""
    grid = sorted((row for row in rows if row["kind"] == kind and row["judged_on"] == "held out"), key=lambda row: row["step_size"])
    return [
        max((Tuned(row["accuracies"][decay], row["step_size"], decay) for decay in judged_by(judged)), key=lambda one: one.accuracy)
        for row in grid
    ]


def best(rows: list[dict[str, Any]], kind: str, judged: str) -> Tuned:
    """What was best on the records held out; of equals the smallest step."""
    return max(tuning(rows, kind, judged), key=lambda one: one.accuracy)


def scores(rows: list[dict[str, Any]], kind: str, judged: str) -> list[float]:
    """On the test records, one a seed, at the settings that were best."""
    tuned = best(rows, kind, judged)
    tested = (row for row in rows if row["judged_on"] == "test" and row["kind"] == kind)
    return [row["accuracies"][tuned.decay] for row in tested if row["step_size"] == tuned.step_size]


def table(rows: list[dict[str, Any]] | None = None) -> str:
    """A row for each kind and what is judged.

    Args:
        rows: of the file; None: those that are stored.
    """
    rows = read_lines(RESULTS) if rows is None else rows
    lines = [
        "| batches and noise | noise multiplier | judged | step size | accuracy, held out | accuracy, test | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        any_row = next(row for row in rows if row["kind"] == kind)
        name = f"{kind} ({any_row['groups']} groups)" if any_row["groups"] > 1 else kind
        for judged in JUDGED:
            tuned, found = best(rows, kind, judged), scores(rows, kind, judged)
            tested = f"{statistics.fmean(found):.4f} ± {half_width(found):.4f}" if len(found) > 1 else "not measured yet"
            what = judged if tuned.decay == "0" else f"{judged}, {tuned.decay}"
            cells = (
                name, f"{any_row['noise_multiplier']:.2f}", what, f"{tuned.step_size:g}", f"{tuned.accuracy:.4f}", tested, str(len(found))
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def figure() -> Figure:
    """Accuracy on the records held out against the step size, a line a kind: of last iterates, and of averages."""
    rows = read_lines(RESULTS)
    made = Figure(figsize=(8.0, 3.4), layout="constrained")
    panels = made.subplots(1, 2, sharey=True)
    for axes, judged in zip(panels, JUDGED, strict=True):
        for kind, colour in zip(KINDS, ("C1", "C0", "C3", "C2"), strict=True):
            found = tuning(rows, kind, judged)
            axes.plot([one.step_size for one in found], [one.accuracy for one in found], marker="o", color=colour, label=kind)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("step size")
        axes.set_title(judged)
    panels[0].set_ylim(0.84, 0.95)  # independent noise in a fixed order falls below
    panels[0].set_ylabel("accuracy")
    panels[1].legend(fontsize="small", loc="lower right")
    return made
