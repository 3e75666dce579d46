"""A frame of Dask on a cluster of two workers: private fits beside plain Dask, which carries out the same passes, and beside dask-ml.

    python benchmarks/partitioned_cluster.py                                   # 64 partitions of 20 MB, workers of 1 GB
    python benchmarks/partitioned_cluster.py --dask-ml /path/to/bin/python     # an environment with dask-ml, which need not have Lethe

Each line is a cluster of its own, whose workers are fresh. Seconds of a pass are on the wall, and of the processors of both workers in user
and system mode; the import of Lethe by the workers is a line of its own. Plain Dask looks whether all numbers are finite, then sums
products of rows, or risk, gradient and Hessian of the logistic loss, in NumPy. "Held" is how many partitions one worker held at most at
once, as the scheduler saw it twenty times a second. Files are made in a temporary folder and removed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 50
NAMES = [f"x{place}" for place in range(COLUMNS)]
WHICH = ("plain", "adassp", "objective_perturbation", "dask_ml")


def written(folder: Path, partitions: int, rows: int) -> None:
    """Features in float32, a class and a number that depend on them, a row group for each partition."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    weights = rng.standard_normal(COLUMNS).astype(np.float32) / np.sqrt(COLUMNS)
    schema = pa.schema([*((name, pa.float32()) for name in NAMES), ("label", pa.int8()), ("target", pa.float32())])
    with pq.ParquetWriter(folder / "table.parquet", schema, use_dictionary=False, compression="NONE") as out:
        for _ in range(partitions):
            features = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
            score = features @ weights + 0.5 * rng.standard_normal(rows, dtype=np.float32)
            columns = [*features.T.copy(), (score > 0).astype(np.int8), np.clip(score, -5.0, 5.0)]
            out.write_table(pa.table(columns, schema=schema), row_group_size=rows)


def finite(part: Any) -> bool:
    return bool(np.isfinite(part.to_numpy()).all())


def products(part: Any) -> Any:
    rows = part[NAMES].to_numpy().astype(np.float64)
    return rows.T @ rows, rows.T @ part["target"].to_numpy().astype(np.float64)


def derivatives(part: Any, weights: Any) -> Any:
    rows, signs = part[NAMES].to_numpy().astype(np.float64), 2.0 * part["label"].to_numpy() - 1.0
    margins = signs * (rows @ weights)
    probabilities = 1.0 / (1.0 + np.exp(margins))
    return np.logaddexp(0.0, -margins).sum(), -rows.T @ (signs * probabilities), (rows.T * (probabilities * (1 - probabilities))) @ rows


class Clock:
    """Seconds on the wall and of the workers' processors, and the partitions that one of them held at most."""

    def __init__(self, client: Any, cluster: Any) -> None:
        self.client, self.cluster, self.held, self._end = client, cluster, 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        self.mark = self._now()

    def lap(self, what: str) -> None:
        """Print what passed since the last time."""
        now = self._now()
        print(f"    {what:<44}{now[0] - self.mark[0]:>8.2f} s{now[1] - self.mark[1]:>8.2f} CPU s", flush=True)
        self.mark = self._now()

    def close(self) -> None:
        """Print what was held, and how much memory workers took."""
        self._end.set()
        self.thread.join()
        peak = max(self.client.run(_peak).values())
        print(f"    held at most {self.held} partitions, peak of memory {peak / 1e9:.2f} GB, load {os.getloadavg()[0]:.1f}", flush=True)

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), sum(self.client.run(time.process_time).values())

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            for worker in list(self.cluster.scheduler.workers.values()):
                self.held = max(self.held, sum(1 for task in list(worker.has_what) if task.nbytes > 10**6))


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def plain(frame: Any, clock: Clock) -> None:
    from dask.base import compute
    from dask.delayed import delayed

    def summed(function: Callable[..., Any], columns: list[str], *more: Any) -> None:
        parts = compute(*(delayed(function)(part, *more) for part in frame[columns].to_delayed()))
        if function is not finite:
            for values in zip(*parts, strict=True):
                sum(values)

    for what, function, columns, more in (
        ("whether numbers are finite", finite, [*NAMES, "target"], ()),
        ("products of rows", products, [*NAMES, "target"], ()),
        ("risk, gradient, Hessian", derivatives, [*NAMES, "label"], (np.full(COLUMNS, 0.01),)),
    ):
        for time_of in ("first", "second"):
            summed(function, columns, *more)
            clock.lap(f"{what}, the {time_of} time")


def private(frame: Any, clock: Clock, which: str) -> None:
    from lethe.estimators import LogisticRegression, Ridge
    from lethe.estimators.options import EstimatorOptions
    from lethe.partitions import dask_table

    def progress(number: int, done: int, blocks: int) -> None:
        if done == blocks:
            clock.lap(f"pass {number}")

    def load() -> None:
        import lethe.estimators  # noqa: F401

    clock.client.run(load)
    clock.lap("import of Lethe")
    goal = "target" if which == "adassp" else "label"
    model: Any = (
        Ridge(epsilon=1.0, options=EstimatorOptions(mechanism="adassp"), feature_norm=8.0, target_bound=5.0)
        if which == "adassp"
        else LogisticRegression(epsilon=1.0, options=EstimatorOptions(mechanism="objective_perturbation"), feature_norm=8.0)
    )
    model.fit(dask_table(frame[[*NAMES, goal]], progress=progress), goal)


def dask_ml(frame: Any, clock: Clock) -> None:
    model: Any = importlib.import_module("dask_ml.linear_model").LogisticRegression
    columns = frame[[*NAMES, "label"]].to_dask_array(lengths=True)  # one array: by itself, Dask reads a column in fewer partitions
    features, labels = columns[:, :-1], columns[:, -1]
    clock.lap("how many rows there are")
    for solver in ("newton", "lbfgs"):
        model(solver=solver, max_iter=10).fit(features, labels)
        clock.lap(f"LogisticRegression, {solver}, at most 10 steps")


def measure(which: str, folder: Path, limit: str) -> None:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        clock = Clock(client, cluster)
        try:
            frame = dd.read_parquet(folder, split_row_groups=True)  # pyright: ignore[reportArgumentType]
            if which == "plain":
                plain(frame, clock)
            elif which == "dask_ml":
                dask_ml(frame, clock)
            else:
                private(frame, clock, which)
        finally:
            clock.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rows", type=int, default=96_000, help="of a partition")
    parser.add_argument("--limit", default="1GB", help="of a worker's memory")
    parser.add_argument("--only", choices=WHICH, nargs="+", default=list(WHICH))
    parser.add_argument("--dask-ml", help="a Python that has dask-ml; without it, its line is left out")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        measure(options.measure, options.folder, options.limit)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        if options.folder is None:
            written(folder, options.partitions, options.rows)
        print(f"{options.partitions} partitions of {options.rows} rows, {COLUMNS} columns, {os.cpu_count()} processors")
        for which in options.only:
            python = options.dask_ml if which == "dask_ml" else sys.executable
            if python is not None:
                print(f"  {which}", flush=True)
                subprocess.run([python, __file__, "--measure", which, "--folder", str(folder), "--limit", options.limit], check=True)


if __name__ == "__main__":
    main()
