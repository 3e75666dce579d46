"""The table and the picture of the page "My table is larger than memory", from the file of results."""

from __future__ import annotations

from matplotlib.figure import Figure
from partitioned_tables import RESULTS
from resumable import read_lines

_NAMES = {
    "partial_fit": "scikit-learn's `SGDClassifier.partial_fit`, not private",
    "objective_perturbation": "logistic regression, objective perturbation",
    "pass_ends": "logistic regression, noise at pass ends",
    "adassp": "ridge, AdaSSP",
}


def table() -> str:
    """A row for each number of records and mechanism."""
    rows = {(row["records"], row["which"]): row for row in read_lines(RESULTS)}
    head = "| records | | passes | CPU seconds a pass | against `partial_fit` | seconds on the wall | peak of memory |"
    lines = [head, "|---:|---|---:|---:|---:|---:|---:|"]
    for (records, which), row in rows.items():
        ratio = row["cpu"] / rows[records, "partial_fit"]["cpu"]
        passes = "" if which == "partial_fit" else f"{row['passes']:.0f}"
        timed = f"{row['cpu']:.2f} | {ratio:.2f} | {row['wall']:.1f} | {row['memory']:.2f} GB"
        lines.append(f"| {records:,} | {_NAMES[which]} | {passes} | {timed} |".replace(",", " ", 2))
    return "\n".join(lines)


def figure() -> Figure:
    """CPU seconds of a pass, and the peak of memory, against the number of records."""
    rows = read_lines(RESULTS)
    drawn = Figure(figsize=(9.0, 3.4), layout="constrained")
    seconds, memory = drawn.add_subplot(1, 2, 1), drawn.add_subplot(1, 2, 2)
    for (which, name), mark in zip(_NAMES.items(), "so^v", strict=True):
        line = sorted((row["records"], row["cpu"], row["memory"]) for row in rows if row["which"] == which)
        records, cpu, peak = zip(*line, strict=True)
        colour, label = "0.5" if which == "partial_fit" else None, name.replace("`", "")
        seconds.plot(records, cpu, marker=mark, color=colour, label=label)
        memory.plot(records, peak, marker=mark, color=colour, label=label)
    first = min(row["cpu"] / row["records"] for row in rows)
    ends = [min(row["records"] for row in rows), max(row["records"] for row in rows)]
    seconds.plot(ends, [first * end for end in ends], color="0.8", linestyle=":", label="in proportion")
    seconds.set(xscale="log", yscale="log", xlabel="records of 50 columns", ylabel="CPU seconds a pass")
    memory.set(xscale="log", ylim=(0.0, 1.6), xlabel="records of 50 columns", ylabel="peak of memory, GB")
    memory.axhline(1.5, color="0.8", linestyle=":")
    for axes in (seconds, memory):
        axes.set_xticks(ends, [f"{end:g}" for end in ends])
        axes.minorticks_off()
    seconds.legend(fontsize=7)
    return drawn
