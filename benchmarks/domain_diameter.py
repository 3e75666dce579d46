r"""Does a smaller domain help privacy and utility, as Liang et al. 2025 say of strongly convex losses (arXiv:2502.17772, Remark 3.13)?

    python benchmarks/domain_diameter.py [--results FILE]

scikit-learn's digits, 1400 records, ridge; projected DP-SGD from 0, the last iterate released, steps of 9/(20L), the theorem's largest, no
clipping active. The noise is `lethe.plan`'s for each diameter D and each number of steps T, (epsilon, 1e-5)-DP, one record zeroed out. D is
a share of $2\|\theta^*\|$, the least that holds the minimiser, or infinite. A row has the mean regularised training loss less its minimum,
and accuracy on 397 other records; a seed draws the same noise whatever D and epsilon are.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from private_linear_summary import half_width
from resumable import read_lines
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import lethe

RESULTS = Path(__file__).with_name("results") / "domain_diameter.jsonl"
DELTA, RECORDS = 1e-5, 1400
EPSILONS = (0.1, 0.5, 2.0, 8.0)
SHARES = (1 / 128, 1 / 16, 1 / 4, 1.1, math.inf)
DESIGNS = {"full": lethe.batches.Full(), "cyclic": lethe.batches.Cyclic(140)}
Array = npt.NDArray[np.float64]


class Task(NamedTuple):
    """A linear classifier with classes - 1 free scores; two classes share one score, w and -w half each."""

    name: str
    rows_alone: bool
    strength: float
    steps: tuple[tuple[int, ...], ...]
    seeds: int
    loss: Any


TASKS = (
    Task("ten digits, 64 pixels", False, 1e-3, ((50, 500), (50, 500, 3000)), 4, lethe.losses.Softmax(feature_norm=1.0)),
    Task("below five or not, 8 rows", True, 1e-5, ((50, 500, 5000), (50, 500, 5000, 20_000)), 10, lethe.losses.Logistic(feature_norm=1.0)),
)


class Problem:
    """The records of a task, features of norm at most 1, its risk and its minimiser."""

    def __init__(self, task: Task) -> None:
        self.task = task
        pixels, digits = load_digits(return_X_y=True)
        features = pixels / 16.0
        if task.rows_alone:
            features, digits = 2.0 * features.reshape(-1, 8, 8).mean(axis=2) - 0.6, (digits >= 5).astype(int)
        features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
        parts: Any = train_test_split(features, digits, random_state=0, train_size=RECORDS, stratify=digits)
        self.features, self.others, self.labels, self.other_labels = parts
        self.outputs = 1 if task.rows_alone else 10
        found = minimize(self._flat, np.zeros(features.shape[1] * self.outputs), jac=True, options={"gtol": 1e-9, "maxiter": 20_000})
        self.least, self.norm = float(found.fun), float(np.linalg.norm(found.x))

    def _flat(self, vector: Array) -> tuple[float, Array]:
        weights = vector.reshape(1, -1, self.outputs)
        gradient = self.gradient(weights, slice(None))[0] + self.task.strength * weights[0]
        return float(self.risks(weights)[0]), gradient.ravel()

    def _scores(self, features: Array, weights: Array) -> Array:
        """Shape (models, n, classes)."""
        scores = features @ weights
        return np.concatenate([np.zeros_like(scores), scores], axis=2) if self.outputs == 1 else scores

    def gradient(self, weights: Array, rows: slice) -> Array:
        """Of the mean loss of these records, without ridge; shape (models, d, outputs)."""
        features, labels = self.features[rows], self.labels[rows]
        if self.outputs == 1:
            return features.T @ (expit(features @ weights) - labels[:, None]) / len(labels)
        shares = softmax(features @ weights, axis=2)
        shares[:, np.arange(len(labels)), labels] -= 1.0
        return features.T @ shares / len(labels)

    def risks(self, weights: Array) -> Array:
        """The mean loss with ridge, one a model."""
        losses = -log_softmax(self._scores(self.features, weights), axis=2)[:, np.arange(RECORDS), self.labels]
        return losses.mean(axis=1) + self.task.strength / 2.0 * np.square(weights).sum(axis=(1, 2))

    def accuracies(self, weights: Array) -> Array:
        """On the other records."""
        return (self._scores(self.others, weights).argmax(axis=2) == self.other_labels).mean(axis=1)


@cache
def problem_of(task: Task) -> Problem:
    """Its problem, made once."""
    return Problem(task)


def planned(problem: Problem, design: str, steps: int, epsilon: float, diameter: float) -> lethe.Run:
    """With the noise that epsilon asks for."""
    task = problem.task
    domain = () if diameter == math.inf else (lethe.regularisers.Ball(diameter / 2.0),)
    smoothness = task.loss.smoothness + task.strength
    run = lethe.Run(
        records=RECORDS, batches=DESIGNS[design], steps=steps, step_size=9.0 / (20.0 * smoothness), noise_multiplier=1.0, loss=task.loss,
        regulariser=(lethe.regularisers.L2(task.strength), *domain), release="last", neighbours="zero_out",
    )  # fmt: skip
    return lethe.plan(run, epsilon=epsilon, delta=DELTA)


def measured(task: Task, design: str, steps: int, settings: list[tuple[float, float]]) -> Iterator[dict[str, Any]]:
    """A row for each pair of epsilon and share, all trained side by side."""
    problem = problem_of(task)
    runs = [planned(problem, design, steps, epsilon, 2.0 * problem.norm * share) for epsilon, share in settings]
    size, step_size = runs[0].batch_size, float(runs[0].step_sizes[0])
    stds = np.array([run.noise_stds[0] for run in runs]).repeat(task.seeds)[:, None, None]
    radii = np.array([problem.norm * share for _, share in settings]).repeat(task.seeds)[:, None, None]
    generators = [np.random.default_rng(seed) for seed in range(task.seeds)]
    shape = (problem.features.shape[1], problem.outputs)
    weights = np.zeros((len(radii), *shape))
    for step in range(steps):
        start = step * size % RECORDS
        noise = np.tile([generator.standard_normal(shape) for generator in generators], (len(settings), 1, 1))
        weights += stds * noise - step_size * problem.gradient(weights, slice(start, start + size))
        weights /= 1.0 + step_size * task.strength
        weights *= np.minimum(1.0, radii / np.linalg.norm(weights, axis=(1, 2), keepdims=True))
    excess, accuracies = problem.risks(weights) - problem.least, problem.accuracies(weights)
    for place, (run, (epsilon, share)) in enumerate(zip(runs, settings, strict=True)):
        of_this = slice(place * task.seeds, (place + 1) * task.seeds)
        yield {
            "task": task.name,
            "batches": design,
            "steps": steps,
            "epsilon": epsilon,
            "share": None if share == math.inf else share,
            "diameter": None if share == math.inf else 2.0 * problem.norm * share,
            "noise_multiplier": float(run.noise_multipliers[0]),
            "excess": float(excess[of_this].mean()),
            "excess_half_width": half_width(excess[of_this].tolist()),
            "excess_of_zero": float(problem.risks(np.zeros((1, *shape)))[0]) - problem.least,
            "accuracy": float(accuracies[of_this].mean()),
        }


def table() -> str:
    """By task and epsilon, of mini-batches: the least excess with and without a domain; at most steps, the best that lowers the noise."""
    rows = read_lines(RESULTS)
    lines = [
        "| excess risk | ε | zero vector | no domain (best T) | domain (best D, T) | no domain, most steps: noise | with less noise (D) |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, epsilon in itertools.product(TASKS, EPSILONS):
        here = [row for row in rows if (row["task"], row["batches"], row["epsilon"]) == (task.name, "cyclic", epsilon)]
        free, within = [row for row in here if row["diameter"] is None], [row for row in here if row["diameter"] is not None]
        best, bound = (min(part, key=lambda row: row["excess"]) for part in (free, within))
        last = [row for row in here if row["steps"] == max(row["steps"] for row in here)]
        end = next(row for row in last if row["diameter"] is None)
        helped = min((row for row in last if row["noise_multiplier"] < 0.999 * end["noise_multiplier"]), key=lambda row: row["excess"])
        cells = (
            f"{task.name}, T = {end['steps']}", f"{epsilon:g}", f"{best['excess_of_zero']:.3f}", f"{_excess(best)} ({best['steps']})",
            f"{_excess(bound)} ({bound['diameter']:.2g}, {bound['steps']})", f"{_excess(end)}: {end['noise_multiplier']:.3g}",
            f"{_excess(helped)}: {helped['noise_multiplier']:.3g} ({helped['diameter']:.2g})",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _excess(row: dict[str, Any]) -> str:
    return f"{row['excess']:.3f} ± {row['excess_half_width']:.3f}"


def figure() -> Figure:
    """Excess risk of mini-batches against the diameter, a colour an epsilon, with the best T and with the most steps."""
    rows = [row for row in read_lines(RESULTS) if row["batches"] == "cyclic"]
    drawn = Figure(figsize=(9.0, 3.4), layout="constrained")
    for axes, task in zip(drawn.subplots(1, 2), TASKS, strict=True):
        here = [row for row in rows if row["task"] == task.name]
        most = max(row["steps"] for row in here)
        for colour, epsilon in enumerate(EPSILONS):
            of_this = [row for row in here if row["epsilon"] == epsilon]
            excess = [{row["steps"]: row["excess"] for row in of_this if (row["share"] or math.inf) == share} for share in SHARES]
            axes.plot([min(by_steps.values()) for by_steps in excess], marker="o", color=f"C{colour}", label=f"ε = {epsilon:g}")
            axes.plot([by_steps[most] for by_steps in excess], marker=".", linestyle=":", color=f"C{colour}")
        axes.axhline(here[0]["excess_of_zero"], color="0.7", linewidth=0.8)
        axes.set(yscale="log", title=f"{task.name}, T = {most} dotted", xlabel="D over twice the minimiser's norm", ylabel="excess risk")
        axes.set_xticks(range(len(SHARES)), ["1/128", "1/16", "1/4", "1.1", "no domain"])
    drawn.axes[0].legend(fontsize=7)
    return drawn


def main() -> None:
    """Train what is missing."""
    from stored_results import append

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    file = parser.parse_args().results
    done = {(row["task"], row["batches"], row["steps"], row["epsilon"], row["share"] or math.inf) for row in read_lines(file)}
    for task in TASKS:
        for design, steps in ((design, steps) for design, counts in zip(DESIGNS, task.steps, strict=True) for steps in counts):
            settings = [pair for pair in itertools.product(EPSILONS, SHARES) if (task.name, design, steps, *pair) not in done]
            for row in measured(task, design, steps, settings) if settings else ():
                append(file, row)


if __name__ == "__main__":
    main()
