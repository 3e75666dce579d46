"""Data sets for the benchmark of private linear models: every row scaled to norm at most 1 by public constants, split by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Records to train on and records to score on, with the facts that every method is told.

    Args:
        train: features, shape (n, d), rows of norm at most 1.
        train_targets: class numbers, or targets in `target_range`.
        test: features, shape (m, d).
        test_targets: as `train_targets`.
        column_bound: every feature lies within plus and minus it.
        target_range: of a regression; None for classes.
    """

    train: Array
    train_targets: Array
    test: Array
    test_targets: Array
    column_bound: float
    target_range: tuple[float, float] | None = None

    @property
    def classes(self) -> int:
        """How many; 0 for a regression."""
        return 0 if self.target_range else int(max(self.train_targets.max(), self.test_targets.max())) + 1


def adult(folder: Path, seed: int) -> Problem:
    """Census income: numbers over their public ranges, categories as columns; the original test part."""
    with np.load(folder / "adult.npz", allow_pickle=False) as file:
        parts = [_adult_rows(file, part) for part in ("train", "test")]
        labels = [file[f"y_{part}"].astype(np.float64) for part in ("train", "test")]
    return Problem(train=parts[0], train_targets=labels[0], test=parts[1], test_targets=labels[1], column_bound=1.0 / np.sqrt(14.0))


def mnist(folder: Path, seed: int) -> Problem:
    """Digits, every picture divided by its own norm; the original test part."""
    with np.load(folder / "mnist.npz", allow_pickle=False) as file:
        pictures = [file[f"x_{part}"].reshape(-1, 784).astype(np.float64) for part in ("train", "test")]
        labels = [file[f"y_{part}"].astype(np.float64) for part in ("train", "test")]
    rows = [picture / np.maximum(np.linalg.norm(picture, axis=1, keepdims=True), 1e-9) for picture in pictures]
    return Problem(train=rows[0], train_targets=labels[0], test=rows[1], test_targets=labels[1], column_bound=1.0)


def california_housing(folder: Path, seed: int) -> Problem:
    """House values in 100 000 dollars: places and ages over their public ranges, counts by their logarithms; a fifth to score on."""
    with np.load(folder / "california_housing.npz", allow_pickle=False) as file:
        raw, ocean, value = file["x"].astype(np.float64), file["ocean"], file["y"].astype(np.float64) / 1e5
    # Longitude, latitude, age, rooms, bedrooms, people, households, income in 10 000 dollars; counts from 1 to 50 000.
    low = np.array([-124.5, 32.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    high = np.array([-114.0, 42.0, 52.0, *[np.log(5e4)] * 4, 15.0])
    raw[:, 3:7] = np.log(np.maximum(raw[:, 3:7], 1.0))
    middled = (2.0 * raw - low - high) / (high - low)
    numbers = np.clip(np.where(np.isnan(middled), 0.0, middled), -1.0, 1.0)
    rows = np.hstack([numbers, np.eye(5)[ocean]]) / 3.0
    return _split(rows, value, seed, column_bound=1.0 / 3.0, target_range=(0.0, 5.0))


def made_classes(folder: Path, seed: int) -> Problem:
    """20 000 records of 20 features with a falling spectrum and labels of a logistic model; everything drawn anew for each seed.

    From epsilon = 3 on, all good methods are as good as without privacy: what it tells is that none of them loses anything there.
    """
    rows, labels = _labelled(np.random.default_rng([1, seed]), 25_000)
    return _split(rows, labels, seed, column_bound=1.0)


def few_classes(folder: Path, seed: int) -> Problem:
    """As `made_classes`, with 2000 records, for which privacy has a price at every epsilon, and 20 000 to score on."""
    rows, labels = _labelled(np.random.default_rng([4, seed]), 22_000)
    return Problem(train=rows[:2_000], train_targets=labels[:2_000], test=rows[2_000:], test_targets=labels[2_000:], column_bound=1.0)


def made_values(folder: Path, seed: int) -> Problem:
    """20 000 records of 20 features with a falling spectrum and targets of a linear model, truncated at plus and minus 1."""
    rng = np.random.default_rng([2, seed])
    rows = _directions(rng, 25_000, 20)
    weights = rng.standard_normal(20)
    clean = rows @ (weights / np.linalg.norm(weights))
    values = np.clip(clean + 0.1 * rng.standard_normal(25_000), -1.0, 1.0)
    return _split(rows, values, seed, column_bound=1.0, target_range=(-1.0, 1.0))


DATASETS: dict[str, Callable[[Path, int], Problem]] = {
    "adult": adult,
    "california_housing": california_housing,
    "few_classes": few_classes,
    "made_classes": made_classes,
    "made_values": made_values,
    "mnist": mnist,
}
REGRESSIONS = ("california_housing", "made_values")
FROM_FILES = ("adult", "california_housing", "mnist")


def _adult_rows(file: Any, part: str) -> Array:
    """Fourteen attributes, none longer than 1, over the root of fourteen."""
    tops = np.array([90.0, 1.5e6, 16.0, 99_999.0, 5_000.0, 99.0])
    numbers = np.clip(file[f"num_{part}"] / tops, 0.0, 1.0)
    codes = file[f"cat_{part}"]
    sizes = (9, 16, 7, 15, 6, 5, 2, 42)
    columns = [np.eye(size)[codes[:, place]] for place, size in enumerate(sizes)]
    return np.hstack([numbers, *columns]) / np.sqrt(14.0)


def _labelled(rng: np.random.Generator, records: int) -> tuple[Array, Array]:
    rows = _directions(rng, records, 20)
    weights = rng.standard_normal(20)
    scores = 10.0 * rows @ (weights / np.linalg.norm(weights))
    return rows, (rng.random(records) < 1.0 / (1.0 + np.exp(-scores))).astype(np.float64)


def _directions(rng: np.random.Generator, records: int, columns: int) -> Array:
    drawn = rng.standard_normal((records, columns)) / np.sqrt(np.arange(1, columns + 1))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _split(rows: Array, targets: Array, seed: int, *, column_bound: float, target_range: tuple[float, float] | None = None) -> Problem:
    order = np.random.default_rng([3, seed]).permutation(len(rows))
    first = len(rows) * 4 // 5
    train, test = order[:first], order[first:]
    bounded = targets if target_range is None else np.clip(targets, *target_range)
    return Problem(
        train=rows[train],
        train_targets=bounded[train],
        test=rows[test],
        test_targets=targets[test],
        column_bound=column_bound,
        target_range=target_range,
    )
