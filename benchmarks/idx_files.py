"""Fashion-MNIST as `utility_records.py` reads it, made of its authors' four IDX files; Debian's package dataset-fashion-mnist has them.

python benchmarks/idx_files.py /usr/share/datasets/fashion-mnist FOLDER/fashion_mnist.npz
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np

_BYTES = 0x08  # what an IDX file calls the type uint8


def read(file: Path) -> np.ndarray:
    """The array of a gzipped IDX file of bytes: two zeros, the type, the count of dimensions, each of them as 4 bytes, the entries."""
    with gzip.open(file) as opened:
        held = opened.read()
    dimensions = held[3]
    if held[:3] != bytes((0, 0, _BYTES)):
        raise SystemExit(f"{file}: not an IDX file of bytes")
    shape = np.frombuffer(held, ">i4", dimensions, offset=4)
    return np.frombuffer(held, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def main() -> None:
    """Write one .npz file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the four .gz files")
    parser.add_argument("npz", type=Path, help="file to write")
    options = parser.parse_args()
    x_train, y_train, x_test, y_test = (
        read(options.folder / f"{part}-{kind}-ubyte.gz") for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    )
    np.savez_compressed(options.npz, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


if __name__ == "__main__":
    main()
