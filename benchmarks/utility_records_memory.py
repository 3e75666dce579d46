"""Memory of a fit of `auto` on each set of the benchmark of records: what it holds at most beside the rows it was given. Linux only.

    python benchmarks/utility_records_memory.py --data FOLDER [--datasets digits adult] [--cache FOLDER]

Each set in a process of its own, at epsilon 1, whitening included: resident memory at its highest during the fit, less what was resident
when the fit began. Every set that is not in the file of results adds a line to it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from resumable import read_lines
from stored_results import append
from utility_records_data import DATASETS
from utility_records_methods import AUTO, train, whitened
from utility_records_summary import MEMORY

EPSILON, SEED = 1.0, 0


def main() -> None:
    """Measure each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the .npz files")
    parser.add_argument("--cache", type=Path, default=Path("build/records"), help="folder of features that were computed once")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--results", type=Path, default=MEMORY)
    parser.add_argument("--here", action="store_true", help="measure one set in this process")
    options = parser.parse_args()
    done = {row["dataset"] for row in read_lines(options.results)} if not options.here else set()
    for name in options.datasets:
        if name in done:
            continue
        if options.here:
            print(json.dumps(measured(name, options.data, options.cache)))
            continue
        command = [sys.executable, __file__, "--here", "--data", options.data, "--cache", options.cache, "--datasets", name]
        line = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        print(line)
        append(options.results, json.loads(line))


def measured(name: str, folder: Path, cache: Path) -> dict[str, Any]:
    """Mebibytes of the rows, and of what a fit holds beside them."""
    known = DATASETS[name]
    problem, mechanism, left = known.load(folder, cache, SEED), "auto", EPSILON
    rows = problem.train.nbytes
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what is resident now
    before = _resident("VmRSS")
    if known.channels is not None:
        problem, left = whitened(problem, known.channels, EPSILON, SEED)
        mechanism = "pass_ends"
    train(AUTO, problem, left, SEED, None, mechanism)
    return {"dataset": name, "rows": round(rows / 2**20, 1), "beside": round((_resident("VmHWM") - before) / 2**10, 1)}


def _resident(field: str) -> int:
    """Kibibytes, by the kernel's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


if __name__ == "__main__":
    main()
