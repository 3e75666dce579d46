"""The joint optimum of schedule and last-iterate accounting for cyclic batches: seconds, proven gap, and cvxpy with Clarabel beside it.

    python benchmarks/joint_schedule_speed.py [STEPS]

Runs of 1000 steps, which cvxpy solves too where it is installed, then of STEPS (10 000). Weights rise by a factor e to the end.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from joint_conic import joint_conic
from rich.console import Console
from rich.table import Table

from lethe.noise_allocation.joint.cyclic import CyclicJoint, joint_cyclic, joint_problem
from lethe.theorems.shuffled.positions import worst_position

Problem = tuple[np.ndarray, np.ndarray, np.ndarray]
SMALL = 1000
FACTORS = (1.0, 0.999, 1.001)


def _run(steps: int, lipschitz: float) -> Problem:
    return np.exp(np.arange(1 - steps, 1) / steps), np.full(steps, lipschitz), np.ones(steps)


def _row(steps: int, size: int, lipschitz: float) -> tuple[str, ...]:
    run = _run(steps, lipschitz)
    start = time.perf_counter()
    found = joint_cyclic(joint_problem(*run, size))
    seconds = time.perf_counter() - start
    gap = 1.0 - found.lower_bound / found.value
    row = (f"{steps}", f"{size}", f"{lipschitz:g}", f"{seconds:.1f}", f"{gap:.0e}", f"{np.count_nonzero(found.noise_stds)}")
    return (*row, f"{_gain(run, size, found.value):.2f}", _rival(run, size, found))


def _gain(run: Problem, size: int, value: float) -> float:
    """What uniform noise of the same privacy costs, over the optimum."""
    weights, factors, touches = run
    mu = worst_position(factors, touches, np.ones(weights.size), size)[0]
    return mu**2 * float(weights.sum()) / value


def _rival(run: Problem, size: int, found: CyclicJoint) -> str:
    if run[0].size > SMALL:
        return "-"
    start = time.perf_counter()
    other = joint_conic(joint_problem(*run, size))
    return f"{time.perf_counter() - start:.1f} (cost {other.value / found.value - 1.0:+.0e})"


def main() -> None:
    """Print the table."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    table = Table(title="min sum q tau^2 with every position 1-GDP")
    for column in ("steps", "batches", "L", "seconds", "proven gap", "noisy steps", "uniform / optimum", "cvxpy, seconds"):
        table.add_column(column, justify="right")
    for length, sizes in ((SMALL, (10, 50)), (steps, (10, 100, 1000))):
        for size in sizes:
            for lipschitz in FACTORS:
                table.add_row(*_row(length, size, lipschitz))
    Console().print(table)


if __name__ == "__main__":
    main()
