"""Settings of the tuned rival on images, many at once: DP-SGD on Poisson batches, every iterate released, scored on the test records.

    python benchmarks/utility_records_screening.py --data FOLDER [--datasets mnist_scattering] [--epsilons 1] [--cache FOLDER]

A fit of one setting reads a gigabyte at every pass, and so does one of twenty, which share their batches here: columns of one matrix. Every
setting has noise of its own, and a step is that of `fit_linear` but for roundings; momentum, which `fit_linear` has not, is heavy-ball, at
a step size (1 - momentum) times as large. A share of the records stands for all: their noise is as much smaller as their sum is, so that
the noise in the mean gradient is that of all records. Features as `auto` has them, whitened by private statistics that the same epsilon
pays for, and as they are before. Every setting adds a line to the file of results; the best ones are then trained on all records, by
`utility_records.py`.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from private_linear_data import Problem
from resumable import read_lines
from rich.console import Console
from rich.progress import track
from stored_results import append
from utility_records_data import DATASETS
from utility_records_methods import poisson_run, whitened
from utility_records_summary import SCREENING

EPSILONS = (0.5, 1.0, 3.0)
CLIPS, LENGTHS, MOMENTA = (0.1, 0.3, 1.0), (0.3, 1.0, 3.0, 10.0), (0.0, 0.9)
FEATURES = ("whitened", "plain")
SETS = {name: known for name, known in DATASETS.items() if known.screened is not None}
_SEED = 100


@dataclass(frozen=True, slots=True)
class Setting:
    """One column block.

    Args:
        epsilon: of the whole release.
        noise_multiplier: of the model, for what the whitening left.
        clip, length: clip norm, and step size times it.
        momentum: in [0, 1).
    """

    epsilon: float
    noise_multiplier: float
    clip: float
    length: float
    momentum: float


def main() -> None:
    """Screen what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("build/records"), help="folder of features that were computed once")
    parser.add_argument("--datasets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--features", nargs="+", default=list(FEATURES), choices=FEATURES)
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--passes", nargs="+", type=int, default=[60])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1000, 8192], help="of batches")
    parser.add_argument("--clips", nargs="+", type=float, default=list(CLIPS))
    parser.add_argument("--lengths", nargs="+", type=float, default=list(LENGTHS), help="step sizes times the clip norm")
    parser.add_argument("--momenta", nargs="+", type=float, default=list(MOMENTA))
    parser.add_argument("--results", type=Path, default=SCREENING)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.datasets:
        whole = DATASETS[name].load(options.data, options.cache, _SEED)
        if "plain" in options.features:  # one table for every epsilon
            _screen(name, "plain", whole, {epsilon: epsilon for epsilon in options.epsilons}, options)
        for epsilon in options.epsilons if "whitened" in options.features else ():
            problem, left = whitened(whole, SETS[name].channels, epsilon, _SEED)
            _screen(name, "whitened", problem, {epsilon: left}, options)
            del problem


def _screen(name: str, features: str, problem: Problem, budgets: dict[float, float], options: argparse.Namespace) -> None:
    """All settings that are not in the results; `budgets` has the epsilon of the model for each of the whole."""
    share = SETS[name].screened or 1.0
    done = {tuple(row[key] for key in _KEY) for row in read_lines(options.results)}
    for passes, size in itertools.product(options.passes, options.sizes):
        batches = round(len(problem.train) / size)
        missing = [
            (epsilon, *values)
            for epsilon, values in itertools.product(budgets, itertools.product(options.clips, options.lengths, options.momenta))
            if (name, features, passes, batches, epsilon, *values) not in done
        ]
        if not missing:
            continue
        noise = {e: poisson_run(problem, budgets[e], (passes, batches, 1.0, 1.0)).noise_multiplier for e in {one[0] for one in missing}}
        settings = [Setting(epsilon, cast("float", noise[epsilon]), *values) for epsilon, *values in missing]
        started = time.process_time()
        trained = train_together(problem, passes, batches, settings, share, f"{name}, {features}, {passes} x {batches}")
        scores, averaged = (_accuracies(problem, weights, len(settings)) for weights in trained)
        seconds = round((time.process_time() - started) / len(settings), 2)
        for setting, score, smooth in zip(settings, scores, averaged, strict=True):
            row = {
                "dataset": name, "features": features, "passes": passes, "batches": batches, "epsilon": setting.epsilon,
                "clip": setting.clip, "length": setting.length, "momentum": setting.momentum, "share": share, "seed": _SEED,
                "score": score, "averaged": smooth, "seconds": seconds,
            }  # fmt: skip
            append(options.results, row)


_KEY = ("dataset", "features", "passes", "batches", "epsilon", "clip", "length", "momentum")


@torch.inference_mode()
def train_together(
    problem: Problem, passes: int, batches: int, settings: list[Setting], share: float, words: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every setting's last iterate, and the mean of the iterates of its last half, one below the other: shape (M k, d) for k classes.

    Args:
        problem: features of float32, classes.
        passes, batches: of all settings.
        settings: M of them.
        share: of the records, from 0 to 1, drawn at random.
        words: beside the bar.
    """
    draw = torch.Generator().manual_seed(_SEED)
    records, count, classes = round(len(problem.train) * share), len(settings), problem.classes
    chosen = torch.randperm(len(problem.train), generator=draw)[:records].sort().values
    rows = torch.from_numpy(problem.train)[chosen].to(torch.float32)
    targets = torch.from_numpy(problem.train_targets)[chosen].long()
    wanted = torch.nn.functional.one_hot(targets, classes).to(torch.float32)
    norms = torch.linalg.vector_norm(rows, dim=1)[:, None]
    clips, lengths, momenta, multipliers = (
        torch.tensor([getattr(one, field) for one in settings], dtype=torch.float32)
        for field in ("clip", "length", "momentum", "noise_multiplier")
    )
    size, steps = records / batches, passes * batches
    columns = count * classes
    weights, speed, total = (torch.zeros(columns, rows.shape[1]) for _ in range(3))
    scale = (lengths / clips * (1.0 - momenta) / size).repeat_interleave(classes)[:, None]
    spread = (multipliers * clips * share).repeat_interleave(classes)[:, None]
    keep = momenta.repeat_interleave(classes)[:, None]
    for step in track(range(steps), description=words, console=Console(stderr=True), transient=True):
        batch = torch.nonzero(torch.rand(records, generator=draw) < 1.0 / batches).squeeze(1)
        drawn = rows[batch]
        residuals = torch.softmax((drawn @ weights.T).view(len(batch), count, classes), dim=2) - wanted[batch][:, None]
        lengths_of = torch.linalg.vector_norm(residuals, dim=2) * norms[batch]
        residuals *= (clips / lengths_of).clamp_(max=1.0)[:, :, None]
        gradient = residuals.view(len(batch), columns).T @ drawn
        gradient += spread * torch.randn(columns, rows.shape[1], generator=draw)
        speed.mul_(keep).add_(gradient)
        weights -= scale * speed
        if step >= steps // 2:
            total += weights
    return weights, total / (steps - steps // 2)


def _accuracies(problem: Problem, weights: torch.Tensor, count: int) -> list[float]:
    test, truths = torch.from_numpy(problem.test).to(torch.float32), torch.from_numpy(problem.test_targets)
    guesses = (test @ weights.T).view(len(test), count, problem.classes).argmax(dim=2)
    return [round(float((guesses[:, place] == truths).double().mean()), 4) for place in range(count)]


if __name__ == "__main__":
    main()
