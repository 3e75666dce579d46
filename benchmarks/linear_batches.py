"""Time of one pass of a linear model in few and many batches: 60 000 records, 785 features, 10 classes, noise at pass ends.

`python benchmarks/linear_batches.py [--batches 10 100 1000 2000] [--repeats 5] [--records 60000]` prints Markdown: CPU seconds of a pass,
the median of several interleaved, for gradients as they are, clipped, and of envelopes, by `fit_linear` and by the estimators' loop; and
each over the first column. Preparation (reading, checking and projecting the features) is the same for all, and is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import lethe
from lethe.estimators.choice.descents import carry_out
from lethe.estimators.inputs.records import Records
from lethe.estimators.private_estimator import randomness
from lethe.run.losses import Softmax
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import draw_batches
from lethe.train.linear.loop import descend, prepared
from lethe.train.linear.models import Linear
from lethe.train.network.noise.gaussian import NetworkNoise

COLUMNS, CLASSES, BOUND = 784, 10, 0.25
METHODS = ("none", "clip", "envelope")


def run_of(method: str, records: int, batches: int) -> lethe.Run:
    """One pass of so many batches."""
    bounded = {} if method == "none" else {"clip_norm": BOUND, "clip_method": method}
    return lethe.Run(
        records=records, batches=lethe.batches.Cyclic(records // batches), passes=1, step_size=2.0, noise_multiplier=1.0,
        noise_at="pass_ends", release="last", neighbours="zero_out",
        loss=Softmax(feature_norm=1.0, intercept=True, evidence="enforced"), **bounded,
    )  # fmt: skip


def by_fit_linear(rows: np.ndarray, labels: np.ndarray) -> Callable[[lethe.Run], float]:
    """Seconds that `fit_linear`'s loop takes for a run, on prepared data."""
    ready = {method: prepared(Linear(classes=CLASSES), (rows, labels), run_of(method, len(rows), 10)) for method in METHODS}

    @torch.inference_mode()
    def seconds(run: lethe.Run) -> float:
        method = "none" if run.clip_norm is None else run.clip_method
        model, start = ready[method].model, ready[method].start
        generators = [torch.Generator().manual_seed(place) for place in range(2)]
        begun = time.process_time()
        descend(
            run,
            start,
            model.clipped_gradient_sum,
            draw_batches(run, generators[0]),
            NetworkNoise(generators[1]).add_to,
            recorder=Recorder(run, seeded=True),
        )
        return time.process_time() - begun

    return seconds


def by_estimators(rows: np.ndarray, labels: np.ndarray) -> Callable[[lethe.Run], float]:
    """Seconds that the estimators' loop takes for a run."""
    records = Records(
        rows, labels, loss=Softmax(feature_norm=1.0, classes=CLASSES), feature_norm=1.0, intercept=True,
        order=np.random.default_rng(0).permutation(len(rows)),
    )  # fmt: skip

    def seconds(run: lethe.Run) -> float:
        draws = randomness(0, True, len(rows))
        begun = time.process_time()
        carry_out(run, records, draws)
        return time.process_time() - begun

    return seconds


def main() -> None:
    """A line for each loop and method."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, nargs="+", default=[10, 100, 1000, 2000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--records", type=int, default=60_000)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    # Ten kinds of rows with much noise around them: most records are too steep for the bound, as in the first passes of a training.
    labels = rng.integers(CLASSES, size=asked.records)
    rows = rng.standard_normal((CLASSES, COLUMNS))[labels] + 4.0 * rng.standard_normal((asked.records, COLUMNS))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    print(
        "| loop | method |",
        " | ".join(f"{count} batches" for count in asked.batches),
        "| over the first |\n" + "|---" * (len(asked.batches) + 3) + "|",
    )
    for name, loop in (("fit_linear", by_fit_linear(rows, labels)), ("estimators", by_estimators(rows, labels.astype(np.float64)))):
        for method in METHODS if name == "fit_linear" else METHODS[:1]:
            runs = [run_of(method, asked.records, count) for count in asked.batches]
            taken = [[loop(run) for run in runs] for _ in range(asked.repeats)]
            seconds = [statistics.median(column) for column in zip(*taken, strict=True)]
            ratios = ", ".join(f"{one / seconds[0]:.2f}" for one in seconds[1:])
            print(f"| {name} | {method} |", " | ".join(f"{one:.2f} s" for one in seconds), f"| {ratios} |", flush=True)


if __name__ == "__main__":
    main()
