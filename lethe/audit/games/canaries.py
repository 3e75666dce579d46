"""Canaries, records that a model remembers if it remembers anything, and trainings with and without them.

The trainers of `lethe.audit.trainers` make canaries by these, and `audit` plays a `CanaryRun` (one training, canaries put in by coins) or
many `RecordTrial`s (one training each, with the record or without).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lethe.audit.games.trainings import OneRunScores, as_score, errors_of
from lethe.audit.statistics.counts import Booleans, require_array, require_flags
from lethe.calculus.domains import FloatArray, outside, require_count
from lethe.errors import InputError

Column: TypeAlias = NDArray[Any]
Data: TypeAlias = tuple[Column, ...]
"""Arrays with one entry a record, such as (features, targets)."""
Record: TypeAlias = tuple[Any, ...]
"""One entry of each column."""
TrainFunction = Callable[[Data, int], Any]
"""(data, seed) -> model: batches and noise follow from the seed, and nothing else does."""


def require_data(data: object) -> Data:
    """Return arrays of one length >= 1 as a tuple, or raise InputError."""
    columns = tuple(np.asarray(column) for column in data) if isinstance(data, tuple | list) else ()
    lengths = {len(column) if column.ndim else -1 for column in columns}
    if len(lengths) != 1 or min(lengths) < 1:
        raise InputError(
            f"data: got {type(data).__name__} with arrays of length {sorted(lengths)}; it needs a tuple of arrays, one entry a record.",
            source="the argument data",
            remedy="give (features, targets)",
        )
    return columns


def record_of(data: Data, position: int) -> Record:
    """The record at that place."""
    return tuple(column[position] for column in data)


def replaced(data: Data, changes: Mapping[int, Record]) -> Data:
    """A copy of the data with other records at some places, place -> record; InputError if there is no such place, or one does not fit."""
    columns = require_data(data)
    copies = tuple(column.copy() for column in columns)
    for position, record in changes.items():
        row = require_count("position", position, low=0, high=len(columns[0]) - 1)
        if len(record) != len(columns):
            raise outside("record", len(record), f"{len(columns)} entries, one of each column")
        for column, entry in zip(copies, record, strict=True):
            shape = np.asarray(entry).shape
            if shape != column.shape[1:]:
                raise outside("record", shape, f"an entry of shape {column.shape[1:]}")
            column[row] = entry
    return copies


def mislabelled(data: Data, position: int, *, classes: int) -> Record:
    """The record at that place with the next of the `classes` instead of its own (a natural picture with a wrong label), its last entry."""
    columns, count = require_data(data), require_count("classes", classes, low=2, high=1_000_000)
    *inputs, label = record_of(columns, require_count("position", position, low=0, high=len(columns[0]) - 1))
    if columns[-1].dtype.kind not in "iu" and float(label) != int(label):
        raise outside("label", label, f"a class number from 0 to {count - 1}")
    return (*inputs, (require_count("label", int(label), low=0, high=count - 1) + 1) % count)


def blank(data: Data, *, label: Any) -> Record:
    """A record of zeros with that label."""
    *inputs, _ = record_of(require_data(data), 0)
    return (*(np.zeros_like(entry) for entry in inputs), label)


def random_directions(count: int, dimension: int, *, seed: int) -> FloatArray:
    """Unit vectors, shape (count, dimension), drawn uniformly, orthogonal to each other as far as the dimension allows."""
    generator, blocks = np.random.default_rng(seed), list[FloatArray]()
    for first in range(0, count, dimension):
        drawn = generator.normal(size=(dimension, min(dimension, count - first)))
        # The signs make the distribution uniform: LAPACK fixes those of R's diagonal by itself.
        basis, corner = np.linalg.qr(drawn)
        blocks.append((basis * np.sign(np.diag(corner))).T)
    return np.concatenate(blocks)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordTrial:
    """One training on one of two neighbouring data sets, and the score of its model: higher if the record seems to have been there."""

    train: TrainFunction
    without: Data
    including: Data
    score: Callable[[Any], float]

    def __call__(self, inside: bool, seed: int) -> float:
        """The score of one training."""
        return as_score(self.score(self.train(self.including if inside else self.without, seed)), "the score")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanaryRun:
    """One run with many canaries (`inside`), each there or not by its own coin.

    Where it is not, another record takes its place: that of `outside`, or of `data`.
    """

    data: Data
    positions: Sequence[int]
    inside: Sequence[Record]
    outside: Sequence[Record] | None = None

    def coins(self, seed: int) -> Booleans:
        """Fair coins, from a generator of their own: not that of the plain seed, with which canaries may have been drawn."""
        return np.random.default_rng(_sequence("coins", seed)).random(len(self.positions)) < 0.5

    def drawn(self, coins: Booleans) -> Data:
        """The data that the coins give; InputError unless places, canaries and coins are equally many, each place once."""
        flags = require_flags("coins", coins, len(self.positions))
        if len(self.inside) != len(self.positions) or len(set(self.positions)) != len(self.positions):
            raise InputError(f"positions: got {len(self.positions)} for {len(self.inside)} canaries; each needs a place of its own.")
        absent = {} if self.outside is None else dict(zip(self.positions, self.outside, strict=True))
        present = {position: record for position, record, flag in zip(self.positions, self.inside, flags, strict=True) if flag}
        return replaced(self.data, {**absent, **present})

    def play(self, train: TrainFunction, score: Callable[[Any], Any], *, seed: int) -> OneRunScores:
        """Train once, by (data, seed) -> model: the scores of all canaries, in their order, and the coins.

        The score, model -> one number a canary, is computed without the coins; the training's seed is not theirs.
        """
        coins = self.coins(seed)
        number = int(_sequence("training", seed).generate_state(1, np.uint64)[0])
        with errors_of(f"the training with seed {number}"):
            scores = score(train(self.drawn(coins), number))
        return OneRunScores(scores=require_array("scores", scores, dimensions=1), included=coins, seed=seed)


def _sequence(use: str, seed: int) -> np.random.SeedSequence:
    # The word stands first: [seed, 0] would give the very numbers of the plain seed.
    return np.random.SeedSequence([*use.encode(), require_count("seed", seed, low=0, high=2**64)])
