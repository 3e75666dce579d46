"""The picture of the README, docs/pictures/demo.svg: `lethe demo` at several epsilons. Takes about two minutes."""

import json
import subprocess
import sys
from pathlib import Path

from matplotlib import rcParams
from matplotlib.figure import Figure

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
LINES = {
    "a": ("fixed order, all iterates accounted for", "s", "C0"),
    "c": ("shuffled once, last iterate (Lethe)", "o", "C1"),
    "e": ("Poisson batches, dp_accounting", "^", "C2"),
}
OUT = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "demo.svg"


def accuracies(epsilon: float) -> dict[str, float]:
    """Mean test accuracy of each row of the demo."""
    done = subprocess.run(
        [sys.executable, "-m", "lethe", "demo", "--epsilon", str(epsilon), "--seeds", "5", "--json"], check=True, capture_output=True
    )
    return {row["letter"]: row["accuracy_mean"] for row in json.loads(done.stdout)["rows"]}


def main() -> None:
    """Draw it."""
    rcParams["svg.hashsalt"] = "lethe"  # the same file every time
    measured = [accuracies(epsilon) for epsilon in EPSILONS]
    figure = Figure(figsize=(7, 3.4))
    axes = figure.subplots()
    for row, (label, marker, color) in LINES.items():
        axes.plot(EPSILONS, [rows[row] for rows in measured], marker=marker, color=color, label=label)
    axes.axhline(measured[0]["f"], color="gray", linestyle=":", label="no privacy")
    axes.set(xscale="log", xlabel="epsilon: smaller is more private", ylabel="test accuracy", ylim=(0.4, 1.0))
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.minorticks_off()
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(OUT, format="svg", bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
