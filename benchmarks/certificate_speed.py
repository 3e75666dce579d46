"""How long a certificate takes, start-up included, against dp_accounting composing distinct noise levels.

    python benchmarks/certificate_speed.py [--repeat 3]

Each of our rows is a fresh `lethe certify` process on a JSON file with a different step size and a different noise at every step, cyclic
batches, worst position. The rival composes distinct Gaussian noise levels in a fresh process too (it has no last-iterate accounting).
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import lethe
from lethe.theorems.shift.engine import solve

RIVAL = """
import sys
import numpy as np
import dp_accounting
from dp_accounting import rdp
count, sampled = int(sys.argv[1]), sys.argv[2] == "poisson"
events = [dp_accounting.GaussianDpEvent(float(z)) for z in np.linspace(50.0, 100.0, count)]
if sampled:
    events = [dp_accounting.PoissonSampledDpEvent(0.01, event) for event in events]
accountant = rdp.RdpAccountant()
accountant.compose(dp_accounting.ComposedDpEvent(events))
print(accountant.get_epsilon(1e-5))
"""


def write_run(path: Path, steps: int, slots: int) -> None:
    random = np.random.default_rng(steps)
    lethe.Run(
        records=10 * slots,
        batches=lethe.batches.Cyclic(10),
        steps=steps,
        step_size=random.uniform(0.5, 1.0, steps).tolist(),
        noise_multiplier=random.uniform(50.0, 100.0, steps).tolist(),
        loss=lethe.losses.Convex(smoothness=0.1),
        clip_norm=1.0,
        release="last",
        neighbours="replace_one",
    ).save(path)


def seconds(command: list[str], repeat: int) -> tuple[float, str]:
    times, printed = [], ""
    for _ in range(repeat):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - start)
        printed = done.stdout
    return statistics.median(times), printed


def certify_seconds(path: Path, repeat: int) -> float:
    times = []
    for _ in range(repeat):
        run = lethe.Run.load(path)  # a fresh one, with nothing cached
        start = time.perf_counter()
        lethe.certify(run, 1e-5)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeat", type=int, default=3)
    repeat = arguments.parse_args().repeat
    table = Table(title=f"wall seconds, start-up included, median of {repeat}")
    for column in ("what", "steps", "batches a pass", "seconds", "peak MB", "certify alone"):
        table.add_column(column, justify="left" if column == "what" else "right")
    certify = [sys.executable, "-m", "lethe", "certify", "--delta", "1e-5", "--json"]
    startup, _ = seconds([sys.executable, "-m", "lethe", "--version"], repeat)
    table.add_row("lethe --version", "-", "-", f"{startup:.2f}", "-", "-")
    alone: dict[tuple[int, int], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        shapes = [(steps, slots) for steps in (10**4, 10**5, 10**6) for slots in (1, 100, 10_000)]
        rows: list[tuple[float, float]] = []
        for steps, slots in track(shapes, description="certifying", transient=True):
            write_run(Path(folder) / f"{steps}-{slots}.json", steps, slots)
            measured, _ = seconds([*certify, str(Path(folder) / f"{steps}-{slots}.json")], repeat)
            # The largest child so far: rows come in growing order, so this is the row's own peak or an upper bound of it.
            rows.append((measured, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024))
        for (steps, slots), (measured, peak) in zip(shapes, rows, strict=True):
            # After all the processes, which would inherit what this one holds.
            alone[steps, slots] = certify_seconds(Path(folder) / f"{steps}-{slots}.json", repeat)
            table.add_row("lethe certify", f"{steps:.0e}", str(slots), f"{measured:.2f}", f"<= {peak:.0f}", f"{alone[steps, slots]:.3f}")
    steps = 10**6
    hardest = np.linspace(1.0, 2.0, steps)
    hardest[-1] = 1e-9  # every round of pooling removes one segment: the plain loop has to do the rest
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        solve(np.ones(steps), hardest, np.ones(steps))
        times.append(time.perf_counter() - start)
    table.add_row("engine alone, hardest pattern", f"{steps:.0e}", "1", f"{statistics.median(times):.2f}", "-", "-")
    for count, kind in ((10_000, "gaussian"), (200, "poisson")):
        measured, _ = seconds([sys.executable, "-c", RIVAL, str(count), kind], 1)
        table.add_row(f"dp_accounting RDP, distinct noise, {kind}", f"{count:.0e}", "-", f"{measured:.2f}", "-", "-")
    Console(width=120).print(table)
    for slots in (1, 100, 10_000):
        slopes = [math.log10(alone[10 * steps, slots] / alone[steps, slots]) for steps in (10**4, 10**5)]
        print(f"{slots} batches a pass: certify alone grows like steps^{slopes[0]:.2f} from 1e4 to 1e5, ^{slopes[1]:.2f} from 1e5 to 1e6")


if __name__ == "__main__":
    main()
