"""Data sets of the benchmark of records: rows of norm at most 1 by public constants; images also as whitened scattering coefficients.

What the rule of `auto` was calibrated on is none of these. Its authors had looked at digits, at MNIST and at adult, at small pixels of
CIFAR, and at first figures of California; the rides were held out altogether.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from private_linear_data import Problem, adult, california_housing, mnist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from lethe.estimators.features.images import synthetic_images
from lethe.features import PublicWhitening, RecordNormalizer, ScatteringFeatures

CHANNELS = 81  # that a scattering transform makes of each of an image's
_RIDES = 108_000
_FEW = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """One set, and what its rivals are tuned over.

    Args:
        load: from the folder of files, the folder of features that were computed once, and the seed of the split.
        what: it is, for a reader.
        file: that it is read from, without its folder; None: of scikit-learn.
        passes, batches: of the rivals' grid; batches a pass. Of a set that is screened none.
        longer: more passes, of how many batches each, for the largest steps and larger ones: places that the grid's edge pointed to, and
            three times the passes that `auto` takes.
        tuning_seeds: noises and splits over which a place of the grid is judged: several where one test set is small.
        channels: that are whitened, by a private mean and covariance, before a model is trained; None: none are.
        screened: the share of the records on which `utility_records_screening.py` looks for the rival's settings; None: the grid is trained
            on all of them.
    """

    load: Callable[[Path, Path, int], Problem]
    what: str
    file: str | None
    passes: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    longer: tuple[tuple[int, int], ...] = ()
    tuning_seeds: int = 1
    channels: int | None = None
    screened: float | None = None


def digits(folder: Path, cache: Path, seed: int) -> Problem:
    """Each picture less its own mean and scaled to norm 1, which looks at no other; 1400 to train on, 397 to test on."""
    pictures, labels = load_digits(return_X_y=True)
    rows = pictures - pictures.mean(axis=1, keepdims=True)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    parts = train_test_split(rows, labels.astype(np.float64), train_size=1400, random_state=seed, stratify=labels)
    return _problem(*map(np.asarray, parts))


def california(folder: Path, cache: Path, seed: int) -> Problem:
    """Whether a block's houses are worth more than 200 000 dollars, by the columns of `california_housing`."""
    whole = california_housing(folder, seed)
    above = [(targets > 2.0).astype(np.float64) for targets in (whole.train_targets, whole.test_targets)]
    return _problem(whole.train, whole.test, *above)


def taxi(folder: Path, cache: Path, seed: int) -> Problem:
    """Whether a ride took more than 15 minutes, by its length, its hour, weekday, tariff and passengers; a sixth to test on."""
    with np.load(folder / "nyc_taxi.npz", allow_pickle=False) as file:
        held = {name: file[name] for name in ("pickup_minute", "duration_min", "fare_amount", "trip_distance", "rate_code_id")}
    told = (held["pickup_minute"] >= 0) & (held["fare_amount"] > 0) & (held["duration_min"] > 0)
    places = np.random.default_rng([5, seed]).permutation(np.flatnonzero(told))[:_RIDES]
    rows, long = ride_rows(held, places), (held["duration_min"][places] > 15.0).astype(np.float64)
    first = _RIDES * 5 // 6
    return _problem(rows[:first], rows[first:], long[:first], long[first:])


