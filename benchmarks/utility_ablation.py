"""What each part of `auto` is worth on MNIST's scattering coefficients at epsilon = 1: everything by the rule, and one part left out.

    python benchmarks/utility_ablation.py --data FOLDER [--seeds 3]

Every trained model adds a line to the file of results; a run that was stopped goes on where it was. Zero out, delta = 1e-5.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from private_linear_data import Problem
from resumable import read_lines
from rich.console import Console
from rich.progress import Progress
from stored_results import append
from utility_records_data import DATASETS
from utility_records_methods import DELTA, model_of, whitened

from lethe.estimators.choice import choose, run_shapes
from lethe.estimators.choice.risk import cut_losses

RESULTS = Path(__file__).with_name("results") / "utility_ablation.jsonl"
EPSILON = 1.0
PARTS = (
    "nothing",
    "envelope: the loss is cut instead",
    "many batches: at most 10 a pass",
    "private whitening",
    "pass ends: noise at every step",
)


@contextmanager
def _rule(part: str) -> Iterator[None]:
    """The rule without a part."""
    losses, batches = run_shapes.run_losses, run_shapes._BATCHES  # pyright: ignore[reportPrivateUsage]
    if part.startswith("envelope"):
        run_shapes.run_losses = cut_losses
    if part.startswith("many batches"):
        run_shapes._BATCHES = tuple(count for count in batches if count <= 10)  # pyright: ignore[reportPrivateUsage]
    _forget()
    try:
        yield
    finally:
        run_shapes.run_losses, run_shapes._BATCHES = losses, batches  # pyright: ignore[reportPrivateUsage]
        _forget()


def _forget() -> None:
    run_shapes.best_shape.cache_clear()
    choose._choose.cache_clear()  # pyright: ignore[reportPrivateUsage]


def _score(part: str, plain: Problem, white: Problem, left: float, seed: int) -> tuple[float, str]:
    problem, epsilon = (plain, EPSILON) if part.startswith("private whitening") else (white, left)
    with _rule(part):
        model = model_of(problem, "cyclic" if part.startswith("pass ends") else "pass_ends", seed).set_params(epsilon=epsilon)
        model.fit(problem.train, problem.train_targets)
    assert model.statement_.planned.epsilon(DELTA) <= epsilon
    return float(model.score(problem.test, problem.test_targets)), model.statement_.name


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with mnist.npz")
    parser.add_argument("--cache", type=Path, default=Path("build/records"), help="folder of features that were computed once")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.cache.mkdir(parents=True, exist_ok=True)
    done = {(row["part"], row["seed"]) for row in read_lines(options.results)}
    known = DATASETS["mnist_scattering"]
    plain = known.load(options.data, options.cache, 0)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        for seed in range(options.seeds):
            missing = [part for part in PARTS if (part, seed) not in done]
            if not missing:
                continue
            white, left = whitened(plain, known.channels or 1, EPSILON, seed)
            for part in bar.track(missing, description=f"seed {seed}"):
                score, chosen = _score(part, plain, white, left, seed)
                append(options.results, {"part": part, "seed": seed, "score": score, "chosen": chosen})


if __name__ == "__main__":
    main()
