"""What the networks of Hong et al. 2022 are trained on: principal components of MNIST's images, and synthetic sets of the same size."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lethe.errors import InputError, MissingExtraError
from lethe.jobs.datasets import load_table

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

COMPONENTS = 60
DATA_SCALE = 10.0
DIGITS = tuple(range(10))
REMEDY = "give --data FILE.npz with the arrays x_train, y_train, x_test, y_test: MNIST's images and digits."
_MNIST_TRAINING = 60_000  # the first of OpenML's 70 000 images are the training set


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Which digits to tell apart, and from how many training images."""

    name: str
    digits: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Features as rows and class numbers from 0."""

    features: Array
    labels: Labels


def images_from(path: Path) -> tuple[Sample, Sample]:
    """MNIST's training and test images, as rows of pixels, from an .npz file.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    if path.suffix.lower() != ".npz":
        raise InputError(f"--data: got {path}; it needs an .npz file.", remedy=REMEDY)
    names = tuple(str(digit) for digit in DIGITS)
    tables = [load_table(path, target, task="classification", classes=names) for target in ("y_train", "y_test")]
    training, test = (Sample(features=table.features, labels=table.targets) for table in tables)
    return training, test


def fetched_images() -> tuple[Sample, Sample]:
    """MNIST's training and test images from OpenML, by scikit-learn, which keeps a copy in the user's folder.

    Raises:
        InputError: they could not be fetched.
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import fetch_openml
    except ImportError as error:
        raise MissingExtraError("scikit-learn is needed and not installed.", remedy='pip install "lethe-dp[train]"') from error
    try:
        # The other parser needs pandas.
        pixels, digits = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff", return_X_y=True)
    except (OSError, ValueError, HTTPException) as error:
        raise InputError(f"MNIST could not be fetched: {error}.", source="OpenML, mnist_784", remedy=REMEDY) from error
    whole = Sample(features=np.asarray(pixels, dtype=np.float64), labels=np.asarray(digits, dtype=np.int64))
    return _rows(whole, np.arange(_MNIST_TRAINING)), _rows(whole, np.arange(_MNIST_TRAINING, len(whole.labels)))


def mnist_samples(training: Sample, test: Sample, task: Task, records: int, seed: int) -> tuple[Sample, Sample]:
    """`records` random training images of the task's digits, and all its test images, mapped by what the former say.

    Their first 60 principal components, centred and of deviation 1 each, scaled so that the longest training record has norm 10.
    """
    rows = np.flatnonzero(np.isin(training.labels, task.digits))
    drawn = np.random.default_rng([seed, records, len(task.digits)]).choice(rows, records, replace=False)
    seen, unseen = _rows(training, drawn), _rows(test, np.flatnonzero(np.isin(test.labels, task.digits)))
    centred = seen.features - seen.features.mean(axis=0)
    components = np.linalg.eigh(centred.T @ centred).eigenvectors[:, : -COMPONENTS - 1 : -1]  # the largest come last
    features = normalised(seen.features @ components, unseen.features @ components)
    numbered, tested = (
        Sample(features=rows, labels=np.searchsorted(task.digits, sample.labels))
        for rows, sample in zip(features, (seen, unseen), strict=True)
    )
    return numbered, tested


def gaussian_sample(records: int, classes: int, seed: int) -> Sample:
    """Independent standard normal features, normalised as the images are; the class is the largest of as many random linear scores."""
    random = np.random.default_rng([seed, records, classes])
    drawn = random.normal(size=(records, COMPONENTS))
    features, _ = normalised(drawn, drawn)
    labels = (features @ random.normal(size=(COMPONENTS, classes))).argmax(axis=1)
    labels[:classes] = np.arange(classes)  # each class occurs
    return Sample(features=features, labels=labels)


def normalised(rows: Array, others: Array) -> tuple[Array, Array]:
    """Both, shifted and scaled so that columns of `rows` have mean 0 and one deviation, and its longest row the norm DATA_SCALE.

    Raises:
        InputError: a column of `rows` is constant.
    """
    centre, deviation = rows.mean(axis=0), rows.std(axis=0)
    if not deviation.min() > 1e-9 * deviation.max():
        raise InputError(
            f"the training images vary in fewer than {rows.shape[1]} directions.", source="--data, or MNIST as fetched", remedy=REMEDY
        )
    unit, other = (rows - centre) / deviation, (others - centre) / deviation
    scale = DATA_SCALE / np.linalg.norm(unit, axis=1).max()
    return unit * scale, other * scale


def _rows(sample: Sample, rows: npt.NDArray[np.int64]) -> Sample:
    return Sample(features=sample.features[rows], labels=sample.labels[rows])
