"""AuditedTraining: what can be audited; a trainer, its canaries, the scores of its models, and the privacy claimed of it.

`audit` takes an `AuditedTraining`: linear.py and networks.py derive from `RunTraining`, which has a run and so a certified claim;
`FunctionTraining` wraps anybody's `train(data, seed)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lethe.accounting.certify import certify
from lethe.audit.config import AuditConfig, CanaryKind
from lethe.audit.games.canaries import Data, Record, RecordTrial, TrainFunction, blank, mislabelled, record_of, replaced
from lethe.audit.games.trainings import as_score
from lethe.audit.page import Claim
from lethe.audit.statistics.curves import Neighbours, Threat
from lethe.calculus.domains import FloatArray
from lethe.certificates.certificate import Certificate
from lethe.errors import InputError
from lethe.run.run import Run


class Canary(NamedTuple):
    """The record of world IN, the one in its place in world OUT, both in words, and which place that is, if it is known to be public."""

    inside: Record
    outside: Record
    words: str
    position: int | None = None


Scores = Callable[[Any], FloatArray]
"""What a training returned -> one score a canary, shape (m,)."""


class AuditedTraining(ABC):
    """A trainer. The records of world OUT are as many as of world IN: their number is public."""

    continuous: ClassVar[bool]
    """Whether its noise is known to be continuous, so that equal scores mean that noise was used again."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name on an audit page."""

    @property
    @abstractmethod
    def neighbours(self) -> Neighbours:
        """How the data sets of the two worlds differ."""

    def claim(self, config: AuditConfig) -> Claim | None:
        """The claim that is known at the audit's delta; None if there is none."""
        return

    def canary_positions(self, count: int, records: int) -> list[int]:
        """So many places where a canary is forgotten last: the last ones."""
        return list(range(records - count, records))

    @abstractmethod
    def canaries(self, kind: CanaryKind, data: Data, positions: Sequence[int], *, seed: int) -> list[Canary]:
        """A canary for each place; InputError where this trainer has none such, or no record without gradient to put in their place.

        Args:
            kind: what is looked for.
            data: the records, with those in whose places canaries may be.
            positions, seed: the places, from 0; of canaries that are drawn.
        """

    @abstractmethod
    def game(self, threat: Threat, canaries: Sequence[Canary]) -> tuple[TrainFunction, Scores]:
        """How to train so that an adversary sees what `threat` says, or InputError, and how that adversary scores the canaries."""

    def trial(self, threat: Threat, data: Data, canary: Canary, position: int) -> RecordTrial:
        """One training with a single canary, or without.

        Args:
            threat: what the adversary sees.
            data: the records.
            canary, position: what is there, or is not, and its place among them.
        """
        train, scores = self.game(threat, [canary])
        without, including = (replaced(data, {position: record}) for record in (canary.outside, canary.inside))
        return RecordTrial(train=train, without=without, including=including, score=partial(only_score, scores))


def only_score(scores: Scores, model: Any) -> float:
    """The score of the single canary."""
    (score,) = scores(model)
    return float(score)


class RunTraining(AuditedTraining):
    """A trainer of Lethe's, carrying out a run, which is certified."""

    continuous: ClassVar[bool] = True
    run: Run

    @property
    def name(self) -> str:
        """Such as `LinearTraining of run 7c1e`."""
        return f"{type(self).__name__} of run {self.run.run_id}"

    @property
    def neighbours(self) -> Neighbours:
        """Those of the run."""
        return self.run.neighbours

    def claim(self, config: AuditConfig) -> Claim:
        """The run's certificate; HypothesisError if it has none."""
        return claim_of(certify(self.run, config.delta, allow_large_delta=config.allow_large_delta))

    def canary_positions(self, count: int, records: int) -> list[int]:
        """The last places that a run of fixed batches uses, and of others the last there are; InputError if there are not as many."""
        apart = self.run.batches.fixed and self.run.batches.exact_size
        used = self.run.steps_per_pass * self.run.batch_size if apart else self.run.records
        if count > used:
            raise InputError(f"canaries: got {count}; the run uses {used} records.", source="run.records", remedy="take fewer.")
        return list(range(used - count, used))


def claim_of(certificate: Certificate) -> Claim:
    """The claim of a certificate, without its reasons, which an audit must not rely on."""
    run = certificate.run
    large = ", delta >= 1/records" if certificate.large_delta else ""
    return Claim(
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        neighbours=run.neighbours,
        release=run.release,
        source=f"{certificate.theorem}, run {run.run_id}{large}",
    )


def unknown_threat(threat: object, threats: Sequence[Threat], why: str) -> InputError:
    """The error for an adversary that a trainer cannot play, and why it cannot show more."""
    return InputError(f"threat: got {threat!r}; {why} it needs one of {', '.join(threats)}.", source="the argument threat")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionTraining(AuditedTraining):
    """Any (data, seed) -> model, and what its models say of a record. One record is replaced by another.

    For other relations build the two data sets: `lethe.audit.games.canaries.RecordTrial`.

    Args:
        train: trains; batches and noise follow from the seed, and from nothing else. With several workers it must be picklable.
        score: (model, record) -> a number, higher if the record seems to have been there. It looks at what the audit's threat says.
        classes: their public number, for mislabelled canaries.
    """

    continuous: ClassVar[bool] = False
    train: TrainFunction
    score: Callable[[Any, Record], float]
    classes: int | None = None

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.train, "__name__", type(self.train).__name__)

    @property
    def neighbours(self) -> Neighbours:
        """One record is replaced."""
        return "replace_one"

    def canaries(self, kind: CanaryKind, data: Data, positions: Sequence[int], *, seed: int) -> list[Canary]:
        """Mislabelled or blank records, against the records whose positions they take."""
        if kind not in ("auto", "mislabelled", "blank"):
            raise InputError(
                f"canary: got {kind!r}; directions of gradients need a trainer of Lethe's.", remedy="take mislabelled or blank."
            )
        owns = [record_of(data, position) for position in positions]
        if kind == "blank":
            words = "blank record, against record {}"
            return [
                Canary(blank(data, label=record[-1]), record, words.format(index)) for record, index in zip(owns, positions, strict=True)
            ]
        if self.classes is None:
            missing = "classes: None; a wrong label needs their number."
            raise InputError(missing, source="the argument classes", remedy="give it, or take blank.")
        words, classes = "record {} with the next label, against its own", self.classes
        wrong = [mislabelled(data, position, classes=classes) for position in positions]
        return [Canary(inside, original, words.format(index)) for inside, original, index in zip(wrong, owns, positions, strict=True)]

    def game(self, threat: Threat, canaries: Sequence[Canary]) -> tuple[TrainFunction, Scores]:
        """The user's function and its own score, whatever the adversary sees."""
        return self.train, partial(_advantages, self.score, tuple(canaries))


def _advantages(score: Callable[[Any, Record], float], canaries: Sequence[Canary], model: Any) -> FloatArray:
    """How much more each canary seems to have been there than the record in its place."""
    pairs = [[as_score(score(model, record), "the score") for record in (each.inside, each.outside)] for each in canaries]
    return np.array([inside - outside for inside, outside in pairs])
