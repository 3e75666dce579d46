"""Problems for the benchmark of heavy-tailed models, each with the constants that its methods are told.

Moments are those of a draw of their own with a fixed seed, public knowledge that a user would have from elsewhere; where the law has none
of that order the number is finite all the same, and the theorems do not apply. Contaminated data are scored, and their constants taken,
without the contamination.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

Array = np.ndarray[Any, np.dtype[np.float64]]
LAWS = ("student", "pareto", "contaminated")
REAL = ("nyc_taxi", "california")
MOST = 100_000
_RANGE = 100.0  # in scales of a column: what a user who has only a range would declare
_NORMS = {"linear": 0.5, "logistic": 3.0}  # of the teacher; the domain has twice that radius


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Records, constants and a score.

    Args:
        kind: "linear" or "logistic".
        features: shape (n, d).
        targets: shape (n,).
        radius: of the domain.
        gap: of weights, shape (d,): excess risk on clean data, or mean absolute error on a test part; less is better.
        constants: smoothness, strong_convexity, start (the moment of order 2 at 0), uniform (of the largest gradient, order 2), fourth
            (the same, order 4), lipschitz (for the declared range); those not known are absent.
        intercept: whether to fit one.
    """

    kind: str
    features: Array
    targets: Array
    radius: float
    gap: Callable[[Array], float]
    constants: dict[str, float]
    intercept: bool = False


def made(kind: str, law: str, columns: int, seed: int) -> Problem:
    """100 000 records of a linear or logistic model whose features have variances from 0.1 to 1, drawn anew for each seed."""
    rng = np.random.default_rng([LAWS.index(law), kind == "linear", columns, seed])
    features = _features(law, columns, MOST, rng)
    targets = _targets(kind, features, rng)
    if law == "contaminated":
        bad = rng.random(MOST) < 0.01
        features[bad] *= 100.0
        targets[bad] = 1000.0 if kind == "linear" else 1.0
    teacher = _teacher(kind, columns)
    squares = np.linspace(0.1, 1.0, columns)
    if kind == "linear":
        gap = lambda weights: float(0.5 * squares @ (weights - teacher) ** 2)  # noqa: E731
    else:
        tests, labels = _tests(law, columns)
        gap = lambda weights: _log_loss(tests, labels, weights) - _log_loss(tests, labels, teacher)  # noqa: E731
    return Problem(
        kind=kind, features=features, targets=targets, radius=2.0 * _NORMS[kind], gap=gap, constants=_constants(kind, law, columns)
    )


def nyc_taxi(folder: Path, seed: int) -> Problem:
    """Minutes a ride took, over 15, from distance, fare, extras and the hour, over public constants; a fifth of the rides to score on."""
    with np.load(folder / "nyc_taxi.npz", allow_pickle=False) as file:
        columns = {name: file[name].astype(np.float64) for name in file}
    good = (columns["pickup_minute"] >= 0) & (columns["fare_amount"] > 0) & (columns["duration_min"] > 0)
    hours = columns["pickup_minute"] / 1440.0 * 2.0 * np.pi
    rows = np.stack(
        [
            columns["trip_distance"] / 5.0,
            columns["fare_amount"] / 15.0,
            columns["extra"],
            columns["tolls_amount"] / 5.0,
            np.sin(hours),
            np.cos(hours),
        ],
        axis=1,
    )
    return _real(rows[good], columns["duration_min"][good] / 15.0, seed)


def california(folder: Path, seed: int) -> Problem:
    """House values in 200 000 dollars from rooms, bedrooms and people a household, age and income, over public constants."""
    with np.load(folder / "california_housing.npz", allow_pickle=False) as file:
        raw, values = file["x"].astype(np.float64), file["y"].astype(np.float64) / 2e5
    homes = np.maximum(raw[:, 6], 1.0)
    rows = np.stack([raw[:, 3] / homes / 5.0, raw[:, 4] / homes, raw[:, 5] / homes / 3.0, raw[:, 2] / 30.0, raw[:, 7] / 4.0], axis=1)
    return _real(np.where(np.isnan(rows), 0.0, rows), values, seed)


def _real(rows: Array, targets: Array, seed: int) -> Problem:
    order = np.random.default_rng([9, seed]).permutation(len(rows))
    tests, train = order[: len(rows) // 5], order[len(rows) // 5 :][:MOST]
    # Weights come with the intercept last.
    gap = lambda weights: float(np.mean(np.abs(rows[tests] @ weights[:-1] + weights[-1] - targets[tests])))  # noqa: E731
    widest = _RANGE * np.sqrt(rows.shape[1] + 1.0)
    radius = 4.0
    return Problem(
        kind="linear",
        features=rows[train],
        targets=targets[train],
        radius=radius,
        gap=gap,
        constants={"lipschitz": (radius * widest + _RANGE) * widest},
        intercept=True,
    )


def _features(law: str, columns: int, records: int, rng: np.random.Generator) -> Array:
    scales = np.sqrt(np.linspace(0.1, 1.0, columns))
    if law == "student":
        return scales * rng.standard_t(5, size=(records, columns)) / np.sqrt(5.0 / 3.0)
    if law == "pareto":
        signs = rng.integers(0, 2, size=(records, columns)) * 2.0 - 1.0
        return scales * signs * (1.0 + rng.pareto(5.0, size=(records, columns))) / np.sqrt(5.0 / 3.0)
    return scales * rng.standard_normal((records, columns))


def _targets(kind: str, features: Array, rng: np.random.Generator) -> Array:
    scores = features @ _teacher(kind, features.shape[1])
    if kind == "linear":
        return scores + rng.standard_t(3, size=len(features)) / np.sqrt(3.0)
    return (rng.random(len(features)) < special.expit(scores)).astype(np.float64)


def _teacher(kind: str, columns: int) -> Array:
    return np.full(columns, _NORMS[kind] / np.sqrt(columns))


def _log_loss(features: Array, labels: Array, weights: Array) -> float:
    return float(np.mean(np.logaddexp(0.0, (1.0 - 2.0 * labels) * (features @ weights))))


@lru_cache
def _tests(law: str, columns: int) -> tuple[Array, Array]:
    rng = np.random.default_rng([7, LAWS.index(law), columns])
    features = _features(law, columns, 20_000, rng)
    return features, _targets("logistic", features, rng)


@lru_cache
def _constants(kind: str, law: str, columns: int) -> dict[str, float]:
    rng = np.random.default_rng([8, LAWS.index(law), columns])
    features = _features(law, columns, 50_000, rng)
    targets, norms = _targets(kind, features, rng), np.linalg.norm(features, axis=1)
    scale = np.sqrt(np.linspace(0.1, 1.0, columns).sum())
    radius, widest = 2.0 * _NORMS[kind], _RANGE * scale
    if kind == "linear":
        first, largest, lipschitz = np.abs(targets) * norms, (np.abs(targets) + radius * norms) * norms, (radius * widest + _RANGE) * widest
    else:
        first, largest, lipschitz = 0.5 * norms, norms, widest
    known = {
        "start": float(np.mean(first**2) ** 0.5),
        "uniform": float(np.mean(largest**2) ** 0.5),
        "fourth": float(np.mean(largest**4) ** 0.25),
        "lipschitz": float(lipschitz),
        "smoothness": 1.0 if kind == "linear" else 0.25,
    }
    return known | ({"strong_convexity": 0.1} if kind == "linear" else {})
