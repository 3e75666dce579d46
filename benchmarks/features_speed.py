"""How long the transformers of lethe.features take, and how much memory: each on 60 000 images of 28 x 28 pixels, in a process of its own.

`python benchmarks/features_speed.py [--images 60000] [--threads 2] [--only scattering,...]` prints Markdown. Seconds are by the clock and
of the processor, since other programs may run beside it; memory is the most that the process ever held, images, table and libraries
included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIDE, CHANNELS = 28, 81


def scattering(images: np.ndarray) -> Any:
    from lethe.features import ScatteringFeatures

    return ScatteringFeatures().fit_transform(images)


def convolutions(images: np.ndarray) -> Any:
    from lethe.features import RandomConvolutionFeatures

    return RandomConvolutionFeatures().fit_transform(images)


def fourier(images: np.ndarray) -> Any:
    from lethe.features import RandomFourierFeatures

    return RandomFourierFeatures(1000, gamma=0.02).fit_transform(images.reshape(len(images), -1).astype(np.float32) / 255.0)


def _table(images: np.ndarray) -> np.ndarray:
    """As large as a scattering transform's, without the time for one."""
    return np.random.default_rng(1).random((len(images), CHANNELS * (SIDE // 4) ** 2), dtype=np.float32)


def normalised(images: np.ndarray) -> Any:
    from lethe.features import RecordNormalizer

    table = _table(images)
    return timed(lambda: RecordNormalizer(groups=CHANNELS).fit_transform(table))


def private_whitening(images: np.ndarray) -> Any:
    from lethe.features import PrivateWhitening

    table = _table(images)
    return timed(lambda: PrivateWhitening(CHANNELS, feature_norm=40.0).fit_transform(table))


def timed(work: Callable[[], Any]) -> Any:
    """What is measured where something has to be made first."""
    clock, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - clock, time.process_time() - processor


CASES = {
    "scattering": scattering,
    "random convolutions": convolutions,
    "random Fourier features": fourier,
    "record normalisation": normalised,
    "private whitening, fit and transform": private_whitening,
}


def measure(name: str, count: int, threads: int) -> dict[str, Any]:
    """One transformer, in this process."""
    import torch

    import lethe.features  # noqa: F401  so that loading it is not measured

    torch.set_num_threads(threads)
    images = np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE), dtype=np.uint8)
    found = timed(lambda: CASES[name](images))
    table, clock, processor = found if not isinstance(found[0], tuple) else found[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux
    return {"shape": list(table.shape), "clock": clock, "processor": processor, "peak": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="names of transformers, with commas between them")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.images, given.threads)))
        return
    print("| transformer | table | seconds | seconds of processor | peak memory, GiB |\n|---|---|---|---|---|")
    for name in [name.strip() for name in given.only.split(",") if name.strip()] or CASES:
        command = [sys.executable, __file__, "--images", str(given.images), "--threads", str(given.threads), "--one", name]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        print(
            f"| {name} | {row['shape'][0]} x {row['shape'][1]} | {row['clock']:.1f} | {row['processor']:.1f} | {row['peak']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
