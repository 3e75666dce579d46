"""Accuracy of softmax regression by the estimators with every iterate released, which the rule decides from public facts alone.

    python benchmarks/correlated_estimators.py --data mnist.npz [--seeds 5] [--results FILE]

Digits (1400 records to train on, 397 to test on, split anew for each seed) and the first 4000 pictures of MNIST in a fixed shuffle (10 000
to test on): each picture less its own mean and scaled to norm 1. Zero out, delta 1e-5, no penalty. Nothing was tuned on these data, but for
a rival: 20 passes of 5 batches with banded noise and clipped gradients, as in `correlated_noise.py`, whose clip norm and step size are the
best of a grid by the accuracy on the test records of the first two seeds, which no certificate covers. It is trained on the same splits.
Every fit adds a line to the file of results; a benchmark that was stopped goes on where it was.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from correlated_estimators_page import DELTA, EPSILONS, METHODS, RESULTS, RIVAL, SETS, table
from correlated_noise import CLIPS, STEPS, accuracy, run_of, strategy_of
from envelope_clipping import digits
from resumable import options, read_lines, required
from stored_results import append

import lethe
from lethe.estimators import SoftmaxRegression
from lethe.estimators.options import EstimatorOptions

RECORDS = 4000
PASSES, BATCHES = 20, 5  # of the rival


class Unit(NamedTuple):
    """One fit."""

    data: str
    method: str
    epsilon: float
    seed: int


@cache
def mnist(path: Path | None) -> tuple[np.ndarray, ...]:
    """Rows to train and to test on, and their labels."""
    with np.load(required(path), allow_pickle=False) as stored:
        first = np.random.default_rng(0).permutation(len(stored["x_train"]))[:RECORDS]
        pictures = [stored["x_train"][first], stored["x_test"]]
        labels = [stored["y_train"][first], stored["y_test"]]
    flat = [found.reshape(len(found), -1).astype(np.float64) for found in pictures]
    middled = [rows - rows.mean(axis=1, keepdims=True) for rows in flat]
    scaled = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in middled]
    return (*scaled, *labels)


def fitted(unit: Unit, data: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """What the fit reached, and what the rule chose for it."""
    rows, tests, labels, truths = data
    started = time.process_time()
    model = SoftmaxRegression(
        options=EstimatorOptions(**METHODS[unit.method]), C=np.inf, epsilon=unit.epsilon, delta=DELTA, feature_norm=1.0,
        classes=list(range(10)), neighbours="zero_out", random_state=unit.seed, seed_noise=True,
    ).fit(rows, labels)  # fmt: skip
    assert model.statement_.planned.epsilon(DELTA) <= unit.epsilon  # of the same fit with fresh noise
    run = model.run_
    assert run is not None
    return {
        "accuracy": float(model.score(tests, truths)),
        "mechanism": model.mechanism_,
        "passes": run.passes,
        "batches": run.steps_per_pass,
        "step_size": float(run.step_sizes[0]),
        "averaged": model.n_averaged_,
        "seconds": round(time.process_time() - started, 1),
    }


def rival_fitted(unit: Unit, data_of: Callable[[str, int], tuple[np.ndarray, ...]]) -> dict[str, Any]:
    """What the tuned rival reached, and its settings."""
    run = _tuned(unit.data, unit.epsilon, data_of)
    started = time.process_time()
    (score,) = accuracy(run, data_of(unit.data, unit.seed), range(100 + unit.seed, 101 + unit.seed))
    shape: dict[str, Any] = {"mechanism": "banded_toeplitz", "passes": PASSES, "batches": BATCHES, "clip": run.clip_norm, "averaged": 1}
    return {"accuracy": score, **shape, "step_size": float(run.step_sizes[0]), "seconds": round(time.process_time() - started, 1)}


@cache
def _tuned(name: str, epsilon: float, data_of: Callable[[str, int], tuple[np.ndarray, ...]]) -> lethe.Run:
    """The best of the grid on the test records of two seeds."""
    found: list[tuple[float, lethe.Run]] = []
    sets = [data_of(name, seed) for seed in range(2)]
    for clip in CLIPS:
        noise = strategy_of("banded_toeplitz", PASSES, BATCHES)
        planned = lethe.plan(run_of(noise, PASSES, BATCHES, clip, 1.0, len(sets[0][0])), epsilon=epsilon, delta=DELTA)
        for step in STEPS:
            run = planned.replace(step_size=step)
            found.append((statistics.fmean(accuracy(run, data, range(1))[0] for data in sets), run))
    return max(found, key=lambda pair: pair[0])[1]


def work(seeds: int) -> Iterator[Unit]:
    """Every fit; of digits, whose test part is small, twice as many."""
    for data, method, epsilon in itertools.product(SETS, (*METHODS, RIVAL), EPSILONS):
        for seed in range(2 * seeds if data == SETS[0] else seeds):
            yield Unit(data, method, epsilon, seed)


def main() -> None:
    """Fit what is missing, and print the table."""
    asked = options(__doc__, RESULTS)
    torch.set_num_threads(1)

    def data_of(name: str, seed: int) -> tuple[np.ndarray, ...]:
        return digits(seed) if name == SETS[0] else mnist(asked.data)

    rows: list[dict[str, Any]] = read_lines(asked.results)
    for unit in work(asked.seeds):
        told = unit._asdict()
        if any(all(row[name] == value for name, value in told.items()) for row in rows):
            continue
        told |= rival_fitted(unit, data_of) if unit.method == RIVAL else fitted(unit, data_of(unit.data, unit.seed))
        append(asked.results, told)
        rows.append(told)
    print(table(rows))


if __name__ == "__main__":
    main()
