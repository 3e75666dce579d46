"""One training in one of two worlds, scored by what an adversary sees of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.audit.games.canaries import Data, Record, replaced
from lethe.audit.games.error_context import errors_of, number
from lethe.audit.games.scores import OneRunScores
from lethe.audit.statistics.inputs import Booleans, require_array, require_flags
from lethe.calculus.domains import FloatArray, require_count
from lethe.errors import InputError

TrainFunction = Callable[[Data, int], Any]
"""(data, seed) -> model: batches and noise follow from the seed, and nothing else does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordTrial:
    """Black box, or the final model: train on one of two neighbouring data sets, and score the model.

    Args:
        train: (data, seed) -> model.
        without: the data of world OUT.
        including: the data of world IN.
        score: model -> a number, higher if the record seems to have been there; its final answers or its parameters are all it looks at.
    """

    train: TrainFunction
    without: Data
    including: Data
    score: Callable[[Any], float]

    def __call__(self, inside: bool, seed: int) -> float:
        """The score of one training."""
        return number(self.score(self.train(self.including if inside else self.without, seed)), "the score")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observations:
    """Everything that one training shows to the adversary.

    Args:
        start: the parameters before the first step, shape (D,).
        final: after the last, shape (D,).
        steps: what each step released, such as its noisy gradient, shape (T, D); None: the adversary does not see it.
    """

    start: FloatArray
    final: FloatArray
    steps: FloatArray | None = None


World = Callable[[bool, int], Observations]
"""(inside, seed) -> what one training with or without the record shows: white-box games need no more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinalTrial:
    r"""The final model in white box: $\langle\theta_T - \theta_0, -e\rangle$, e the direction of the record's gradient.

    Args:
        world: the training.
        direction: e, shape (D,).
    """

    world: World
    direction: FloatArray

    def __call__(self, inside: bool, seed: int) -> float:
        """The score of one training."""
        seen = self.world(inside, seed)
        return -float((seen.final - seen.start) @ self.direction)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepsTrial:
    r"""Every step in white box: $\sum_t\langle g_t, e_t\rangle$, $g_t$ what step t released.

    Args:
        world: the training.
        directions: $e_t$, shape (T, D), or (D,) for one at every step; rows of zeros where the record takes no part.
    """

    world: World
    directions: FloatArray

    def __call__(self, inside: bool, seed: int) -> float:
        """The score of one training.

        Raises:
            InputError: the world shows no steps.
        """
        return float(np.sum(require_steps(self.world(inside, seed)) * self.directions))


def require_steps(seen: Observations) -> FloatArray:
    """What each step released, or raise InputError.

    Raises:
        InputError: the world shows no steps.
    """
    if seen.steps is None:
        raise InputError("steps: None; this world does not show its steps.", source="the argument world", remedy="score the final model")
    return require_array("steps", seen.steps, dimensions=2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanaryRun:
    """One run with many canaries, each there or not by its own coin; where it is not, another record takes its place.

    Args:
        data: the other records, with places for the canaries.
        positions: of the canaries, each once.
        inside: the canaries.
        outside: what is there instead; None: the records of `data`.
    """

    data: Data
    positions: Sequence[int]
    inside: Sequence[Record]
    outside: Sequence[Record] | None = None

    def coins(self, seed: int) -> NDArray[np.bool_]:
        """Fair coins, from a generator of their own: not that of the plain seed, with which canaries may have been drawn."""
        return np.random.default_rng(_sequence("coins", seed)).random(len(self.positions)) < 0.5

    def drawn(self, coins: Booleans) -> Data:
        """The data that the coins give.

        Raises:
            InputError: places, canaries and coins are not equally many, or a place is there twice.
        """
        flags = require_flags("coins", coins, len(self.positions))
        if len(self.inside) != len(self.positions) or len(set(self.positions)) != len(self.positions):
            raise InputError(f"positions: got {len(self.positions)} for {len(self.inside)} canaries; each needs a place of its own.")
        absent = {} if self.outside is None else dict(zip(self.positions, self.outside, strict=True))
        present = {position: record for position, record, flag in zip(self.positions, self.inside, flags, strict=True) if flag}
        return replaced(self.data, {**absent, **present})

    def play(self, train: TrainFunction, score: Callable[[Any], Any], *, seed: int) -> OneRunScores:
        """Train once: the scores of all canaries, in their order, and the coins.

        Args:
            train: (data, seed) -> model.
            score: model -> one number a canary, computed without the coins.
            seed: of the coins, and of the training, whose randomness must not be theirs.
        Raises:
            InputError: the training or the score raised something, or returned no list of finite numbers.
        """
        coins = self.coins(seed)
        number = int(_sequence("training", seed).generate_state(1, np.uint64)[0])
        with errors_of(f"the training with seed {number}"):
            scores = score(train(self.drawn(coins), number))
        return OneRunScores(scores=require_array("scores", scores, dimensions=1), included=coins, seed=seed)


def _sequence(use: str, seed: int) -> np.random.SeedSequence:
    # The word stands first: [seed, 0] would give the very numbers of the plain seed.
    return np.random.SeedSequence([*use.encode(), require_count("seed", seed, low=0, high=2**64)])
