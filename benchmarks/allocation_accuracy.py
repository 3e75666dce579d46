"""Test accuracy of random allocation and of Poisson batches at equal epsilon and epochs: a network on digits, one on MNIST, and a CNN.

    python benchmarks/allocation_accuracy.py --data mnist.npz [--seeds 5] [--results FILE]

Every iterate released, one record added or removed, delta 1e-5, clip norm 1, plain SGD. The step size is the best of a grid for Poisson
batches, the rival, on records held out of the training set, with one seed that no table shows; both designs then use it. Start and seed
of a pair of trainings are the same. Every training adds a line to the file of results; one that was stopped goes on where it was.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from private_linear_summary import half_width
from resumable import options, read_lines, required
from rich.progress import track
from sklearn.datasets import load_digits
from stored_results import append
from torch import nn

import lethe
from lethe.train import TrainOptions, fit

RESULTS = Path(__file__).with_name("results") / "allocation_accuracy.jsonl"
EPSILONS, DELTA = (1.0, 3.0, 8.0), 1e-5
STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
TUNING_SEED = 1000
POISSON, ALLOCATION = "Poisson", "random allocation"

Records = tuple[torch.Tensor, torch.Tensor]


class Task(NamedTuple):
    """A model, and what it is trained on."""

    model: Callable[[], nn.Module]
    records: int
    held_out: int
    batch_size: int
    epochs: int


TASKS = {
    "digits, 64-32-10": Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)), 1200, 200, 120, 30),
    "MNIST, 784-64-10": Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10)), 55_000, 5000, 550, 10),
    "MNIST, CNN": Task(
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 5, 2, padding=2), nn.Tanh(), nn.Conv2d(8, 16, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(576, 10)
        ),
        55_000, 5000, 550, 10,
    ),
}  # fmt: skip


@cache
def planned(task: str, design: str, epsilon: float) -> lethe.Run:
    """With the noise that epsilon asks for, and steps of size 1."""
    of = TASKS[task]
    batches = lethe.batches.Poisson(of.batch_size) if design == POISSON else lethe.batches.RandomAllocation(of.batch_size)
    run = lethe.Run(
        records=of.records, batches=batches, passes=of.epochs, step_size=1.0, clip_norm=1.0, release="all", neighbours="add_or_remove"
    )
    return lethe.plan(run, epsilon=epsilon, delta=DELTA, allow_large_delta=True)


def accuracy(task: str, run: lethe.Run, training: Records, tests: Records, seed: int) -> float:
    """Of the last iterate."""
    torch.manual_seed(seed)
    model = TASKS[task].model()
    fit(model, nn.CrossEntropyLoss(reduction="none"), training, run, options=TrainOptions(seed=seed))
    with torch.no_grad():
        return float((model(tests[0]).argmax(1) == tests[1]).double().mean())


@cache
def records(task: str, mnist: Path | None) -> tuple[Records, Records, Records]:
    """Pictures and labels: to train on, held out, and to test."""
    of = TASKS[task]
    if task.startswith("digits"):
        pictures, labels = load_digits(return_X_y=True)  # pyright: ignore[reportAssignmentType]
        order = np.random.default_rng(0).permutation(len(labels))
        pictures, labels = pictures[order].reshape(-1, 1, 8, 8) / 16.0, labels[order]
        test = slice(of.records + of.held_out, None)
        tests = pictures[test], labels[test]
    else:
        stored = np.load(required(mnist))
        pictures, labels = stored["x_train"].reshape(-1, 1, 28, 28) / 255.0, stored["y_train"]
        tests = stored["x_test"].reshape(-1, 1, 28, 28) / 255.0, stored["y_test"]
    held = slice(of.records, of.records + of.held_out)
    parts = (pictures[: of.records], labels[: of.records]), (pictures[held], labels[held]), tests
    training, held_out, tests = (
        (torch.tensor(rows, dtype=torch.float32), torch.tensor(np.asarray(to, dtype=np.int64))) for rows, to in parts
    )
    return training, held_out, tests


def best_step(rows: list[dict[str, Any]], task: str, epsilon: float) -> float:
    """Of Poisson batches, on the records held out; of equals the smallest."""
    grid = [row for row in rows if (row["task"], row["epsilon"], row["judged_on"]) == (task, epsilon, "held out")]
    return max(sorted(grid, key=lambda row: row["step_size"]), key=lambda row: row["accuracy"])["step_size"]


def table(rows: list[dict[str, Any]] | None = None) -> str:
    """A row for each task and epsilon: noise and accuracy of both designs, and the mean of the differences, with their 95 % intervals.

    Args:
        rows: of the file; None: those that are stored.
    """
    rows = read_lines(RESULTS) if rows is None else rows
    lines = [
        "| task | epsilon | step size | noise: Poisson | random allocation | accuracy: Poisson | random allocation | difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, epsilon in itertools.product(TASKS, EPSILONS):
        tested = [row for row in rows if (row["task"], row["epsilon"], row["judged_on"]) == (task, epsilon, "test")]
        of = {
            design: sorted((row for row in tested if row["design"] == design), key=lambda row: row["seed"])
            for design in (POISSON, ALLOCATION)
        }
        scores = {design: [100.0 * row["accuracy"] for row in found] for design, found in of.items()}
        gains = [ours - theirs for theirs, ours in zip(scores[POISSON], scores[ALLOCATION], strict=True)]
        cells = (
            task, f"{epsilon:g}", f"{tested[0]['step_size']:g}", *(f"{found[0]['noise_multiplier']:.3f}" for found in of.values()),
            *(f"{statistics.fmean(one):.2f} ± {half_width(one):.2f}" for one in scores.values()),
            f"{statistics.fmean(gains):+.2f} ± {half_width(gains):.2f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, and print the table."""
    asked = options(__doc__, RESULTS)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = read_lines(asked.results)

    def carry_out(unit: dict[str, Any]) -> None:
        if any(all(row[name] == value for name, value in unit.items()) for row in rows):
            return
        training, held_out, tests = records(unit["task"], asked.data)
        judged = held_out if unit["judged_on"] == "held out" else tests
        run = planned(unit["task"], unit["design"], unit["epsilon"]).replace(step_size=unit["step_size"])
        started = time.process_time()
        reached = accuracy(unit["task"], run, training, judged, unit["seed"])
        told = {
            "noise_multiplier": float(run.noise_multipliers.max()),
            "accuracy": round(reached, 6),
            "seconds": round(time.process_time() - started, 1),
        }
        append(asked.results, unit | told)
        rows.append(unit | told)

    for task, epsilon in track(list(itertools.product(TASKS, EPSILONS)), transient=True):
        common = {"task": task, "epsilon": epsilon}
        for step in STEPS:
            unit = common | {"design": POISSON, "step_size": step, "seed": TUNING_SEED, "judged_on": "held out"}
            carry_out(unit)
        step = best_step(rows, task, epsilon)
        for seed, design in itertools.product(range(asked.seeds), (POISSON, ALLOCATION)):
            carry_out(common | {"design": design, "step_size": step, "seed": seed, "judged_on": "test"})
    print(table(rows))


if __name__ == "__main__":
    main()
