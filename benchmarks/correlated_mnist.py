"""Accuracy of a small CNN on MNIST at epsilon 3, every iterate released: a fixed order and drawn batches, independent and correlated noise.

    python benchmarks/correlated_mnist.py --data mnist.npz [--seeds 5] [--results FILE]

20 000 records to train on, zero out, delta 1e-5, clip norm 1, plain SGD, 10 passes of 80 batches. Correlated noise is banded Toeplitz, with
as many bands as a pass has batches, or as there are groups; the groups are those of least predicted error. Each training is judged twice:
by its last iterate, and by a moving average of all, as `fit(..., ema=...)` makes it. The step size, and the average's decay, are the best
of one grid for each kind alike, by the accuracy on 5000 other records of the training set, with one seed, which no certificate covers;
accuracies are on the 10 000 test records, with other seeds. Every training adds a line to the file of results; one that was stopped goes on
where it was.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from correlated_mnist_page import DECAYS, JUDGED, KINDS, RESULTS, best, table
from resumable import options, read_lines, required
from stored_results import append
from torch import nn

import lethe
from lethe.calculus.correlated.matrices import prefix_sums
from lethe.calculus.correlated.sensitivity import noise_squares
from lethe.train import TrainOptions, fit
from lethe.train.network.post_processing import MovingAverage

RECORDS, HELD_OUT, EPSILON, DELTA = 20_000, 5000, 3.0, 1e-5
PASSES, BATCHES = 10, 80  # a pass
STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
TUNING_SEED = 1000


class Unit(NamedTuple):
    """One model to train."""

    kind: str
    step_size: float
    seed: int


def cnn() -> nn.Module:
    """8042 parameters."""
    return nn.Sequential(nn.Conv2d(1, 8, 5, 2, padding=2), nn.Tanh(), nn.Conv2d(8, 16, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(576, 10))


@cache
def planned(kind: str) -> lethe.Run:
    """With the noise that epsilon asks for, and steps of size 1."""
    size = RECORDS // BATCHES
    match kind:
        case "cyclic, independent noise":
            return scaled(lethe.batches.Cyclic(size))
        case "cyclic, correlated noise":
            return scaled(lethe.batches.Cyclic(size), bands=BATCHES)
        case "Poisson, independent noise":
            return scaled(lethe.batches.Poisson(size))
    groups = [number for number in range(2, BATCHES) if BATCHES % number == 0]
    return min((scaled(lethe.batches.CyclicPoisson(size, groups=number), bands=number) for number in groups), key=error_of)


def scaled(batches: Any, *, bands: int | None = None) -> lethe.Run:
    """A run with such batches, and correlated noise of so many bands, that costs epsilon."""
    run = lethe.Run(
        records=RECORDS, batches=batches, steps=PASSES * BATCHES, step_size=1.0, clip_norm=1.0, release="all", neighbours="zero_out"
    )  # fmt: skip
    return lethe.plan(run if bands is None else lethe.correlate(run, bands=bands), epsilon=EPSILON, delta=DELTA, allow_large_delta=True)


def error_of(run: lethe.Run) -> float:
    """Mean square of the noise in the iterates of a run with correlated noise, in clip norms."""
    assert run.noise is not None
    multiplier = float(run.uncorrelated.noise_multipliers.max())
    return multiplier**2 * noise_squares(run.noise.strategy(run.total_steps), prefix_sums(run.total_steps)) / run.total_steps


def accuracies(run: lethe.Run, data: tuple[torch.Tensor, ...], tests: tuple[torch.Tensor, ...], seed: int) -> dict[str, float]:
    """Of a model that is trained on `data`, on the records of `tests`: of the last iterate, "0", and of the average of each decay."""
    torch.manual_seed(seed)
    model = cnn()
    averages = {decay: MovingAverage(decay, dict(model.named_parameters()), run) for decay in DECAYS}

    def take(step: int, steps: int) -> None:
        for average in averages.values():
            average.add()

    fit(model, nn.CrossEntropyLoss(reduction="none"), data, run, options=TrainOptions(seed=seed, isolation="declared", progress=take))
    states = {"0": model.state_dict()} | {f"{decay:g}": average.of(model) for decay, average in averages.items()}
    found = dict[str, float]()
    for name, state in states.items():
        judged = cnn()
        judged.load_state_dict(state)
        with torch.no_grad():
            found[name] = round(float((judged(tests[0]).argmax(1) == tests[1]).double().mean()), 6)
    return found


def mnist(path: Path | None) -> list[tuple[torch.Tensor, ...]]:
    """Pictures and labels: to train on, held out for tuning, and to test."""
    stored = np.load(required(path))
    rows, labels = stored["x_train"], stored["y_train"]
    held = slice(RECORDS, RECORDS + HELD_OUT)
    parts = ((rows[:RECORDS], labels[:RECORDS]), (rows[held], labels[held]), (stored["x_test"], stored["y_test"]))
    return [(torch.tensor(of.reshape(-1, 1, 28, 28) / 255.0, dtype=torch.float32), torch.tensor(to.astype(np.int64))) for of, to in parts]


def tuning() -> Iterator[Unit]:
    """The grid of every kind."""
    for step, kind in itertools.product(STEPS, KINDS):
        yield Unit(kind, step, TUNING_SEED)


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
        run = planned(unit.kind).replace(step_size=unit.step_size)
        started = time.process_time()
        told |= {
            "noise_multiplier": float(run.uncorrelated.noise_multipliers.max()),
            "groups": run.batches.groups_of_records,
            "accuracies": accuracies(run, training, records, unit.seed),
        }
        told["seconds"] = round(time.process_time() - started, 1)
        append(asked.results, told)
        rows.append(told)

    for unit in tuning():
        carry_out(unit, "held out", held_out)
    for seed, kind, judged in itertools.product(range(asked.seeds), KINDS, JUDGED):
        carry_out(Unit(kind, best(rows, kind, judged).step_size, seed), "test", tests)
    print(table(rows))


if __name__ == "__main__":
    main()
