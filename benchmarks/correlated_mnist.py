"""Accuracy of a small CNN on MNIST at epsilon 3, every iterate released: independent noise, correlated noise, and Poisson batches.

    python benchmarks/correlated_mnist.py --data mnist.npz [--seeds 5] [--results FILE]

20 000 records to train on, zero out, delta 1e-5, clip norm 1, plain SGD, 10 passes of 80 batches. The step size is the best of one grid for
each kind alike, by the accuracy on 5000 other records of the training set, with one seed, which no certificate covers; accuracies are on
the 10 000 test records, with other seeds. Every training adds a line to the file of results; one that was stopped goes on where it was.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from correlated_mnist_page import KINDS, RESULTS, best, table
from resumable import options, read_lines
from torch import nn

import lethe
from lethe.train import fit

RECORDS, HELD_OUT, EPSILON, DELTA = 20_000, 5000, 3.0, 1e-5
PASSES, BATCHES = 10, 80  # a pass
STEPS = (0.125, 0.25, 0.5, 1.0, 2.0)
TUNING_SEED = 1000


class Unit(NamedTuple):
    """One model to train."""

    kind: str
    passes: int
    batches: int
    step_size: float
    seed: int


def cnn() -> nn.Module:
    """8042 parameters."""
    return nn.Sequential(nn.Conv2d(1, 8, 5, 2, padding=2), nn.Tanh(), nn.Conv2d(8, 16, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(576, 10))


@cache
def planned(kind: str, passes: int, batches: int) -> lethe.Run:
    """With the noise that epsilon asks for, and steps of size 1."""
    size = RECORDS // batches
    run = lethe.Run(
        records=RECORDS, batches=lethe.Poisson(size=size) if kind.startswith("Poisson") else lethe.Cyclic(size=size),
        steps=passes * batches, step_size=1.0, clip_norm=1.0, release="all", neighbours="zero_out",
    )  # fmt: skip
    asked = lethe.correlate(run) if "correlated" in kind else run
    return lethe.plan(asked, epsilon=EPSILON, delta=DELTA)


def accuracy(run: lethe.Run, data: tuple[torch.Tensor, ...], tests: tuple[torch.Tensor, ...], seed: int) -> float:
    """Of a model that is trained on `data`, on the records of `tests`."""
    torch.manual_seed(seed)
    model = cnn()
    fit(model, nn.CrossEntropyLoss(reduction="none"), data, run, seed=seed, verify=False)
    with torch.no_grad():
        return float((model(tests[0]).argmax(1) == tests[1]).double().mean())


def mnist(path: Path) -> list[tuple[torch.Tensor, ...]]:
    """Pictures and labels: to train on, held out for tuning, and to test."""
    stored = np.load(path)
    rows, labels = stored["x_train"], stored["y_train"]
    held = slice(RECORDS, RECORDS + HELD_OUT)
    parts = ((rows[:RECORDS], labels[:RECORDS]), (rows[held], labels[held]), (stored["x_test"], stored["y_test"]))
    return [(torch.tensor(of.reshape(-1, 1, 28, 28) / 255.0, dtype=torch.float32), torch.tensor(to.astype(np.int64))) for of, to in parts]


def tuning() -> Iterator[Unit]:
    """The grid of every kind."""
    for step, kind in itertools.product(STEPS, KINDS):
        yield Unit(kind, PASSES, BATCHES, step, TUNING_SEED)


def main() -> None:
    """Train what is missing, and print the table."""
    asked = options(__doc__, RESULTS)
    torch.set_num_threads(1)
    training, held_out, tests = mnist(asked.data)
    rows: list[dict[str, Any]] = read_lines(asked.results)

    def carry_out(unit: Unit, judged_on: str, records: tuple[torch.Tensor, ...]) -> None:
        told = unit._asdict() | {"judged_on": judged_on}
        if any(all(row[name] == value for name, value in told.items()) for row in rows):
            return
        run = planned(unit.kind, unit.passes, unit.batches).replace(step_size=unit.step_size)
        started = time.process_time()
        told |= {
            "noise_multiplier": float(run.uncorrelated.noise_multipliers.max()),
            "accuracy": accuracy(run, training, records, unit.seed),
        }
        told["seconds"] = round(time.process_time() - started, 1)
        with asked.results.open("a") as file:
            file.write(json.dumps(told) + "\n")
        rows.append(told)

    for unit in tuning():
        carry_out(unit, "held out", held_out)
    for seed, kind in itertools.product(range(asked.seeds), KINDS):
        tuned = best(rows, kind)
        carry_out(Unit(kind, tuned["passes"], tuned["batches"], tuned["step_size"], seed), "test", tests)
    print(table(rows))


if __name__ == "__main__":
    main()
