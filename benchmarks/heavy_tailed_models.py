"""Risk of private linear models on data with heavy tails or outliers: smooth solvers, three kinds of settings, a Lipschitz baseline.

    python benchmarks/heavy_tailed_models.py [--data FOLDER] [--seeds 20] [--problems linear-student nyc_taxi]
        [--columns 10 100] [--records 1000 10000 100000] [--epsilons 0.5 1 3] [--results FILE] [--plot FILE]

One record replaced by another, delta = 1e-5. Excess risk on clean data where they are generated, mean absolute error on a test part of
nyc_taxi.npz and california_housing.npz (left out without FOLDER); less is better. Every model adds a line to the file of results, and a run
that was stopped goes on where it was. Mean and 95 % interval over seeds, which draw the data, or the split, and the noise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections import defaultdict
from pathlib import Path

from heavy_tailed_data import LAWS, REAL, Problem, california, made, nyc_taxi
from heavy_tailed_methods import METHODS, NO_PRIVACY, ONCE, ZERO, NotPossible, train
from private_linear_summary import Scores, behind, cell
from resumable import read_lines
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lethe.report.drawing import End, Figure, label_ends, open_sides

PROBLEMS = (*(f"{kind}-{law}" for kind in ("linear", "logistic") for law in LAWS), *REAL)
FILES = {"nyc_taxi": "nyc_taxi.npz", "california": "california_housing.npz"}
MOST_CALIFORNIA = 10_000

Place = tuple[str, int, int, float]  # problem, columns (0: its own), records, epsilon
Cells = dict[Place, dict[str, Scores]]
Work = tuple[str, int, int, int, str, float]  # problem, columns, seed, records, method, epsilon


def main() -> None:
    """Train what is missing, print the tables and what they say, save the plot."""
    warnings.simplefilter("ignore")
    options, console, notes = _options(), Console(width=170), Console(stderr=True)
    absent = [name for name in options.problems if name in FILES and not (options.data and (options.data / FILES[name]).is_file())]
    for name in absent:
        notes.print(f"{name}: left out, there is no {FILES[name]}; give its folder with --data")
    problems = [name for name in options.problems if name not in absent]
    rows = read_lines(options.results)
    done = {(row["problem"], row["columns"], row["seed"], row["records"], row["method"], row["epsilon"]) for row in rows}
    _train([one for one in _work(options, problems) if one not in done], rows, options, notes)
    cells = _cells(rows, options)
    for place in dict.fromkeys((problem, columns) for problem, columns, _, _ in cells):
        for epsilon in options.epsilons:
            console.print(_table(cells, *place, epsilon, options.records))
    for method, why in sorted({(row["method"], row["why"]) for row in rows if row["score"] is None}):
        where = sorted({row["problem"] for row in rows if (row["method"], row["why"]) == (method, why)})
        console.print(f"not possible: {method}: {why} ({', '.join(where)})", highlight=False)
    for line in _verdicts(cells):
        console.print(line, highlight=False)
    if options.plot is not None and cells:
        _plot(cells, options)
        notes.print(f"plot: {options.plot}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the .npz files")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--columns", nargs="+", type=int, default=[10, 100])
    parser.add_argument("--records", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 3.0])
    parser.add_argument("--results", type=Path, default=Path("heavy_tailed_models.jsonl"))
    parser.add_argument("--plot", type=Path)
    return parser.parse_args()


def _work(options: argparse.Namespace, problems: list[str]) -> list[Work]:
    """Seed by seed, so that a run that is stopped has whole seeds; without privacy once, with epsilon 0."""
    work: list[Work] = []
    for seed in range(options.seeds):
        for name in problems:
            for columns in [0] if name in REAL else options.columns:
                for records in options.records:
                    if name == "california" and records > MOST_CALIFORNIA:
                        continue
                    for method in options.methods:
                        epsilons = [0.0] if method in ONCE else options.epsilons
                        work += [(name, columns, seed, records, method, epsilon) for epsilon in epsilons]
    return work


def _train(work: list[Work], rows: list[dict], options: argparse.Namespace, console: Console) -> None:
    held: tuple[tuple[str, int, int], Problem] | None = None
    with Progress(transient=True, console=console) as bar, options.results.open("a") as file:
        task = bar.add_task("training", total=len(work))
        for name, columns, seed, records, method, epsilon in work:
            bar.update(task, description=f"{name}, d {columns}, seed {seed}, n {records}, {method}")
            if held is None or held[0] != (name, columns, seed):
                held = (name, columns, seed), _problem(name, columns, seed, options.data)
            row = {"problem": name, "columns": columns, "seed": seed, "records": records, "method": method, "epsilon": epsilon}
            row |= {"score": None, "why": ""}
            started = time.perf_counter()
            try:
                row["score"] = held[1].gap(train(method, held[1], records, epsilon, seed))
            except NotPossible as reason:
                row["why"] = str(reason)
            row["seconds"] = round(time.perf_counter() - started, 3)
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
            bar.advance(task)


def _problem(name: str, columns: int, seed: int, folder: Path | None) -> Problem:
    if name in REAL:
        assert folder is not None
        return (nyc_taxi if name == "nyc_taxi" else california)(folder, seed)
    kind, law = name.split("-")
    return made(kind, law, columns, seed)


def _cells(rows: list[dict], options: argparse.Namespace) -> Cells:
    """Sorted as the options are; what needs no privacy is in every epsilon."""
    found: Cells = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row["score"] is not None:
            for epsilon in options.epsilons if row["method"] in ONCE else [row["epsilon"]]:
                found[row["problem"], row["columns"], row["records"], epsilon][row["method"]][row["seed"]] = row["score"]
    return {
        place: dict(found[place])
        for place in sorted(found, key=lambda place: (PROBLEMS.index(place[0]), *place[1:]))
        if place[0] in options.problems and place[2] in options.records and place[3] in options.epsilons
    }


def _table(cells: Cells, problem: str, columns: int, epsilon: float, records: list[int]) -> Table:
    what = "mean absolute error" if problem in REAL else f"excess risk, d = {columns}"
    page = Table(title=f"{problem}: {what}, epsilon = {epsilon:g}; mean and 95 % interval")
    page.add_column("")
    page.add_column("seeds", justify="right")
    for count in records:
        page.add_column(f"n = {count}", justify="right")
    for method in METHODS:
        found = [cells.get((problem, columns, count, epsilon), {}).get(method, {}) for count in records]
        if any(found):
            page.add_row(method, str(min(len(scores) for scores in found if scores)), *(cell(scores, digits=5) for scores in found))
    return page


def _verdicts(cells: Cells) -> list[str]:
    """For every method how often it is worse than no training at all, and how often the best; then the winners place by place."""
    worse, best, total = defaultdict(int), defaultdict(int), defaultdict(int)
    for found in cells.values():
        private = {method: scores for method, scores in found.items() if method not in ONCE}
        if not private or ZERO not in found:
            continue
        best[min(private, key=lambda method: statistics.fmean(private[method].values()))] += 1
        for method, scores in private.items():
            gap, noise = behind(scores, found[ZERO])  # how far zeros are above the method
            total[method] += 1
            worse[method] += gap <= noise
    lines = ["method: places where it is not better than the zero vector (by more than the 95 % interval); places where it is the best"]
    lines += [f"    {method:<32}{worse[method]:>4} of {total[method]:<4}{best[method]:>6}" for method in METHODS if total[method]]
    useless = [method for method in METHODS if total[method] and 2 * worse[method] > total[method]]
    lines.append(f"useless here, for in most places the zero vector is as good: {'; '.join(useless) or 'none'}")
    if best:
        lines.append(f"use: {max(best, key=lambda method: best[method])}")
    return lines


def _plot(cells: Cells, options: argparse.Namespace) -> None:
    panels = list(dict.fromkeys((problem, columns) for problem, columns, _, _ in cells))
    figure = Figure(figsize=(7.5 * len(options.epsilons), 4.5 * len(panels)), layout="constrained")
    for line, (problem, columns) in enumerate(panels):
        for place, epsilon in enumerate(options.epsilons):
            axes, ends = figure.add_subplot(len(panels), len(options.epsilons), line * len(options.epsilons) + place + 1), []
            for number, method in enumerate(METHODS):
                known = [
                    (count, statistics.fmean(scores.values()))
                    for count in options.records
                    if (scores := cells.get((problem, columns, count, epsilon), {}).get(method))
                ]
                if known:
                    colour = {NO_PRIVACY: "0.5", ZERO: "black"}.get(method, f"C{number % 10}")
                    axes.plot(*zip(*known, strict=True), marker="o", markersize=3, color=colour, linestyle="--" if number >= 10 else "-")
                    ends.append(End(float(known[-1][0]), max(known[-1][1], 1e-6), method, colour, method == ZERO))
            axes.set(
                xscale="log", yscale="log", xlabel="records", title=f"{problem}{f', d = {columns}' if columns else ''}, epsilon {epsilon:g}"
            )
            open_sides(axes)
            label_ends(axes, ends)
    figure.savefig(options.plot)


if __name__ == "__main__":
    main()
