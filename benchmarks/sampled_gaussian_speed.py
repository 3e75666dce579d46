"""The Rényi curve of many distinct noise levels under Poisson sampling, against dp_accounting, per level, in one run.

    python benchmarks/sampled_gaussian_speed.py [LEVELS]

Both at the same orders; the rival composes 40 levels, because 10 000 take it minutes, and its time is divided by 40.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import dp_accounting
import numpy as np
from dp_accounting import rdp
from rich.console import Console
from rich.table import Table

from lethe.calculus.sampled_renyi import ORDERS, renyi_values

PROBABILITY, RIVAL_LEVELS, REPEATS = 0.01, 40, 5


def _median(work: Callable[[], object], repeats: int) -> float:
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _rival(noise: np.ndarray) -> None:
    accountant = rdp.RdpAccountant(list(ORDERS))
    for level in noise:
        accountant.compose(dp_accounting.PoissonSampledDpEvent(PROBABILITY, dp_accounting.GaussianDpEvent(float(level))))


def main() -> None:
    """Print the table."""
    levels = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    table = Table(title=f"{levels} distinct noise levels, q = {PROBABILITY}, {len(ORDERS)} orders")
    for column in ("noise", "seconds", "dp_accounting, seconds a level", "times faster, per level"):
        table.add_column(column, justify="right")
    for low, high in ((0.5, 2.0), (1.0, 5.0), (5.0, 100.0)):
        noise = np.linspace(low, high, levels)
        ours = _median(lambda noise=noise: renyi_values(PROBABILITY, noise, "zero_out", "poisson"), REPEATS)
        rival = _median(lambda noise=noise: _rival(noise[:: max(1, levels // RIVAL_LEVELS)][:RIVAL_LEVELS]), 3) / min(levels, RIVAL_LEVELS)
        table.add_row(f"{low:g} to {high:g}", f"{ours:.2f}", f"{rival:.4f}", f"{rival * levels / ours:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
