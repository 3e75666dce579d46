"""The peak of memory of a linear head on wide features: 60 000 records of 4000 numbers in float32, 0.96 GB, as of a scattering transform.

    python benchmarks/head_memory.py            # about a minute
    python benchmarks/head_memory.py --records 10000

Each line is a process of its own, so that its peak of memory is its own; what it maps of the file counts as its memory. CPU seconds are of
all threads, and of five full-batch steps with all that is read and checked before. The file is made in a temporary folder and removed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS, CLASSES, STEPS = 4000, 10, 5
MOST_MEMORY = 3.0  # GB
WAYS = ("fit_head, in memory", "fit_head, in blocks", "fit_linear, in memory", "fit_linear, in blocks")


def written(folder: Path, records: int) -> None:
    """Features that are no array in memory, and classes that depend on them."""
    rng = np.random.default_rng(0)
    features = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(records, COLUMNS))
    classes = rng.integers(0, CLASSES, records)
    for start in range(0, records, 1000):
        rows = rng.standard_normal((len(features[start : start + 1000]), COLUMNS), dtype=np.float32)
        rows[np.arange(len(rows)), classes[start : start + 1000]] += 2.0
        features[start : start + 1000] = rows
    np.save(folder / "y.npy", classes)


def trained(folder: Path, way: str, records: int) -> dict[str, Any]:
    """One training, in a process that does nothing else."""
    import torch
    from torch import nn

    import lethe
    from lethe.partitions import array_table
    from lethe.train import Head, Linear, fit

    loss = lethe.losses.Softmax(feature_norm=10.0, classes=CLASSES)
    run = lethe.Run(
        records=records,
        batches=lethe.batches.Full(),
        steps=STEPS,
        step_size=0.02,
        noise_multiplier=1.0,
        loss=loss,
        release="last",
        neighbours="replace_one",
    )
    paths = folder / "X.npy", folder / "y.npy"
    begun = time.process_time()
    if way.startswith("fit_head"):
        torch.manual_seed(0)
        data: Any = tuple(map(str, paths)) if way.endswith("memory") else array_table(*paths, blocks=24, progress=False)
        fit(Head(nn.Identity(), nn.Linear(COLUMNS, CLASSES, bias=False)), None, data, run)
    elif way.endswith("memory"):
        fit(Linear(dtype="float32"), None, tuple(np.load(path, mmap_mode="r") for path in paths), run)
    else:
        fit(Linear(dtype="float32"), None, array_table(*paths, blocks=24, progress=False), run)
    return {"cpu": time.process_time() - begun}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        found = trained(options.folder, options.measure, options.records)
        print(json.dumps({**found, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}))
        return
    print(f"{'what':<24}{'CPU s':>8}{'peak GB':>9}")
    with tempfile.TemporaryDirectory() as name:
        written(Path(name), options.records)
        for way in WAYS:
            command = [sys.executable, __file__, "--measure", way, "--folder", name, "--records", str(options.records)]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            print(f"{way:<24}{row['cpu']:>8.1f}{row['memory']:>9.2f}", flush=True)
    print(f"asked for: at most {MOST_MEMORY} GB")


if __name__ == "__main__":
    main()
