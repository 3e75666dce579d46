"""What can be audited from the command line: a training of `lethe train`, a run, or anybody's function."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, InstanceOf

from lethe.accounting.certify import certify
from lethe.audit.games.canaries import Data
from lethe.audit.page import Claim
from lethe.audit.trainers import FunctionTraining, LinearTraining
from lethe.audit.trainers.training import AuditedTraining, claim_of
from lethe.certificates.certificate import Certificate
from lethe.documents.specification import Specification, from_tagged
from lethe.documents.strict import read_document
from lethe.errors import InputError
from lethe.jobs.audit.functions import NamedScore, NamedTrain
from lethe.jobs.datasets import load_table
from lethe.jobs.training import Job
from lethe.run.run import Run

_SAID: dict[str, Any] = {"source": "the configuration"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedAudit:
    """All that an audit needs of its subject.

    Args:
        name: for people.
        training: what trains.
        data: (features, targets).
        delta: that of the audit.
        claim: what it is held against; None: nothing.
        certificate: what a run's claim comes from.
    """

    name: str
    training: AuditedTraining
    data: Data
    delta: float
    claim: Claim | None
    certificate: Certificate | None = None


class AuditSubject(Specification):
    """What is audited."""

    kind: ClassVar[str]

    @abstractmethod
    def prepare(self, delta: float | None, *, allow_large_delta: bool = False) -> PreparedAudit:
        """Read its files, and certify what has a run.

        Args:
            delta: of the audit; None: the subject's own.
            allow_large_delta: of what has a run: whether a delta >= 1/records is meant.
        Raises:
            InputError: a file or a function cannot be used, or no delta is said anywhere.
            HypothesisError: the run cannot be certified.
        """


class TrainSubject(AuditSubject):
    """A configuration of `lethe train`: its run, its data, and its delta.

    Args:
        config: the file.
    """

    kind: ClassVar[str] = "train"
    config: str

    def prepare(self, delta: float | None, *, allow_large_delta: bool = False) -> PreparedAudit:
        """See `AuditSubject`."""
        job = Job.load(self.config)
        allowed = allow_large_delta or job.privacy.allow_large_delta
        return _of_job(job, job.privacy.delta if delta is None else delta, self.config, allow_large_delta=allowed)


class RunSubject(AuditSubject):
    """A run, and the data it is of.

    Args:
        run: its file.
        data: as in a configuration of `lethe train`.
    """

    kind: ClassVar[str] = "run"
    run: str
    data: dict[str, Any] = Field(default_factory=dict)

    def prepare(self, delta: float | None, *, allow_large_delta: bool = False) -> PreparedAudit:
        """See `AuditSubject`."""
        if delta is None:
            raise _no_delta("a run has none")
        run = Run.load(self.run)
        fields: dict[str, Any] = {
            "run": read_document(self.run),
            "data": self.data,
            "privacy": {"delta": delta, "allow_large_delta": allow_large_delta},
        }
        prepared = _of_job(Job(**fields), delta, self.run, allow_large_delta=allow_large_delta)
        if len(prepared.data[0]) != run.records:
            raise InputError(
                f"records: the run is of {run.records}; the data have {len(prepared.data[0])} to train on.",
                source=self.run,
                remedy="set subject.data.test_fraction to what it was when the run was recorded, or 0.",
            )
        return prepared


class RecordFile(Specification):
    """Where the records of a function are.

    Args:
        path: a .npz, .csv or .parquet file; features with more than two axes are flattened to rows.
        target: the column (or array) that labels them.
        classes: the list of classes; None: those found there.
    """

    path: str
    target: str | None = None
    classes: Annotated[tuple[str, ...] | None, Field(strict=False)] = None


class CallableSubject(AuditSubject):
    """A function that trains, and one that scores.

    Args:
        train: `module:function`, called as train((features, targets), seed) -> model; batches and noise must follow from the seed alone.
        score: `module:function`, called as score(model, (features, target)) -> a number, higher if that record seems to have been there.
        data: where the records are.
        claim: {epsilon, delta, neighbours, release}, and source, where that is not the configuration; None: nothing is claimed.
    """

    kind: ClassVar[str] = "callable"
    train: str
    score: str
    data: Annotated[InstanceOf[RecordFile], BeforeValidator(lambda value: RecordFile(**value) if isinstance(value, dict) else value)]
    claim: Annotated[
        InstanceOf[Claim] | None, BeforeValidator(lambda value: Claim(**{**_SAID, **value}) if isinstance(value, dict) else value)
    ] = None

    def prepare(self, delta: float | None, *, allow_large_delta: bool = False) -> PreparedAudit:
        """See `AuditSubject`."""
        del allow_large_delta  # nothing is certified
        if delta is None:
            if self.claim is None:
                raise _no_delta("the function has no claim that would say it")
            delta = self.claim.delta
        table = load_table(self.data.path, self.data.target, classes=self.data.classes)
        train, score = NamedTrain.find(self.train, key="subject.train"), NamedScore.find(self.score, key="subject.score")
        training = FunctionTraining(train=train, score=score, classes=table.classes)
        return PreparedAudit(name=self.train, training=training, data=(table.features, table.targets), delta=delta, claim=self.claim)


SUBJECTS: dict[str, type[AuditSubject]] = {subject.kind: subject for subject in (TrainSubject, RunSubject, CallableSubject)}


def parse_subject(value: object) -> AuditSubject:
    """The subject that {kind: ...} describes.

    Raises:
        InputError: it describes none.
    """
    return from_tagged(value, tag="kind", classes=SUBJECTS)


_UNSEEDED = ", but with noise that is drawn fresh: under the seed that stands there, training has no guarantee"


def _of_job(job: Job, delta: float, file: str, *, allow_large_delta: bool) -> PreparedAudit:
    rows, run = job.prepare()
    seeded = run.seeded or job.seed is not None
    run = run.replace(seeded=False)  # an audit trains it again and again, and claims what holds of noise that is drawn anew
    certificate = certify(run, delta, allow_large_delta=allow_large_delta)
    return PreparedAudit(
        name=f"run {run.run_id}, as {file} says{_UNSEEDED if seeded else ''}",
        training=LinearTraining(run=run, classes=rows.train.classes),
        data=(rows.train.features, rows.train.targets),
        delta=delta,
        claim=claim_of(certificate),
        certificate=certificate,
    )


def _no_delta(why: str) -> InputError:
    return InputError(f"delta: missing; {why}.", remedy="write delta: 1e-5, or what you need, at the top of the configuration.")
