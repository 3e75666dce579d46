"""Accuracy of softmax regression by the estimators with every iterate released, which the rule decides from public facts alone.

    python benchmarks/correlated_estimators.py --data mnist.npz [--seeds 5] [--results FILE]

Digits (1400 records to train on, 397 to test on, split anew for each seed) and the first 4000 pictures of MNIST in a fixed shuffle (10 000
to test on): each picture less its own mean and scaled to norm 1. Zero out, delta 1e-5, no intercept (as in `correlated_noise.py`), no
penalty. Nothing was tuned on these data. Every fit adds a line to the file of results; a benchmark that was stopped goes on where it was.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from correlated_estimators_page import DELTA, EPSILONS, METHODS, RESULTS, SETS, table
from envelope_clipping import digits
from resumable import options, read_lines

from lethe.estimators import SoftmaxRegression

RECORDS = 4000


class Unit(NamedTuple):
    """One fit."""

    data: str
    method: str
    epsilon: float
    seed: int


def mnist(path: Path) -> tuple[np.ndarray, ...]:
    """Rows to train and to test on, and their labels."""
    with np.load(path, allow_pickle=False) as stored:
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
        **METHODS[unit.method], C=np.inf, epsilon=unit.epsilon, delta=DELTA, feature_norm=1.0, classes=list(range(10)),
        fit_intercept=False, neighbours="zero_out", random_state=unit.seed, seed_noise=True,
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


def work(seeds: int) -> Iterator[Unit]:
    """Every fit; of digits, whose test part is small, twice as many."""
    for data, method, epsilon in itertools.product(SETS, METHODS, EPSILONS):
        for seed in range(2 * seeds if data == SETS[0] else seeds):
            yield Unit(data, method, epsilon, seed)


def main() -> None:
    """Fit what is missing, and print the table."""
    asked = options(__doc__, RESULTS)
    torch.set_num_threads(1)
    pictures = mnist(asked.data)
    rows: list[dict[str, Any]] = read_lines(asked.results)
    for unit in work(asked.seeds):
        told = unit._asdict()
        if any(all(row[name] == value for name, value in told.items()) for row in rows):
            continue
        told |= fitted(unit, digits(unit.seed) if unit.data == SETS[0] else pictures)
        with asked.results.open("a") as file:
            file.write(json.dumps(told) + "\n")
        rows.append(told)
    print(table(rows))


if __name__ == "__main__":
    main()
