"""Tables in blocks of Parquet: time of a pass, against scikit-learn's partial_fit over the same blocks, and the peak of memory.

    python benchmarks/partitioned_tables.py                              # 2e6 records of 50 columns, 0.4 GB
    python benchmarks/partitioned_tables.py --full     # and 2e7, 4 GB

Each line is a process of its own, so that its peak of memory is its own. Seconds of a pass are the median over passes, reading included;
CPU seconds are of all threads together, and of processes that it started, in user and system mode. The one that is not private reads the
same row groups and calls SGDClassifier.partial_fit once for each. Files are made in a temporary folder and removed. A line that is in the
file of results, which docs/partitions.md draws, is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from resumable import read_lines
from stored_results import append

RESULTS = Path(__file__).with_name("results") / "partitioned_tables.jsonl"
COLUMNS, GROUP, FILES = 50, 131_072, 4
METHODS = ("partial_fit", "objective_perturbation", "pass_ends", "adassp")
MOST_MEMORY = 1.5  # GB a process
MOST_RATIO = 1.5


def written(folder: Path, records: int) -> None:
    """Features in float32, a class and a number that depend on them, a file at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    weights = rng.standard_normal(COLUMNS).astype(np.float32) / np.sqrt(COLUMNS)
    names = [f"x{place}" for place in range(COLUMNS)]
    left = records
    for file in range(FILES):
        here = records // FILES if file < FILES - 1 else left
        left -= here
        schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.int8()), ("amount", pa.float32())])
        with pq.ParquetWriter(folder / f"part{file}.parquet", schema, use_dictionary=False, compression="NONE") as out:
            for start in range(0, here, GROUP):
                rows = rng.standard_normal((min(GROUP, here - start), COLUMNS), dtype=np.float32)
                score = rows @ weights + 0.5 * rng.standard_normal(len(rows), dtype=np.float32)
                columns = [*rows.T.copy(), (score > 0).astype(np.int8), np.clip(score, -5.0, 5.0)]
                out.write_table(pa.table(columns, schema=schema), row_group_size=GROUP)


def now() -> tuple[float, float]:
    """Seconds on the wall and of CPU: of all threads, and of processes that were started and have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime


class Clock:
    """The seconds of each pass, on the wall and of all threads."""

    def __init__(self) -> None:
        self.marks = [now()]

    def __call__(self, number: int, done: int, blocks: int) -> None:
        """Told by the table after each block."""
        if done == blocks:
            self.marks.append(now())

    def passes(self) -> tuple[float, float, int]:
        """Median seconds on the wall and of CPU, and how many passes there were; the first ends what looks through the table."""
        walls, cpus = zip(*((b[0] - a[0], b[1] - a[1]) for a, b in zip(self.marks[1:-1], self.marks[2:], strict=True)), strict=True)
        return median(walls), median(cpus), len(walls)


def private(folder: Path, which: str, workers: int) -> dict[str, float]:
    from lethe.estimators import LogisticRegression, Ridge
    from lethe.estimators.options import EstimatorOptions
    from lethe.partitions import parquet_table

    clock = Clock()
    features = [f"x{place}" for place in range(COLUMNS)]
    goal = "amount" if which == "adassp" else "label"
    table = parquet_table(folder, columns=[*features, goal], workers=workers, progress=clock)
    if which == "adassp":
        model: Any = Ridge(epsilon=1.0, options=EstimatorOptions(mechanism="adassp"), feature_norm=8.0, target_bound=5.0)
    elif which == "pass_ends":
        model = LogisticRegression(epsilon=1.0, options=EstimatorOptions(mechanism="pass_ends", passes=3), feature_norm=8.0)
    else:
        model = LogisticRegression(epsilon=1.0, options=EstimatorOptions(mechanism="objective_perturbation"), feature_norm=8.0)
    model.fit(table, goal)
    if which == "pass_ends":  # its batches are told one by one
        wall, cpu = (clock.marks[-1][part] - clock.marks[1][part] for part in (0, 1))
        return {"wall": wall / 3, "cpu": cpu / 3, "passes": 3}
    wall, cpu, passes = clock.passes()
    return {"wall": wall, "cpu": cpu, "passes": passes}


def plain(folder: Path) -> dict[str, float]:
    from sklearn.linear_model import SGDClassifier

    model, marks = SGDClassifier(loss="log_loss"), []
    for _ in range(3):
        begun = now()
        for rows, labels in _groups(folder):
            model.partial_fit(rows, labels, classes=[0, 1])
        ended = now()
        marks.append((ended[0] - begun[0], ended[1] - begun[1]))
    return {"wall": median(mark[0] for mark in marks), "cpu": median(mark[1] for mark in marks), "passes": 3}


def _groups(folder: Path) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    import pyarrow.parquet as pq

    names = [f"x{place}" for place in range(COLUMNS)]
    for path in sorted(folder.glob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=[*names, "label"], use_threads=False)
            yield np.stack([table.column(name).to_numpy() for name in names], axis=1), table.column("label").to_numpy()


def measured(folder: Path, which: str, workers: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", which, "--folder", str(folder), "--workers", str(workers)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="2e7 records too")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=2, help="threads")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        run: Callable[[], dict[str, float]] = (
            (lambda: plain(options.folder))
            if options.measure == "partial_fit"
            else lambda: private(options.folder, options.measure, options.workers)
        )
        found = run()
        print(json.dumps({**found, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}))
        return
    print(f"{'records':>10}  {'what':<24}{'passes':>7}{'s a pass':>10}{'ratio':>7}{'CPU s':>8}{'ratio':>7}{'peak GB':>9}")
    rows = {(row["records"], row["which"]): row for row in read_lines(options.results)}
    for records in [options.records, *([20_000_000] if options.full else [])]:
        with tempfile.TemporaryDirectory() as name:
            if missing := [which for which in METHODS if (records, which) not in rows]:
                written(Path(name), records)
            for which in missing:
                row = measured(Path(name), which, 1 if which == METHODS[0] else options.workers)
                facts = {"records": records, "columns": COLUMNS, "which": which, "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
                rows[records, which] = facts | row
                append(options.results, facts | row)
            base = rows[records, METHODS[0]]
            for which in METHODS:
                row = rows[records, which]
                ratios = [row[part] / base[part] for part in ("wall", "cpu")]
                timed = f"{row['passes']:>7.0f}{row['wall']:>10.2f}{ratios[0]:>7.2f}{row['cpu']:>8.2f}{ratios[1]:>7.2f}"
                print(f"{records:>10}  {which:<24}{timed}{row['memory']:>9.2f}", flush=True)
    print(f"asked for: at most {MOST_RATIO} of partial_fit a pass, and at most {MOST_MEMORY} GB a process")


if __name__ == "__main__":
    main()
