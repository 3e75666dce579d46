"""What can be audited: trainers that say which records are looked for, how their models are scored, and what is claimed of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from lethe.accounting.certify import certify
from lethe.audit.claim import Claim
from lethe.audit.config import AuditConfig, CanaryKind
from lethe.audit.games.canaries import Data, Record, replaced
from lethe.audit.games.trials import RecordTrial, TrainFunction
from lethe.audit.statistics.setting import Neighbours, Threat
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

    def places(self, count: int, records: int) -> list[int]:
        """So many places where a canary is forgotten last: the last ones."""
        return list(range(records - count, records))

    @abstractmethod
    def canaries(self, kind: CanaryKind, data: Data, positions: Sequence[int], *, seed: int) -> list[Canary]:
        """A canary for each place.

        Args:
            kind: what is looked for.
            data: the records, with those in whose places canaries may be.
            positions: the places, from 0.
            seed: of canaries that are drawn.
        Raises:
            InputError: this trainer has no such canaries, or no record without gradient to put in their place.
        """

    @abstractmethod
    def game(self, threat: Threat, canaries: Sequence[Canary]) -> tuple[TrainFunction, Scores]:
        """How to train so that an adversary sees what `threat` says, and how that adversary scores the canaries.

        Raises:
            InputError: this trainer shows no such thing.
        """

    def trial(self, threat: Threat, data: Data, canary: Canary, position: int) -> RecordTrial:
        """One training with a single canary, or without.

        Args:
            threat: what the adversary sees.
            data: the records.
            canary: what is there, or is not.
            position: its place among them.
        Raises:
            InputError: as `game`, or the canary does not fit the data.
        """
        train, scores = self.game(threat, [canary])
        without, including = (replaced(data, {position: record}) for record in (canary.outside, canary.inside))
        return RecordTrial(train=train, without=without, including=including, score=OnlyScore(scores))


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
        """The run's certificate.

        Raises:
            HypothesisError: the run cannot be certified.
        """
        return claim_of(certify(self.run, config.delta, allow_large_delta=config.allow_large_delta))

    def places(self, count: int, records: int) -> list[int]:
        """The last places that a run of fixed batches uses, and of others the last there are.

        Raises:
            InputError: there are not as many.
        """
        used = self.run.steps_per_pass * self.run.batch_size if self.run.batches.fixed else self.run.records
        if count > used:
            raise InputError(f"canaries: got {count}; the run uses {used} records.", source="run.records", remedy="take fewer.")
        return list(range(used - count, used))


@dataclass(frozen=True, slots=True, eq=False)
class OnlyScore:
    """The score of the single canary."""

    scores: Scores

    def __call__(self, model: Any) -> float:
        """The first of one."""
        (score,) = self.scores(model)
        return float(score)


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


def unknown_threat(threat: object, known: Sequence[Threat], why: str) -> InputError:
    """The error for an adversary that a trainer cannot play.

    Args:
        threat: what was asked for.
        known: what the trainer can show.
        why: it cannot show more.
    """
    return InputError(f"threat: got {threat!r}; {why} it needs one of {', '.join(known)}.", source="the argument threat")
