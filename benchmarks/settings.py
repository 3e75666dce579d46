"""Accuracy of `fit` that is told epsilon and delta alone, beside the best of a grid of settings, at epsilon 3 and delta 1e-5.

    python benchmarks/settings.py --data FOLDER/mnist.npz [--seeds 5] [--results FILE]

The folder also holds adult.npz, cifar10_20k.npz and california_housing.npz. The grid is of learning rates 0.003, 0.01, 0.03 and 0.1 and
batches of 128 and 512 records; then, at the best of these, of clip norms 0.1 and 0.3 beside 1; all with AdamW, 20 epochs and the learning
rate falling to 0. The best is that of one seed, by the accuracy on held-out records, which no certificate covers; accuracies are on test
records, with other seeds. On the tasks in `OTHERS` 0.4 and 2.5 times the learning rate are tried, by the held-out records: its rule was
found there. Every training adds a line to the file of results; one that was stopped goes on where it was.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from resumable import options, read_lines
from settings_tasks import OTHERS, TASKS, Task
from stored_results import append
from torch import nn

import lethe
from lethe.train import TrainOptions, fit
from lethe.train.settings import EPOCHS, SMALL_NORM

EPSILON, DELTA = 3.0, 1e-5
RESULTS = Path(__file__).parent / "results" / "settings.jsonl"
RATES, SIZES, NORMS = (0.01, 0.03, 0.003, 0.1), (512, 128), (0.1, 0.3)
SETTINGS = ("lr", "batch_size", "clip_norm")
FACTORS = (0.4, 2.5)
TUNING_SEED = 1000
Unit = dict[str, Any]
"""One model to train: its task, its seed, and its settings, if it is told any; of a factor, what comes of it as `lr`."""


@cache
def noise(records: int, batch_size: int) -> float:
    """The noise multiplier of the grid's trainings."""
    steps = EPOCHS * -(-records // batch_size)
    size = -(-records // -(-records // batch_size))
    run = lethe.Run(
        records=records, batches=lethe.batches.RandomAllocation(size), steps=steps, step_size=1.0, clip_norm=1.0, release="all"
    )  # fmt: skip
    multiplier = lethe.plan(run, epsilon=EPSILON, delta=DELTA).noise_multiplier
    assert isinstance(multiplier, float)
    return multiplier


def trained(unit: Unit, task: Task) -> dict[str, Any]:
    """The result of a training."""
    torch.manual_seed(unit["seed"])
    model, begun, loss = task.model(), time.perf_counter(), nn.CrossEntropyLoss()
    told: dict[str, Any] = {"seed": unit["seed"], "progress": False, "isolation": "declared"}
    if unit["how"] == "left out" or "factor" in unit:
        lr = unit.get("lr")
        told |= {} if lr is None else {"lr_scheduler": "linear"}
        target: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "lr": lr, "clip_norm": None if lr is None else SMALL_NORM}
        fitted = fit(model, loss, task.train, **target, options=TrainOptions(**told))
    else:
        records, size = len(task.train[1]), unit["batch_size"]
        per_epoch = -(-records // size)
        run = lethe.Run(
            records=records,
            batches=lethe.batches.RandomAllocation(-(-records // per_epoch)),
            steps=EPOCHS * per_epoch,
            step_size=unit["lr"],
            clip_norm=unit["clip_norm"],
            noise_multiplier=noise(records, size),
            release="all",
        )
        told["lr_scheduler"] = "linear"
        fitted = fit(model, loss, task.train, run, optimizer="adamw", lr=unit["lr"], options=TrainOptions(**told))
    run = fitted.run
    facts = {"steps": run.total_steps, "size": run.batch_size, "noise": run.noise_multiplier, "step_size": run.step_size}
    scores = {"held_out": accuracy(model, task.held_out), "test": accuracy(model, task.test)}
    return {"unit": unit, **facts, **scores, "seconds": round(time.perf_counter() - begun, 1)}


@torch.no_grad()
def accuracy(model: nn.Module, records: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The share of records whose class is the one with the highest score."""
    return float((model.eval()(records[0]).argmax(1) == records[1]).float().mean())


def units(done: list[dict[str, Any]], seeds: int) -> Iterator[Unit]:
    """What is to be trained: without settings; the grid; the best of it; and on other tasks other factors."""
    for task, seed in itertools.product(TASKS, range(seeds)):
        yield {"task": task, "how": "left out", "seed": seed}
    tuned: Unit = {"how": "grid", "seed": TUNING_SEED}
    for rate, size, task in itertools.product(RATES, SIZES, TASKS):
        yield {"task": task, **tuned, "lr": rate, "batch_size": size, "clip_norm": 1.0}
    for norm, task in itertools.product(NORMS, TASKS):
        plain = [line for line in done if line["unit"].get("clip_norm") == 1.0 and line["unit"]["how"] == "grid"]
        yield {"task": task, **tuned, **best(plain, task), "clip_norm": norm}
    for task, seed in itertools.product(TASKS, range(seeds)):
        yield {"task": task, "how": "best", "seed": seed, **best(done, task)}
    for task in OTHERS:
        yield {"task": task, "how": "left out", "seed": TUNING_SEED}
    for factor, task in itertools.product(FACTORS, OTHERS):
        chosen = next(line["step_size"] for line in done if line["unit"]["task"] == task)
        yield {"task": task, "how": "factor", "seed": TUNING_SEED, "factor": factor, "lr": factor * chosen}


def best(done: list[dict[str, Any]], task: str) -> dict[str, float]:
    """The settings of the grid whose held-out accuracy is largest."""
    tried = [line for line in done if line["unit"]["task"] == task and line["unit"]["how"] == "grid"]
    unit = max(tried, key=lambda line: line["held_out"])["unit"]
    return {name: unit[name] for name in SETTINGS}


def table(lines: list[dict[str, Any]]) -> str:
    """Rows of a page: means over seeds and standard deviations, in per cent."""

    def scores(task: str, how: str) -> str:
        found = [100 * line["test"] for line in lines if (line["unit"]["task"], line["unit"]["how"]) == (task, how)]
        return f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""

    rows = [
        "| task | records | left out | best of the grid | its lr, batch, clip norm |",
        "|---|---|---|---|---|",
    ]
    for task in TASKS:
        records = next(
            round(line["size"] * line["steps"] / EPOCHS)
            for line in lines
            if (line["unit"]["task"], line["unit"]["how"]) == (task, "left out")
        )
        settings = ", ".join(f"{value:g}" for value in best(lines, task).values())
        both = f"{scores(task, 'left out')} | {scores(task, 'best')}"
        rows.append(f"| {task} | {records} | {both} | {settings} |")
    return "\n".join(rows)


def main() -> None:
    """Train what is not in the file of results yet, and print the table."""
    asked = options(__doc__, RESULTS)
    torch.set_num_threads(1)
    done, tasks = read_lines(asked.results), {}
    for unit in units(done, asked.seeds):
        if any(line["unit"] == unit for line in done):
            continue
        if unit["task"] not in tasks:
            tasks[unit["task"]] = (TASKS | OTHERS)[unit["task"]](asked.data.parent if asked.data else Path())
        line = trained(unit, tasks[unit["task"]])
        done.append(line)
        append(asked.results, line)
    print(table(done))


if __name__ == "__main__":
    main()
