"""Epsilon of random allocation and of Poisson batches, ours and dp_accounting's, and how long a certificate takes, median of several.

python benchmarks/random_allocation.py [--repeat 3]
"""

import argparse
import math
import statistics
import time

import dp_accounting
from dp_accounting import NeighboringRelation, pld
from rich.console import Console
from rich.progress import track
from rich.table import Table

import lethe

DELTA, BATCH = 1e-5, 60
# Batches a pass, passes, noise.
SHAPES = [(100, 10, 1.0), (100, 10, 2.0), (391, 5, 0.6), (1000, 10, 0.8), (50, 50, 3.0), (1000, 100, 1.0), (20, 200, 8.0), (5, 20, 1.0)]


def certified(batches: lethe.batches.RandomAllocation | lethe.batches.Poisson, slots: int, passes: int, noise: float) -> float:
    run = lethe.Run(
        records=BATCH * slots,
        batches=batches,
        passes=passes,
        step_size=0.1,
        clip_norm=1.0,
        noise_multiplier=noise,
        release="all",
        neighbours="zero_out",
    )
    return lethe.certify(run, DELTA, allow_large_delta=True).epsilon


def of_dp_accounting(slots: int, passes: int, noise: float) -> float:
    accountant = pld.PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(1.0 / slots, dp_accounting.GaussianDpEvent(noise)), slots * passes)
    return accountant.get_epsilon(DELTA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    table = Table(
        "batches a pass", "passes", "noise", "Poisson, dp_accounting", "Poisson, Lethe", "random allocation", "seconds", "of dp_accounting"
    )
    for slots, passes, noise in track(SHAPES, transient=True):
        allocated, rival = math.nan, math.nan
        ours: list[float] = []
        theirs: list[float] = []
        for count in range(repeat):
            start = time.perf_counter()
            # A little more noise each time: what was computed before is kept.
            allocated = certified(lethe.batches.RandomAllocation(BATCH), slots, passes, noise * (1.0 + 1e-9 * count))
            middle = time.perf_counter()
            rival = of_dp_accounting(slots, passes, noise)
            ours.append(middle - start)
            theirs.append(time.perf_counter() - middle)
        poisson = certified(lethe.batches.Poisson(BATCH), slots, passes, noise)
        epsilons = (f"{epsilon:.4f}" for epsilon in (rival, poisson, allocated))
        times = (f"{statistics.median(one):.2f}" for one in (ours, theirs))
        table.add_row(str(slots), str(passes), f"{noise:g}", *epsilons, *times)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
