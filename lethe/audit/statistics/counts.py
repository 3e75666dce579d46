"""What is counted in a game: errors in two worlds, or right guesses in one run."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from lethe.audit.statistics.inputs import MOST_TRIALS
from lethe.audit.statistics.intervals import clopper_pearson_upper
from lethe.calculus.domains import FloatArray, require_count
from lethe.documents.specification import Specification


class Rates(NamedTuple):
    """A false-positive and a false-negative rate, such as upper bounds that hold together."""

    false_positive: float
    false_negative: float


class Tally(Specification):
    """The errors of one test: false positives among runs without the record, false negatives among runs with it.

    The trials must be independent: runs of the mechanism, and not many guesses on one model.
    """

    game: ClassVar[str] = "two_world"
    out_trials: int = Field(ge=1, le=MOST_TRIALS)
    false_positives: int = Field(ge=0)
    in_trials: int = Field(ge=1, le=MOST_TRIALS)
    false_negatives: int = Field(ge=0)

    @model_validator(mode="after")
    def _errors_are_trials(self) -> Tally:
        for errors, trials in (("false_positives", "out_trials"), ("false_negatives", "in_trials")):
            require_count(errors, getattr(self, errors), low=0, high=getattr(self, trials))
        return self

    @classmethod
    def at(cls, threshold: float, out_scores: FloatArray, in_scores: FloatArray) -> Tally:
        """Count the errors of guessing IN where the score is at least a threshold.

        Args:
            threshold: in the units of the scores.
            out_scores: without the record, shape (n0,).
            in_scores: with it, shape (n1,).
        """
        return cls(
            out_trials=out_scores.size,
            false_positives=int(np.count_nonzero(out_scores >= threshold)),
            in_trials=in_scores.size,
            false_negatives=int(np.count_nonzero(in_scores < threshold)),
        )

    def observed_rates(self) -> Rates:
        """The shares of errors, as counted."""
        return Rates(self.false_positives / self.out_trials, self.false_negatives / self.in_trials)

    def upper_rates(self, level: float) -> Rates:
        """Clopper and Pearson's upper bounds of both error rates, which hold together except with probability `level`."""
        return Rates(
            clopper_pearson_upper(self.false_positives, self.out_trials, 0.5 * level),
            clopper_pearson_upper(self.false_negatives, self.in_trials, 0.5 * level),
        )


class Guesses(Specification):
    """The guesses of one run: of `canaries` coin flips, `guessed` were guessed and `correct` of these rightly; the rest abstained."""

    game: ClassVar[str] = "one_run"
    canaries: int = Field(ge=1, le=MOST_TRIALS)
    guessed: int = Field(ge=1)
    correct: int = Field(ge=0)

    @model_validator(mode="after")
    def _each_is_among_the_last(self) -> Guesses:
        require_count("guessed", self.guessed, low=1, high=self.canaries)
        require_count("correct", self.correct, low=0, high=self.guessed)
        return self


GAMES: dict[str, type[Specification]] = {kind.game: kind for kind in (Tally, Guesses)}


def game_document(counts: Tally | Guesses) -> dict[str, Any]:
    """The counts as plain data with the name of the game."""
    return {"game": counts.game, **counts.model_dump()}
