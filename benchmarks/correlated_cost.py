"""What correlated noise costs in a training step: 8 bands against independent noise, steps of both in turns in one run.

`python benchmarks/correlated_cost.py` prints Markdown: milliseconds of a processor a step, medians, and the median of the ratios of
neighbouring steps, whole steps of `PrivacyEngine` and the noise alone. One thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

import lethe
from lethe.calculus.correlated.matrices import square_root
from lethe.train import PrivacyEngine, TrainOptions
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise

BANDS = 8
RECORDS, SIDE, CLASSES = 4096, 28, 10


def cnn() -> nn.Module:
    """As examples/train_cnn_on_mnist.py has it: 26 000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, CLASSES),
    )  # fmt: skip


def mlp(width: int) -> nn.Module:
    """Two hidden layers: 0.27 million parameters of 256, 1.9 million of 1024."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE * SIDE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def run_of(steps: int, size: int, *, correlated: bool) -> lethe.Run:
    """With the square root of the prefix sums, cut to 8 bands."""
    noise = lethe.noise.BandedToeplitz(coefficients=tuple(square_root(BANDS).tolist())) if correlated else None
    return lethe.Run(
        records=RECORDS, batches=lethe.batches.Cyclic(size), steps=steps, step_size=0.1, clip_norm=1.0, noise_multiplier=1.0, noise=noise,
        release="all", neighbours="zero_out",
    )  # fmt: skip


def stepping(make: Callable[[], nn.Module], run: lethe.Run) -> Iterator[float]:
    """Seconds of a processor of each step of a loop, the reading of its batch included."""
    torch.manual_seed(0)
    model = make()
    data = torch.randn(RECORDS, 1, SIDE, SIDE), torch.randint(CLASSES, (RECORDS,))
    criterion = nn.CrossEntropyLoss(reduction="none")
    own = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def losses(batch: Any) -> torch.Tensor:
        return criterion(model(batch[0]), batch[1])

    engine = PrivacyEngine(model, own, losses, data, run, options=TrainOptions(isolation="declared"))
    optimizer, loader = own, engine.batches()
    begun = time.process_time()
    for batch in loader:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
        yield time.process_time() - begun
        begun = time.process_time()


def drawing(make: Callable[[], nn.Module], run: lethe.Run) -> Iterator[float]:
    """Seconds of a processor of each step's noise."""
    parameters = list(make().parameters())
    own = NetworkNoise(np.random.default_rng(0))
    noise = own if run.noise is None else CorrelatedNetworkNoise(run, own, torch.float32)
    for _ in range(run.total_steps):
        sums = [torch.zeros_like(parameter) for parameter in parameters]
        begun = time.process_time()
        noise.add_to(sums, 1.0)
        yield time.process_time() - begun


def compared(how: Callable[..., Iterator[float]], make: Callable[[], nn.Module], steps: int, size: int) -> tuple[float, float, float]:
    """Median milliseconds of both, and the median ratio; the first steps, in which memories fill, are left out."""
    both = [how(make, run_of(steps, size, correlated=correlated)) for correlated in (False, True)]
    pairs = [tuple(next(one) for one in both) for _ in range(steps)][2 * BANDS :]
    plain, correlated = (1000.0 * statistics.median(times) for times in zip(*pairs, strict=True))
    return plain, correlated, statistics.median(second / first for first, second in pairs)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    print(
        "| model | parameters | batch | step: independent, ms | 8 bands, ms | ratio | noise alone: independent, ms | 8 bands, ms | ratio |"
    )
    print(f"|{'---|' * 9}")
    models: tuple[tuple[str, Callable[[], nn.Module], int], ...] = (
        ("CNN", cnn, 64),
        ("CNN", cnn, 256),
        ("MLP 256", lambda: mlp(256), 64),
        ("MLP 256", lambda: mlp(256), 256),
        ("MLP 1024", lambda: mlp(1024), 64),
        ("MLP 1024", lambda: mlp(1024), 256),
    )
    for name, make, size in models:
        cells = [f"{value:.2f}" for how in (stepping, drawing) for value in compared(how, make, steps, size)]
        count = sum(parameter.numel() for parameter in make().parameters())
        print(f"| {name} | {count} | {size} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
