r"""Liang et al. 2025, Figures 1 and 2, on CIFAR-10: nearer the paper's sizes on a GPU, and shrunk for a CPU.

    python benchmarks/liang_figures.py --data cifar10_20k.npz [--size gpu] [--figures 1 2] [--candidates 5000] [--results FILE]

Noise, clipping and step size as published, no crops and flips, members by fair coins. By size:

| | the paper | gpu | cpu |
|---|---|---|---|
| network | ResNet-18 | with group normalisation | two convolutions, two dense layers, tanh |
| candidates, half of them members | 20 000 | 5000 | 1000 |
| shadow models, repeats | 10, 10 | 1, 1 | 1, 2 |
| epochs | 400 and more | 400 | 40 |
| batch sizes of Figure 1 | 100 to 1000 | 100, 400, 1000 | 25, 50, 125 |
| batch size and diameters of Figure 2 | 100, 400; 20, 60, 100 | 400; 20, 60, 100 | 25; 6, 10, 20 |

The small network starts at norm 5, the ResNet at 80: diameters are shrunk with it. What was trained adds lines to the file of results; one
epoch is timed before, and what all will take is said: an hour for a figure on a GPU that takes 3700 pictures a second.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from resumable import read_lines
from stored_results import append

from lethe.audit.games.shadow_models import draw_candidates
from lethe_experiments.liang.curves import COLUMNS, curve
from lethe_experiments.liang.pictures import Pictures
from lethe_experiments.liang.plans import FULL_2, PUBLISHED, QUICK_2, Plan
from lethe_experiments.liang.training import NetworkTrainer

RESULTS = Path(__file__).with_name("results") / "liang_figures.jsonl"
_GPU = replace(FULL_2, candidates=5000, shadows=1, repeats=1, batch_sizes=(400,), epochs=(50, 100, 200, 400), noises=(PUBLISHED,))
_CPU = replace(QUICK_2, candidates=1000, shadows=1, repeats=2, epochs=(10, 20, 40), noises=(PUBLISHED,))
PLANS = {
    ("gpu", 1): replace(_GPU, batch_sizes=(100, 400, 1000), diameters=(None,)),
    ("gpu", 2): _GPU,
    ("cpu", 1): replace(_CPU, batch_sizes=(25, 50, 125), diameters=(None,)),
    ("cpu", 2): _CPU,
}


def cifar(file: Path) -> Pictures:
    """The training pictures, which are stored as differences."""
    with np.load(file, allow_pickle=False) as stored:
        pixels = np.cumsum(np.cumsum(stored["x_train_diff2d"], 1, dtype=np.uint8), 2, dtype=np.uint8)
        labels = stored["y_train"].astype(np.int64)
    scaled = pixels.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(127.5) - np.float32(1.0)
    return Pictures(name=file.name, pixels=np.ascontiguousarray(scaled), labels=labels)


def seconds_a_visit(data: Pictures, plan: Plan) -> float:
    """Of a record in a batch, in an epoch of the first setting, once warm."""
    short, setting = replace(plan, epochs=(1,)), next(plan.settings)
    candidates, _ = draw_candidates(len(data.labels), plan.candidates, 1, seed=0)
    train = NetworkTrainer(pictures=data.pixels, labels=data.labels, plan=short, setting=setting)
    taken = []
    for seed in range(2):
        started = time.perf_counter()
        train(candidates, seed)
        taken.append(time.perf_counter() - started)
    return taken[-1] / short.visits_of_one(setting)


def table() -> str:
    """A row for each curve and number of epochs."""
    lines = ["| figure | b | D | epochs | training loss | estimate (24) | certified, at least |", "|---|---|---|---|---|---|---|"]
    for row in read_lines(RESULTS):
        diameter = "-" if row["diameter"] is None else f"{row['diameter']:g}"
        loss, estimate = (_mean(row[name], row[f"{name}_margin"]) for name in ("training_loss", "estimate"))
        cells = (row["figure"], row["batch_size"], diameter, row["epochs"], loss, estimate, f"{row['certified_bound']:.3f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _mean(mean: float | None, margin: float | None) -> str:
    return "-" if mean is None else f"{mean:.2f}" if margin is None else f"{mean:.2f} ± {margin:.2f}"


def main() -> None:
    """Train and attack what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="cifar10_20k.npz")
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--figures", type=int, nargs="+", choices=(1, 2), default=(1, 2))
    parser.add_argument("--candidates", type=int, help="others than the size's, up to 10 000")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    data, rows = cifar(options.data), read_lines(options.results)
    for figure in options.figures:
        plan = PLANS[options.size, figure]
        plan = replace(plan, candidates=options.candidates or plan.candidates)
        about = {"figure": figure, "size": options.size, "candidates": plan.candidates, "shadows": plan.shadows}
        missing = [
            setting
            for setting in plan.settings
            if not any(
                row.items() >= (about | {"batch_size": setting.batch_size, "diameter": setting.diameter}).items() for row in rows
            )
        ]  # fmt: skip
        visits = plan.repeats * (1 + plan.shadows) * sum(map(plan.visits_of_one, missing))
        if missing:
            print(f"figure {figure}: about {seconds_a_visit(data, plan) * visits / 60:.0f} minutes", flush=True)
        for setting in missing:
            for row in curve(data, plan, setting, lambda _: None):
                append(options.results, about | dict(zip(COLUMNS, row, strict=True)))


if __name__ == "__main__":
    main()
