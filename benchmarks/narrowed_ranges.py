"""What it gains to narrow a range of targets that is given: R squared without, and the difference, of close ranges and of wide ones.

    python benchmarks/narrowed_ranges.py --data FOLDER [--seeds 4] [--records 8000] [--epsilons 0.3 1 3]

One record replaced by another, delta = 1e-5, rows of norm at most 1 by public constants. FOLDER has adult.npz and nyc_taxi.npz. Seeds draw
the records and the noise; mean, and of the difference the 95 % interval, seed by seed. Tips and education were held out while the rule was
made, minutes, fares, ages and hours were not.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from private_linear_data import adult
from private_linear_summary import half_width
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.metrics import r2_score
from utility_records_data import ride_rows

from lethe.estimators import LinearRegression
from lethe.estimators.options import EstimatorOptions

_TESTED = 20_000
_BY_CARD = 1  # payment_type of the rides, whose tips are written down


class Values(NamedTuple):
    """One regression: which column of which file, and two ranges that somebody might give for it."""

    name: str
    column: str | int
    close: tuple[float, float]
    wide: tuple[float, float]


VALUES = (
    Values("minutes of rides", "duration_min", (0.0, 60.0), (0.0, 180.0)),
    Values("fares", "fare_amount", (0.0, 60.0), (0.0, 200.0)),
    Values("age", 0, (17.0, 90.0), (0.0, 120.0)),
    Values("hours", 5, (0.0, 99.0), (0.0, 168.0)),
    Values("tips", "tip_amount", (0.0, 10.0), (0.0, 50.0)),
    Values("education", 2, (1.0, 16.0), (0.0, 40.0)),
)
Rows = tuple[np.ndarray, np.ndarray]


def rides(folder: Path, column: str, seed: int) -> Rows:
    """Rows of rides and a number of each, in an order drawn by the seed."""
    with np.load(folder / "nyc_taxi.npz", allow_pickle=False) as file:
        held = {name: file[name] for name in file.files}
    told = (held["pickup_minute"] >= 0) & (held["fare_amount"] > 0) & (held["duration_min"] > 0)
    if column == "tip_amount":
        told &= held["payment_type"] == _BY_CARD
    places = np.random.default_rng([5, seed]).permutation(np.flatnonzero(told))[: 3 * _TESTED]
    return ride_rows(held, places), held[column][places].astype(np.float64)


def people(folder: Path, column: int, seed: int) -> Rows:
    """Rows of adult without one of its numbers, and that number, in an order drawn by the seed."""
    problem = adult(folder, seed)
    with np.load(folder / "adult.npz", allow_pickle=False) as file:
        numbers = np.concatenate([file["num_train"], file["num_test"]])[:, column].astype(np.float64)
    rows = np.delete(np.vstack([problem.train, problem.test]), column, axis=1)
    order = np.random.default_rng([6, seed]).permutation(len(rows))
    return rows[order], numbers[order]


def scores(folder: Path, values: Values, ends: tuple[float, float], epsilon: float, records: int, seeds: int) -> list[tuple[float, float]]:
    """R squared on other records, without and with, of each seed."""
    found = []
    load: Callable[..., Rows] = rides if isinstance(values.column, str) else people
    for seed in range(seeds):
        rows, targets = load(folder, values.column, seed)
        targets = np.clip(targets, *values.wide)  # a ride that nobody ended would be all that is scored
        fits = (
            LinearRegression(
                epsilon=epsilon,
                feature_norm=1.0,
                target_bound=ends,
                options=EstimatorOptions(narrow_range=narrow),
                delta=1e-5,
                neighbours="replace_one",
                random_state=seed,
                seed_noise=True,
            ).fit(rows[:records], targets[:records])
            for narrow in (False, "auto")
        )
        tested = slice(records, records + _TESTED)
        without, with_it = (float(r2_score(targets[tested], fit.predict(rows[tested]))) for fit in fits)
        found.append((without, with_it))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--records", type=int, default=8000)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.3, 1.0, 3.0])
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    table = Table("targets", "range", *(f"epsilon = {epsilon:g}" for epsilon in asked.epsilons))
    places = [(values, ends) for values in VALUES for ends in (values.close, values.wide)]
    for values, ends in track(places, "training", console=Console(stderr=True)):
        line = []
        for epsilon in asked.epsilons:
            found = scores(asked.data, values, ends, epsilon, asked.records, asked.seeds)
            gains = [with_it - without for without, with_it in found]
            line.append(f"{statistics.mean(one for one, _ in found):.3f}, {statistics.mean(gains):+.3f} ± {half_width(gains):.3f}")
        table.add_row(values.name, f"{ends[0]:g} to {ends[1]:g}", *line)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
