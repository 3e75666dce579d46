"""Accuracy of softmax regression on the digits of scikit-learn, every iterate released: independent and correlated noise.

`python benchmarks/correlated_noise.py` prints Markdown. Zero out, delta 1e-5, clipped, in a fixed order; Lethe plans the noise of each.
Passes, batches a pass, clip norms and step sizes are the best of one grid, by the accuracy on the test records: the same tuning for
each kind of noise, which no certificate covers.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from envelope_clipping import CLASSES, DELTA, EPSILONS, RECORDS, digits

import lethe
from lethe.train import Linear, TrainOptions, fit

KINDS = ("independent", "banded_toeplitz", "buffered_toeplitz", "banded_inverse", "dense")
SHAPES = ((3, 5), (8, 5), (20, 5))  # passes, batches a pass
CLIPS = (0.05, 0.1, 0.2)
STEPS = (8.0, 16.0, 32.0, 64.0)
_FILES = Path(tempfile.mkdtemp())


@cache
def strategy_of(kind: str, passes: int, batches: int) -> lethe.noise.CorrelatedNoise | None:
    """The noise that is best for so many passes and batches, with steps of one size."""
    if kind == "independent":
        return None
    path = _FILES / f"{passes}_{batches}.npy" if kind == "dense" else None
    return lethe.correlate(run_of(None, passes, batches, 1.0, 1.0), kind, path=path).noise  # pyright: ignore[reportArgumentType]


def run_of(
    noise: lethe.noise.CorrelatedNoise | None, passes: int, batches: int, clip: float, step: float, records: int = RECORDS
) -> lethe.Run:
    """Not planned yet."""
    return lethe.Run(
        records=records, batches=lethe.batches.Cyclic(records // batches), passes=passes, step_size=step, clip_norm=clip, noise=noise,
        loss=lethe.losses.Softmax(feature_norm=1.0, evidence="enforced"), release="all", neighbours="zero_out",
    )  # fmt: skip


def accuracy(run: lethe.Run, data: tuple[np.ndarray, ...], seeds: range) -> list[float]:
    """On the test records, one a seed."""
    rows, tests, labels, truths = data
    fits = (fit(Linear(classes=CLASSES), None, (rows, labels), run, options=TrainOptions(seed=seed)) for seed in seeds)
    return [float((fitted.model.predict(tests) == truths).mean()) for fitted in fits]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds, data = parser.parse_args().seeds, digits()
    print(f"| noise | {' | '.join(f'epsilon {epsilon:g}' for epsilon in EPSILONS)} |\n|---|{'---|' * len(EPSILONS)}")
    for kind in KINDS:
        cells: list[str] = []
        for epsilon in EPSILONS:
            found: list[tuple[float, lethe.Run]] = []
            for (passes, batches), clip in itertools.product(SHAPES, CLIPS):
                planned = lethe.plan(run_of(strategy_of(kind, passes, batches), passes, batches, clip, 1.0), epsilon=epsilon, delta=DELTA)
                for step in STEPS:
                    run = planned.replace(step_size=step)
                    found.append((statistics.fmean(accuracy(run, data, range(2))), run))
            best = max(found, key=lambda pair: pair[0])[1]
            scores = accuracy(best, data, range(100, 100 + seeds))
            spread = statistics.stdev(scores) / len(scores) ** 0.5
            shape = f"{best.passes} x {best.steps_per_pass}, clip {best.clip_norm:g}, step {best.step_sizes[0]:g}"
            cells.append(f"{statistics.fmean(scores):.3f} ± {spread:.3f} ({shape})")
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