def ride_rows(held: Mapping[str, np.ndarray], places: np.ndarray) -> np.ndarray:
    """Of some rides: length, hour, weekday and tariff, rows of norm at most 1."""
    minutes, miles = held["pickup_minute"][places], np.clip(held["trip_distance"][places], 0.0, 50.0)
    length = np.log1p(miles) / np.log(51.0)
    tariffs = np.eye(7)[np.minimum(held["rate_code_id"][places], 6)]
    columns = [length[:, None], length[:, None] ** 2, np.eye(24)[minutes // 60 % 24], np.eye(7)[minutes // 1440 % 7], tariffs]
    return np.hstack(columns) / np.sqrt(5.0)


def scattering(name: str, file: str, folder: Path, cache: Path, seed: int) -> Problem:
    """Scattering coefficients, rows of norm 1 before and after each channel is scaled by its size in synthetic images; kept in `cache`."""
    train, test, labels, truths = _images(folder / file)
    found = []
    for part, images in (("train", train), ("test", test)):
        kept = cache / f"{name}_{part}.npy"
        if not kept.is_file():
            np.save(kept, _features(images, cache / f"{name}_{part}_raw.npy"))
        found.append(np.load(kept))
    return _problem(found[0], found[1], labels, truths)


def _features(images: np.ndarray, raw: Path) -> np.ndarray:
    transform, shape = ScatteringFeatures(), images.shape[1:]
    channels = CHANNELS * (1 if len(shape) == 2 else shape[0])
    table = np.load(raw) if raw.is_file() else transform.fit_transform(images)
    alike = RecordNormalizer()
    drawn = alike.fit_transform(transform.transform(synthetic_images(shape, images=200)))
    rows = alike.transform(table)
    return alike.transform(PublicWhitening.of_public_data(drawn, channels=channels, scale_only=True).fit(rows[:1]).transform(rows))


def _images(file: Path) -> tuple[np.ndarray, ...]:
    """As bytes, channels first, with labels."""
    with np.load(file, allow_pickle=False) as held:
        if "x_train" in held:
            parts = [held["x_train"], held["x_test"]]
        else:  # CIFAR-10, stored as differences
            differences = [held[f"x_{part}_diff2d"] for part in ("train", "test")]
            sums = [np.cumsum(np.cumsum(one, 1, dtype=np.uint8), 2, dtype=np.uint8) for one in differences]
            parts = [np.ascontiguousarray(one.transpose(0, 3, 1, 2)) for one in sums]
        labels = [held[f"y_{part}"].ravel().astype(np.float64) for part in ("train", "test")]
    return *parts, *labels


def _problem(train: np.ndarray, test: np.ndarray, labels: np.ndarray, truths: np.ndarray) -> Problem:
    return Problem(train=train, test=test, train_targets=labels, test_targets=truths, column_bound=1.0)


def _without_cache(load: Callable[[Path, int], Problem]) -> Callable[[Path, Path, int], Problem]:
    return lambda folder, cache, seed: load(folder, seed)


def _few_of_mnist(folder: Path, cache: Path, seed: int) -> Problem:
    """4000 of the training images, which the seed draws; all test images."""
    whole = mnist(folder, seed)
    drawn = np.random.default_rng([6, seed]).permutation(len(whole.train))[:_FEW]
    return _problem(whole.train[drawn], whole.test, whole.train_targets[drawn], whole.test_targets)


def _scattered(name: str, file: str, what: str, channels: int) -> DataSet:
    load: Any = partial(scattering, name, file)
    return DataSet(load=load, what=what, file=file, channels=channels, screened=0.25)


DATASETS = {
    "digits": DataSet(
        load=digits,
        what="digits, 1400 x 64, 10 classes",
        file=None,
        passes=(10, 30, 90, 300),
        batches=(10, 50),
        tuning_seeds=5,
    ),
    "california": DataSet(
        load=california,
        what="California, 16 512 x 13, 2 classes",
        file="california_housing.npz",
        passes=(10, 30, 90),
        batches=(10, 50),
        longer=((300, 50), (1200, 10)),
    ),
    "adult": DataSet(
        load=_without_cache(adult),
        what="adult, 32 561 x 108, 2 classes",
        file="adult.npz",
        passes=(10, 30),
        batches=(20, 100),
        longer=((90, 100), (300, 20), (1200, 10)),
    ),
    "taxi": DataSet(
        load=taxi,
        what="taxi rides, 90 000 x 40, 2 classes",
        file="nyc_taxi.npz",
        passes=(10,),
        batches=(100,),
        longer=((30, 100), (90, 20), (300, 20), (1200, 10)),
    ),
    "mnist_4000": DataSet(
        load=_few_of_mnist,
        what="MNIST, pixels, 4000 x 784, 10 classes",
        file="mnist.npz",
        passes=(10, 30, 90, 300),
        batches=(10, 50),
    ),
    "mnist": DataSet(load=_without_cache(mnist), what="MNIST, pixels, 60 000 x 784, 10 classes", file="mnist.npz", screened=0.25),
    "mnist_scattering": _scattered("mnist_scattering", "mnist.npz", "MNIST, scattering, 60 000 x 3969, 10 classes", CHANNELS),
    "fashion_scattering": _scattered(
        "fashion_scattering", "fashion_mnist.npz", "Fashion-MNIST, scattering, 60 000 x 3969, 10 classes", CHANNELS
    ),
    "cifar_scattering": _scattered(
        "cifar_scattering", "cifar10_20k.npz", "CIFAR-10, first 20 000, scattering, 20 000 x 15 552, 10 classes", 3 * CHANNELS
    ),
}
