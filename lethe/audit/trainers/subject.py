"""The interface of an audited trainer: train, say which records are looked for, and score the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lethe.audit.games import Data, Record, Train
from lethe.audit.statistics.result import Threat
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.run import Run

CanaryKind = Literal["auto", "mislabelled", "blank", "random_direction", "least_moved"]
CANARIES: tuple[CanaryKind, ...] = ("auto", "mislabelled", "blank", "random_direction", "least_moved")


class Canary(NamedTuple):
    """The record of world IN, the one in its place in world OUT, both in words, and which place that is, if it is known to be public."""

    inside: Record
    outside: Record
    words: str
    position: int | None = None


Scores = Callable[[Any], FloatArray]
"""What a training returned -> one score a canary, shape (m,)."""


class Subject(ABC):
    """A trainer of Lethe's, carrying out a run. The records of world OUT are as many as of world IN: their number is public."""

    run: Run

    @abstractmethod
    def canaries(self, kind: CanaryKind, data: Data, positions: Sequence[int], *, seed: int) -> list[Canary]:
        """A canary for each place.

        Raises:
            InputError: this trainer has no such canaries, or no record without gradient to put in their place.
        """

    @abstractmethod
    def game(self, threat: Threat, canaries: Sequence[Canary]) -> tuple[Train, Scores]:
        """How to train so that an adversary sees what `threat` says, and how that adversary scores the canaries.

        Raises:
            InputError: this trainer shows no such thing.
        """


@dataclass(frozen=True, slots=True, eq=False)
class OnlyScore:
    """The score of the single canary."""

    scores: Scores

    def __call__(self, model: Any) -> float:
        """The first of one."""
        (score,) = self.scores(model)
        return float(score)


def last_used(run: Run, count: int) -> list[int]:
    """The last places that a run of fixed batches uses, and of others the last there are: the latest to be forgotten.

    Raises:
        InputError: there are not as many.
    """
    used = run.steps_per_pass * run.batch_size if run.batches.fixed else run.records
    if count > used:
        raise InputError(f"canaries: got {count}; the run uses {used} records.", source="run.records", remedy="take fewer.")
    return list(range(used - count, used))


def unknown_threat(threat: object, known: Sequence[Threat], why: str) -> InputError:
    """The error for an adversary that a trainer cannot play."""
    return InputError(f"threat: got {threat!r}; {why} it needs one of {', '.join(known)}.", source="the argument threat")
