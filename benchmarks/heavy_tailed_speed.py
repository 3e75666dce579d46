"""Seconds and memory of the heavy-tailed solvers on a million records of 50 features, one pass each.

    python benchmarks/heavy_tailed_speed.py [--records 1000000] [--dimension 50]

Memory is the largest that NumPy and Python held beyond the records, by tracemalloc.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import cast

import numpy as np

from lethe.heavy_tailed import BallDomain, Moments, Problem, multi_pass
from lethe.heavy_tailed.accelerated import accelerated
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian
from lethe.heavy_tailed.private_moments import estimated_moments
from lethe.heavy_tailed.problem import Records
from lethe.heavy_tailed.proximal import proximal
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.solution import Solution

RHO = 0.5


def least_squares(parameters: Array, records: Records) -> Array:
    columns = cast("tuple[Array, Array]", records)
    features, targets = (np.asarray(column, dtype=np.float64) for column in columns)
    return (features @ parameters - targets)[:, None] * features


def solvers(problem: Problem, records: Records, steps: int) -> dict[str, Callable[[], Solution]]:
    oracle = ClippedMean(clip_norm=10.0, rho=RHO)
    median = CoordinateMedian(threshold=10.0, groups=5, rho=RHO)
    return {
        f"one_pass, {steps} steps": lambda: one_pass(problem, records, oracle=oracle, steps=steps),
        f"accelerated, {steps} steps": lambda: accelerated(problem, records, oracle=oracle, steps=steps, step=2.0),
        f"proximal, {steps} steps": lambda: proximal(problem, records, oracle=oracle, steps=steps),
        "multi_pass, one pass, full batch": lambda: multi_pass(problem, records, oracle=oracle, passes=1),
        "multi_pass, one pass, batches of 1000": lambda: multi_pass(problem, records, oracle=oracle, passes=1, batch_size=1000),
        f"one_pass, {steps} steps, coordinate medians": lambda: one_pass(problem, records, oracle=median, steps=steps),
    }


def measured(solve: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and then in a second run the peak memory in MiB."""
    began = time.perf_counter()
    solve()
    seconds = time.perf_counter() - began
    tracemalloc.start()
    solve()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=50)
    parser.add_argument("--steps", type=int, default=32)
    chosen = parser.parse_args()
    rng = np.random.default_rng(0)
    features = rng.standard_t(5, size=(chosen.records, chosen.dimension)) / np.sqrt(5 / 3 * chosen.dimension)
    records = (features, features.sum(axis=1) / np.sqrt(chosen.dimension) + rng.standard_t(3, size=chosen.records))
    problem = Problem(
        gradient=least_squares,
        dimension=chosen.dimension,
        domain=BallDomain(radius=2.0),
        smoothness=1.0,
        strong_convexity=0.02,
        pl_constant=0.02,
        moments=Moments(order=2, bound=10.0),
    )
    print(f"{chosen.records} records, {chosen.dimension} features: {(features.nbytes + records[1].nbytes) / 2**20:.0f} MiB of data")
    for name, solve in solvers(problem, records, chosen.steps).items():
        seconds, peak = measured(solve)
        print(f"{name:<44}{seconds:8.2f} s{peak:10.1f} MiB beyond the data")
    seconds, peak = measured(lambda: estimated_moments(problem, records, order=2, rho=RHO))
    print(f"{'estimated_moments, a tenth of the records':<44}{seconds:8.2f} s{peak:10.1f} MiB beyond the data")


if __name__ == "__main__":
    main()
