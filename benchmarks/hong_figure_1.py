"""Hong, Wang & Zhou 2022, Figure 1, right: what `lethe reproduce hong-figure-1` computes, on a finer grid and kept training by training.

    python benchmarks/hong_figure_1.py --data mnist.npz [--repeats 30] [--records N] [--results FILE]

Five T (50 to 150) and four rates gamma (0.95 to 0.99): 20 points for exponential noise, the same T for uniform noise, each tried on three
synthetic sets. Every training adds a line to the file of results; one that was stopped goes on where it was, and more repeats add lines.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from resumable import read_lines, required
from stored_results import append

from lethe_experiments.hong.figure_1 import COLUMNS, QUICK, Train, Training, arguments, compared, mean_and_margin
from lethe_experiments.hong.samples import Task, images_from

RESULTS = Path(__file__).with_name("results") / "hong_figure_1.jsonl"
PLAN = replace(QUICK, steps=(50, 75, 100, 125, 150), gammas=(0.95, 0.965, 0.975, 0.99), tuning_repeats=3, repeats=30)


def key(one: Training) -> dict[str, Any]:
    """What its line has beside the numbers."""
    return {
        "task": one.task.name, "records": one.records, "steps": one.schedule.steps, "gamma": one.schedule.gamma, "seed": one.seed
    }  # fmt: skip


def stored(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Training loss and test accuracy by the values of a training's key."""
    return {tuple(row.values())[:-2]: (row["training_loss"], row["test_accuracy"]) for row in rows}


def training_on(data: Path | None, results: Path) -> Train:
    """A trainer that takes what the file has and adds what it lacks."""
    reached, images = stored(read_lines(results)), None

    def train(trainings: Iterable[Training]) -> list[tuple[float, float]]:
        nonlocal images
        from lethe_experiments.hong.two_layer_network import loss_and_accuracy

        wanted = list(trainings)
        missing = [one for one in dict.fromkeys(wanted) if tuple(key(one).values()) not in reached]
        if missing and images is None:
            images = images_from(required(data))
        for one, each in zip(missing, arguments(missing, *images, PLAN.hidden) if images else (), strict=True):
            loss, accuracy = reached[tuple(key(one).values())] = loss_and_accuracy(*each)
            append(results, key(one) | {"training_loss": loss, "test_accuracy": accuracy})
        return [reached[tuple(key(one).values())] for one in wanted]

    return train


def results_of(task: Task, size: int, reached: dict[tuple[Any, ...], tuple[float, float]]) -> list[dict[str, Any]]:
    """The rows of a set, of as many repeats as it has; none if it has fewer than two."""
    for repeats in range(PLAN.repeats, 1, -1):
        plan = replace(PLAN, repeats=repeats)
        with suppress(KeyError):
            cells = compared(task, size, plan, lambda trainings: [reached[tuple(key(one).values())] for one in trainings])
            return [dict(zip(COLUMNS, row, strict=True)) for row in cells]
    return []


def table(rows: list[dict[str, Any]] | None = None) -> str:
    """A row for each set, size and reading.

    Args:
        rows: of the file; None: those that are stored.
    """
    reached = stored(read_lines(RESULTS) if rows is None else rows)
    lines = [
        "| set, N | repeats | reading | T, uniform | T, γ, exponential | loss, uniform | difference | accuracy %, uniform | difference "
        f"| uniform, over T = {PLAN.equal_steps} |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task, size in PLAN.sets:
        found = results_of(task, size, reached)
        for uniform, exponential, difference in zip(found[0::3], found[1::3], found[2::3], strict=True):
            texts = [
                f"{task.name}, {size}",
                uniform["repeats"],
                uniform["reading"],
                uniform["steps"],
                f"{exponential['steps']}, {exponential['gamma']:g}",
            ]
            for name, unit, digits in (("training_loss", 1.0, 4), ("test_accuracy", 100.0, 2)):
                texts += [
                    f"{sign}{unit * row[name]:{form}.{digits}f} ± {unit * row[f'{name}_margin']:.{digits}f}"
                    for row, sign, form in ((uniform, "", ""), (difference, "", "+"))
                ]
            accuracies = [
                [reached[task.name, size, steps, None, seed][1] for seed in range(uniform["repeats"])]
                for steps in (uniform["steps"], PLAN.equal_steps)
            ]
            gain, margin = mean_and_margin([100.0 * (one - other) for one, other in zip(*accuracies, strict=True)])
            texts.append(f"{gain:+.2f} ± {margin:.2f}" if uniform["steps"] != PLAN.equal_steps else "-")
            lines.append(f"| {' | '.join(map(str, texts))} |")
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="mnist.npz")
    parser.add_argument("--repeats", type=int, default=PLAN.repeats)
    parser.add_argument("--records", type=int, help="compute the rows of this size only")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    train = training_on(chosen.data, chosen.results)
    for task, size in PLAN.sets:
        if chosen.records in (None, size):
            compared(task, size, replace(PLAN, repeats=chosen.repeats), train)
            print(task.name, size, flush=True)
    if chosen.records is None:
        print(table(read_lines(chosen.results)))


if __name__ == "__main__":
    main()
