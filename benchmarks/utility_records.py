"""Accuracy of private models without public data at epsilon .5, 1 and 3: Lethe's `auto`, tuned rivals, no privacy. `make records`.

    python benchmarks/utility_records.py --data FOLDER [--datasets digits adult] [--methods auto] [--seeds 5] [--fewer-seeds mnist=3]

Every trained model adds a line to the file of results, from which the page and its pictures are made; one that was stopped goes on where
it was. FOLDER has the files that `utility_records_data.py` names (`fashion_mnist.npz` as `mnist.npz`: x_train, y_train, x_test, y_test);
sets whose file is absent are left out, and it says so. Scattering features are computed once and kept in the folder of `--cache`.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from private_linear_data import Problem
from private_linear_rivals import NotPossible, score
from resumable import read_lines
from rich.console import Console
from rich.progress import Progress
from stored_results import append
from utility_records_data import DATASETS
from utility_records_methods import AUTO, METHODS, PLAIN, SEARCH, TUNED, WHITENED, Settings, grid, train, whitened
from utility_records_summary import TUNING_SEED, best_settings, print_tables

RESULTS = Path(__file__).with_name("results") / "utility_records.jsonl"
EPSILONS = (0.5, 1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Unit:
    """One model to train; the method's own row of results, or one place of its grid."""

    dataset: str
    epsilon: float
    seed: int
    method: str
    settings: Settings | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What it is found by in the results."""
        return (self.dataset, self.epsilon, self.seed, self.method, self.settings)


def main() -> None:
    """Train what is missing, and print the tables."""
    options = _options()
    torch.set_num_threads(1)
    notes = Console(stderr=True)
    rows = read_lines(options.results)
    options.cache.mkdir(parents=True, exist_ok=True)
    with Progress(console=notes, transient=True) as bar:
        for name in options.datasets:
            missing = DATASETS[name].file
            if missing is not None and (options.data is None or not (options.data / missing).is_file()):
                notes.print(f"{name}: left out, there is no {missing} in {options.data or 'any folder; give one with --data'}")
                continue
            _train(name, rows, options, bar)
    print_tables(rows, Console(width=170))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the .npz files")
    parser.add_argument("--cache", type=Path, default=Path("build/records"), help="folder of features that were computed once")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fewer-seeds", nargs="+", default=[], metavar="NAME=COUNT", help="for a data set, a method, or SET/METHOD")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def _train(name: str, rows: list[dict[str, Any]], options: argparse.Namespace, bar: Progress) -> None:
    """What is missing of one data set: the grids first, one noise and split for all, then the methods."""
    tuning = [unit for unit in _grid(name, options) if unit.key not in _done(rows)]
    _carry_out(tuning, rows, options, bar)
    work = [unit for unit in _methods(name, rows, options) if unit.key not in _done(rows)]
    _carry_out(work, rows, options, bar)


def _grid(name: str, options: argparse.Namespace) -> Iterator[Unit]:
    known = DATASETS[name]
    for epsilon in () if known.screened else options.epsilons:
        for method in dict.fromkeys(TUNED[method] for method in options.methods if method in TUNED):
            for seed, settings in itertools.product(range(known.tuning_seeds), grid(method, known)):
                yield Unit(name, epsilon, TUNING_SEED + seed, method, settings)


def _methods(name: str, rows: list[dict[str, Any]], options: argparse.Namespace) -> Iterator[Unit]:
    fewer: dict[str, int] = {key: int(count) for key, count in (entry.rsplit("=", 1) for entry in options.fewer_seeds)}
    for epsilon in options.epsilons:
        for seed in range(options.seeds):
            for method in options.methods:
                if seed >= min(fewer.get(key, int(options.seeds)) for key in (name, method, f"{name}/{method}")):
                    continue
                if method == SEARCH and DATASETS[name].channels is not None:
                    continue
                settings = best_settings(rows, name, epsilon, TUNED[method]) if method in TUNED else None
                if settings is None and method in TUNED:  # nothing was screened
                    continue
                yield Unit(name, 0.0 if method == PLAIN else epsilon, seed, method, settings)


def _done(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {Unit(r["dataset"], r["epsilon"], r["seed"], r["method"], r["settings"] and tuple(r["settings"])).key for r in rows}


def _carry_out(work: list[Unit], rows: list[dict[str, Any]], options: argparse.Namespace, bar: Progress) -> None:
    loaded: tuple[int, Problem] | None = None
    white: tuple[tuple[float, int], tuple[Problem, float]] | None = None
    task = bar.add_task("training", total=len(work))
    for unit in dict.fromkeys(work):
        bar.update(task, description=f"{unit.dataset}, epsilon {unit.epsilon:g}, seed {unit.seed}, {unit.method}")
        known = DATASETS[unit.dataset]
        if loaded is None or loaded[0] != unit.seed:
            loaded = unit.seed, known.load(options.data, options.cache, unit.seed)
        problem, left, mechanism = loaded[1], unit.epsilon, "auto"
        started = time.process_time()
        if unit.method == WHITENED or (known.channels is not None and unit.method == AUTO):
            if white is None or white[0] != (unit.epsilon, unit.seed):
                white = None  # one table at a time
                white = (unit.epsilon, unit.seed), whitened(problem, known.channels, unit.epsilon, unit.seed)
            # Named, so that the whitening's share and the model's add up by their squares; "auto" takes the same of these facts.
            (problem, left), mechanism = white[1], "pass_ends"
        prepared = time.process_time()
        row: dict[str, Any] = {
            "dataset": unit.dataset, "method": unit.method, "epsilon": unit.epsilon, "seed": unit.seed, "settings": unit.settings,
            "score": None, "why": "",
        }  # fmt: skip
        try:
            predict, told = train(unit.method, problem, left, unit.seed, unit.settings, mechanism)
            row |= told | {"score": score(problem, np.asarray(predict(problem.test)))}
        except NotPossible as reason:
            row["why"] = str(reason)
        ended = time.process_time()
        row |= {"seconds": round(ended - prepared, 2), "whitening_seconds": round(prepared - started, 2)}
        if row["why"] != "not installed":  # it may be, next time
            append(options.results, row)
        rows.append(row)
        bar.advance(task)
    bar.remove_task(task)


if __name__ == "__main__":
    main()
