"""Accuracy, or R squared, of private linear models against epsilon: every mechanism of ours, auto, diffprivlib, DP-SGD, no privacy.

    python benchmarks/private_linear_models.py --data FOLDER [--seeds 10] [--datasets adult made_values] [--epsilons 0.1 1]
        [--mechanisms auto adassp diffprivlib] [--fewer-seeds mnist=1] [--results FILE] [--plot FILE]

One record replaced by another, delta = 1e-5, rows scaled to norm 1 by public constants. FOLDER has adult.npz, mnist.npz and
california_housing.npz; those that are absent are left out, and it says so. Every trained model adds a line to the file of results, and a
run that was stopped goes on where it was. Mean and 95 % interval over seeds, which draw the noise, the split where the set has no test
part, and the data where they are generated. The band in a plot is that interval of auto; lines that fall below
the plot lie on its lower edge.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from private_linear_data import DATASETS, FROM_FILES, REGRESSIONS, Problem
from private_linear_rivals import DIFFPRIVLIB, NO_PRIVACY, OPACUS, OURS, NotPossible, score, train
from private_linear_summary import Cells, cell, half_width, verdicts
from resumable import read_lines
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lethe.report.drawing import End, Figure, label_ends, open_sides

EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)
METHODS = (*OURS, DIFFPRIVLIB, OPACUS, NO_PRIVACY)
_ACROSS = 3  # plots in a row


def main() -> None:
    """Train what is missing, print the tables, save the plot."""
    options = _options()
    console, notes = Console(width=170), Console(stderr=True)
    datasets = []
    for name in options.datasets:
        if name in FROM_FILES and (options.data is None or not (options.data / f"{name}.npz").is_file()):
            notes.print(f"{name}: left out, there is no {name}.npz in {options.data or 'any folder; give one with --data'}")
        else:
            datasets.append(name)
    rows = read_lines(options.results)
    work = _work(options, datasets, {(row["dataset"], row["method"], row["epsilon"], row["seed"]) for row in rows})
    _train(work, rows, options, notes)
    wanted = [row for row in rows if row["dataset"] in datasets and row["method"] in options.mechanisms]
    cells = _cells(wanted, options.epsilons)
    for dataset in datasets:
        console.print(_table(dataset, cells, options.epsilons, options.mechanisms))
    for line in sorted({f"{row['dataset']}: {row['method']}: {row['why']}" for row in wanted if row["score"] is None}):
        console.print(f"not possible: {line}", highlight=False)
    chosen = defaultdict(set)
    for row in wanted:
        if row["method"] == "auto":
            chosen[row["dataset"], row["epsilon"]].add(row["chosen"])
    for (dataset, epsilon), names in sorted(chosen.items()):
        console.print(f"auto took {', '.join(sorted(names))} on {dataset} at epsilon = {epsilon:g}", highlight=False)
    for line in verdicts(cells, OURS, DIFFPRIVLIB):
        console.print(line, highlight=False)
    if options.plot is not None and datasets:
        _plot(cells, datasets, options)
        notes.print(f"plot: {options.plot}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the .npz files")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--mechanisms", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--fewer-seeds", nargs="+", default=[], metavar="NAME=COUNT", help="for a data set, a mechanism, or SET/MECHANISM")
    parser.add_argument("--results", type=Path, default=Path("private_linear_models.jsonl"))
    parser.add_argument("--plot", type=Path)
    return parser.parse_args()


def _work(options: argparse.Namespace, datasets: list[str], done: set[tuple[str, str, float, int]]) -> list[tuple[str, int, str, float]]:
    """What is still to be trained: data set, seed, method, epsilon; models without privacy once a seed, with epsilon 0."""
    fewer: dict[str, int] = {name: int(count) for name, count in (entry.rsplit("=", 1) for entry in options.fewer_seeds)}
    seeds: int = options.seeds
    work = []
    for dataset in datasets:
        for seed in range(options.seeds):
            for method in options.mechanisms:
                limits = [fewer.get(key, seeds) for key in (dataset, method, f"{dataset}/{method}")]
                if seed < min(limits):
                    epsilons = [0.0] if method == NO_PRIVACY else options.epsilons
                    work += [(dataset, seed, method, epsilon) for epsilon in epsilons if (dataset, method, epsilon, seed) not in done]
    return work


def _train(work: list[tuple[str, int, str, float]], rows: list[dict], options: argparse.Namespace, console: Console) -> None:
    held: tuple[tuple[str, int], Problem] | None = None
    with Progress(transient=True, console=console) as bar, options.results.open("a") as file:
        task = bar.add_task("training", total=len(work))
        for dataset, seed, method, epsilon in work:
            bar.update(task, description=f"{dataset}, seed {seed}, {method}, epsilon {epsilon:g}")
            if held is None or held[0] != (dataset, seed):
                held = (dataset, seed), DATASETS[dataset](options.data or Path(), seed)
            problem = held[1]
            row = {"dataset": dataset, "method": method, "epsilon": epsilon, "seed": seed, "score": None, "chosen": "", "why": ""}
            started = time.perf_counter()
            try:
                predict, row["chosen"] = train(method, problem, epsilon, seed)
                row["score"] = score(problem, predict(problem.test))
            except NotPossible as reason:
                row["why"] = str(reason)
            row["seconds"] = round(time.perf_counter() - started, 2)
            if row["why"] != "not installed":  # it may be, next time
                file.write(json.dumps(row) + "\n")
                file.flush()
            rows.append(row)
            bar.advance(task)


def _cells(rows: list[dict], epsilons: list[float]) -> Cells:
    cells: Cells = defaultdict(dict)
    for row in rows:
        if row["score"] is not None:
            for epsilon in epsilons if row["method"] == NO_PRIVACY else [row["epsilon"]]:
                if epsilon in epsilons:
                    cells[row["dataset"], epsilon, row["method"]][row["seed"]] = row["score"]
    return dict(cells)


def _table(dataset: str, cells: Cells, epsilons: list[float], methods: list[str]) -> Table:
    page = Table(title=f"{dataset}: {'R squared' if dataset in REGRESSIONS else 'accuracy'}, mean and 95 % interval")
    page.add_column("")
    page.add_column("seeds", justify="right")
    for epsilon in epsilons:
        page.add_column(f"epsilon = {epsilon:g}", justify="right")
    for method in methods:
        found = [cells.get((dataset, epsilon, method), {}) for epsilon in epsilons]
        if any(found):
            page.add_row(method, str(min(len(scores) for scores in found)), *map(cell, found))
    return page


def _plot(cells: Cells, datasets: list[str], options: argparse.Namespace) -> None:
    across = min(_ACROSS, len(datasets))
    down = -(-len(datasets) // across)
    figure = Figure(figsize=(7.5 * across, 5.0 * down), layout="constrained")
    for place, dataset in enumerate(datasets):
        axes, ends = figure.add_subplot(down, across, place + 1), []
        accuracy = dataset not in REGRESSIONS
        lines = {
            method: {epsilon: cells[dataset, epsilon, method] for epsilon in options.epsilons if (dataset, epsilon, method) in cells}
            for method in options.mechanisms
        }
        means = {method: [statistics.fmean(scores.values()) for scores in line.values()] for method, line in lines.items() if line}
        lowest = _lowest(means)
        for method, heights in means.items():
            colour = {"auto": "black", NO_PRIVACY: "0.5"}.get(method, f"C{METHODS.index(method) % 10}")
            where, middle, bold = list(lines[method]), np.maximum(heights, lowest), method == "auto"
            style = "-" if method in OURS else "--"
            axes.plot(where, middle, marker="o", markersize=3, color=colour, linewidth=2.5 if bold else 1.0, linestyle=style)
            if bold:
                halves = np.array([half_width(list(scores.values())) for scores in lines[method].values()])
                axes.fill_between(where, middle - halves, middle + halves, color=colour, alpha=0.1, linewidth=0.0)
            ends.append(End(where[-1], float(middle[-1]), method, colour, bold))
        axes.set_ylim(bottom=lowest)
        axes.set_xscale("log")
        axes.set_xlabel("epsilon")
        axes.set_title(f"{dataset}: {'accuracy' if accuracy else 'R squared'}")
        open_sides(axes)
        label_ends(axes, ends)
    figure.savefig(options.plot)


def _lowest(means: dict[str, list[float]]) -> float:
    """The bottom of a plot, on which lines below it are drawn: those of interest fill its upper half."""
    top = max(max(heights) for heights in means.values())
    return 2.0 * min(means.get("auto") or min(means.values())) - top - 0.02


if __name__ == "__main__":
    main()
