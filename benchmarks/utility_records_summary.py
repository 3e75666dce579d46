"""What the results of the benchmark of records come to: the best place of a grid, tables, and how `auto` stands to each rival."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from private_linear_summary import Cells, behind, cell
from resumable import read_lines
from rich.console import Console
from rich.table import Table
from utility_records_data import DATASETS
from utility_records_methods import AUTO, METHODS, PLAIN, POISSON, TUNED, WHITENED, Settings

Rows = list[dict[str, Any]]
SCREENING = Path(__file__).with_name("results") / "utility_records_screening.jsonl"
MEMORY = Path(__file__).with_name("results") / "utility_records_memory.jsonl"
TUNING_SEED = 100  # and above: models of a grid


def best_settings(rows: Rows, dataset: str, epsilon: float, method: str) -> Settings | None:
    """The place of a method's grid with the highest score, of several seeds their mean; of a set that was screened, the best there."""
    if DATASETS[dataset].screened:
        features = {POISSON: "plain", WHITENED: "whitened"}.get(method)
        return None if features is None else best_screened(dataset, epsilon, features)
    tried: dict[Settings, list[float]] = defaultdict(list)
    for row in rows:
        place = (row["dataset"], row["epsilon"], row["method"])
        if place == (dataset, epsilon, method) and row["seed"] >= TUNING_SEED and row["score"] is not None:
            tried[tuple(row["settings"])].append(row["score"])
    return max(tried, key=lambda settings: statistics.fmean(tried[settings]), default=None)


def best_screened(dataset: str, epsilon: float, features: str, path: Path = SCREENING) -> Settings | None:
    """The settings without momentum, which `fit_linear` has not, that were best on features that are "plain" or "whitened"."""
    tried = [row for row in screened_rows(dataset, epsilon, path) if (row["features"], row["momentum"]) == (features, 0.0)]
    best = max(tried, key=lambda row: row["score"], default=None)
    return None if best is None else (best["passes"], best["batches"], best["clip"], best["length"])


def screened_rows(dataset: str, epsilon: float, path: Path = SCREENING) -> Rows:
    """Settings that `utility_records_screening.py` tried."""
    return [row for row in read_lines(path) if (row["dataset"], row["epsilon"]) == (dataset, epsilon)]


def cells_of(rows: Rows) -> Cells:
    """Scores by set, epsilon and method; without privacy under epsilon 0. Of a tuned method those of its best settings alone."""
    found: Cells = defaultdict(dict)
    best = {
        (dataset, epsilon, method): best_settings(rows, dataset, epsilon, TUNED[method])
        for dataset, epsilon, method in {(row["dataset"], row["epsilon"], row["method"]) for row in rows if row["method"] in TUNED}
    }
    for row in rows:
        place = (row["dataset"], row["epsilon"], row["method"])
        settings = None if row["settings"] is None else tuple(row["settings"])
        if row["score"] is not None and row["seed"] < TUNING_SEED and settings == best.get(place):
            found[place][row["seed"]] = row["score"]
    return dict(found)


def print_tables(rows: Rows, console: Console) -> None:
    """For a person at a terminal."""
    cells = cells_of(rows)
    for name, known in DATASETS.items():
        epsilons = sorted({epsilon for dataset, epsilon, _ in cells if dataset == name} - {0.0})
        page = Table("", *(f"epsilon = {epsilon:g}" for epsilon in epsilons), title=f"{known.what}: accuracy, mean and 95 % interval")
        for method in METHODS:
            found = [cells.get((name, 0.0 if method == PLAIN else epsilon, method), {}) for epsilon in epsilons]
            if any(found):
                page.add_row(method, *(cell(scores, 4) for scores in found))
        if page.row_count:
            console.print(page)
    for method in TUNED:
        console.print(f"auto against {method}: {standing(rows, method)}", highlight=False)


def standing(rows: Rows, rival: str) -> str:
    """In how many places `auto` is at or above a rival, by a point, and behind it by more than noise."""
    places = [(auto, other) for auto, other in _pairs(cells_of(rows), rival) if auto.keys() & other.keys()]
    gaps = [behind(auto, other) for auto, other in places]
    level = sum(gap <= 0.0 for gap, _ in gaps)
    above, below = sum(gap <= -0.01 for gap, _ in gaps), sum(gap > noise for gap, noise in gaps)
    return f"at or above in {level} of {len(gaps)} places, above by a point or more in {above}, behind by more than noise in {below}"


def passes_of(rows: Rows, dataset: str, epsilon: float, method: str) -> int | None:
    """That the method took, on average over the seeds."""
    settings = best_settings(rows, dataset, epsilon, TUNED[method]) if method in TUNED else None
    taken = [
        row["passes"]
        for row in rows
        if (row["dataset"], row["epsilon"], row["method"]) == (dataset, epsilon, method)
        and row["seed"] < TUNING_SEED
        and row.get("passes") is not None
        and (settings is None or tuple(row["settings"]) == settings)
    ]
    return round(statistics.fmean(taken)) if taken else None


def _pairs(cells: Cells, rival: str) -> list[tuple[dict[int, float], dict[int, float]]]:
    return [(scores, cells[dataset, epsilon, rival]) for (dataset, epsilon, method), scores in sorted(cells.items())
            if method == AUTO and (dataset, epsilon, rival) in cells]  # fmt: skip
