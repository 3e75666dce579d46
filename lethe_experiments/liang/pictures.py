"""Pictures to train on: those of a file, or the digits that come with scikit-learn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.jobs.datasets import digits
from lethe_experiments.hong.samples import images_from

_FILE = "mnist.npz"
REMEDY = "give --data FILE.npz, or a folder with mnist.npz: square pictures x_train, y_train, x_test, y_test, of ten classes."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pictures:
    """Pictures, shape (n, channels, side, side), scaled to [-1, 1] by public constants, and their classes."""

    name: str
    pixels: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]


def pictures_from(path: Path | None) -> Pictures:
    """Pictures of a file, or of `mnist.npz` in a folder: those under x_train; without a path, scikit-learn's 1797 digits.

    Raises:
        InputError: the file cannot be read, or its pictures are not square.
        MissingExtraError: scikit-learn is needed and not installed.
    """
    if path is None:
        table = digits()
        return Pictures(name="scikit-learn's digits", pixels=_squares(table.features, "digits"), labels=table.targets)
    file = path / _FILE if path.is_dir() else path
    training, _ = images_from(file)
    scaled = training.features / 255.0 if training.features.max() > 1.0 else training.features
    return Pictures(name=file.name, pixels=_squares(scaled, str(file)), labels=training.labels)


def _squares(rows: FloatArray, source: str) -> npt.NDArray[np.float32]:
    pixels = rows.shape[1]
    for channels in (1, 3):
        side = math.isqrt(pixels // channels)
        if channels * side * side == pixels and side >= 4:
            pictures = (2.0 * rows - 1.0).astype(np.float32).reshape(-1, side, side, channels)
            return np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
    raise InputError(f"a picture has {pixels} numbers; it needs s x s or s x s x 3, s at least 4.", source=source, remedy=REMEDY)
