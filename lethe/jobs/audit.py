"""`lethe audit`: its configuration, and what can be audited: a training of `lethe train`, a run, or anybody's functions, found by name.

The command calls `AuditJob` with a file; it builds what is audited, calls `lethe.audit.trainers.audit` and returns the page.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.accounting.certify import certify
from lethe.audit.config import AuditConfig, AuditOptions, GuessPairs, OneRunGame, TwoWorldGame, Workers
from lethe.audit.games.canaries import Data, Record
from lethe.audit.games.trainings import as_score, errors_of
from lethe.audit.page import AuditPage, Claim
from lethe.audit.trainers import FunctionTraining, LinearTraining, audit
from lethe.audit.trainers.training import AuditedTraining, claim_of
from lethe.certificates.certificate import Certificate
from lethe.documents.specification import Specification, from_tagged, near_miss
from lethe.documents.strict import errors_from, read_document, refuse_other_kind, require_place
from lethe.documents.version import __version__
from lethe.errors import InputError, LetheError
from lethe.jobs.datasets import load_table
from lethe.jobs.training import Job
from lethe.run.run import Run

_UNSEEDED = ", but with noise that is drawn fresh: under the seed that stands there, training has no guarantee"


class PreparedAudit(NamedTuple):
    """All that an audit needs of its subject: its name, what trains, (features, targets), the claim, and what that comes from."""

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
        """Read its files, and certify what has a run, at its own delta where none is said; InputError, or HypothesisError of the run."""


class TrainSubject(AuditSubject):
    """A configuration of `lethe train`, by its file: its run, its data, and its delta."""

    kind: ClassVar[str] = "train"
    config: str

    def prepare(self, delta: float | None, *, allow_large_delta: bool = False) -> PreparedAudit:
        """The audit of the training that a train configuration describes."""
        job = Job.load(self.config)
        allowed = allow_large_delta or job.privacy.allow_large_delta
        return _of_job(job, job.privacy.delta if delta is None else delta, self.config, allowed)


class RunSubject(AuditSubject):
    """A run, by its file, and the data it is of, as in a configuration of `lethe train`."""

    kind: ClassVar[str] = "run"
    run: str
    data: dict[str, Any] = Field(default_factory=dict)

    def prepare(self, delta: float | None, *, allow_large_delta: bool = False) -> PreparedAudit:
        """The audit of the training that a run describes."""
        if delta is None:
            raise _no_delta("a run has none")
        run = Run.load(self.run)
        privacy = {"delta": delta, "allow_large_delta": allow_large_delta}
        job = Job.from_document({"run": read_document(self.run), "data": self.data, "privacy": privacy})
        prepared = _of_job(job, delta, self.run, allow_large_delta)
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
    data: RecordFile = Field(strict=False)
    claim: Annotated[
        InstanceOf[Claim] | None,
        BeforeValidator(lambda value: Claim(**{"source": "the configuration", **value}) if isinstance(value, dict) else value),
    ] = None

    def prepare(self, delta: float | None, *, allow_large_delta: bool = False) -> PreparedAudit:
        """The audit of a function of the user's own, with the claim that the configuration states."""
        del allow_large_delta  # nothing is certified
        if delta is None:
            if self.claim is None:
                raise _no_delta("the function has no claim that would say it")
            delta = self.claim.delta
        table = load_table(self.data.path, self.data.target, classes=self.data.classes)
        train, score = NamedTrain.find(self.train, key="subject.train"), NamedScore.find(self.score, key="subject.score")
        training = FunctionTraining(train=train, score=score, classes=table.classes)
        return PreparedAudit(self.train, training, (table.features, table.targets), delta, self.claim)


SUBJECTS: dict[str, type[AuditSubject]] = {subject.kind: subject for subject in (TrainSubject, RunSubject, CallableSubject)}


def _of_job(job: Job, delta: float, file: str, allow_large_delta: bool) -> PreparedAudit:
    """The audit of a training of `lethe train`, with the certificate of its run as the claim."""
    rows, run = job.prepare()
    seeded = run.seeded or job.seed is not None
    run = run.replace(seeded=False)  # an audit trains it again and again, and claims what holds of noise that is drawn anew
    certificate = certify(run, delta, allow_large_delta=allow_large_delta)
    name = f"run {run.run_id}, as {file} says{_UNSEEDED if seeded else ''}"
    training = LinearTraining(run=run, classes=rows.train.classes)
    return PreparedAudit(name, training, (rows.train.features, rows.train.targets), delta, claim_of(certificate), certificate)


def _no_delta(why: str) -> InputError:
    return InputError(f"delta: missing; {why}.", remedy="write delta: 1e-5, or what you need, at the top of the configuration.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Named:
    """A function of the user's: its name, such as `models:train`, the key of the configuration that names it, and a hash of its file, so
    that scores made by other code are not taken for its own. Of its errors it is said whose they are.
    """

    function: Callable[..., Any]
    name: str
    key: str
    code: str

    @classmethod
    def find(cls, name: str, *, key: str) -> Self:
        """Import `module:function`, which the configuration names at `key`; modules of the current folder are found, too."""
        module_name, colon, attribute = name.partition(":")
        if not (colon and module_name and attribute):
            raise InputError(f"{key}: got {name!r}; it needs module:function, such as models:train.")
        module = _imported(module_name, key)
        function = getattr(module, attribute, None)
        if not callable(function):
            kind = "nothing" if function is None else type(function).__name__
            near = near_miss(attribute, vars(module))
            what = f"the module {module_name!r} holds {kind} under the name {attribute!r};{near} it needs a function."
            raise InputError(f"{key}: {what}", remedy="name a function at the top of the module.")
        code = "" if module.__file__ is None else hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
        return cls(function=function, name=name, key=key, code=code)


class NamedTrain(Named):
    """(data, seed) -> model. It is given copies: what it changes in place stays its own."""

    def __call__(self, data: Data, seed: int) -> Any:
        """Train once."""
        with errors_of(f"{self.key}: {self.name}"):
            return self.function(tuple(column.copy() for column in data), seed)


class NamedScore(Named):
    """(model, record) -> a number."""

    def __call__(self, model: Any, record: Record) -> float:
        """Score one record."""
        with errors_of(f"{self.key}: {self.name}"):
            return as_score(self.function(model, record), f"{self.key}: {self.name}")


def _imported(name: str, key: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)  # for good: worker processes take the path over, and import the function by its name
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InputError(f"{key}: importing {name!r} needs the module {error.name!r}, which is not installed.") from error
        raise InputError(
            f"{key}: no module {error.name!r} in {folder} or among the installed ones.",
            remedy="call the command in the folder of the module, and name it without .py.",
        ) from error
    except (Exception, SystemExit) as error:  # whatever the module does at import
        raise InputError(f"{key}: importing {name!r} raised {type(error).__name__}: {error}") from error


Game = Literal["two_world", "one_run"]
_ONLY: dict[Game, tuple[str, ...]] = {"two_world": ("runs", "score_file", "workers"), "one_run": ("canaries", "guesses")}
_POINTS, _DECADES = 41, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOutcome:
    """The result of `lethe audit`: claim, audits and verdict, and the certificate that the claim of a run comes from."""

    page: AuditPage
    certificate: Certificate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        certificate = None if self.certificate is None else self.certificate.to_dict()
        return {**self.page.to_document(), "certificate": certificate, "lethe": __version__}

    def explained(self) -> str | None:
        """The certificate in words."""
        return None if self.certificate is None else self.certificate.explain()

    def curve(self) -> list[tuple[float, float]]:
        r"""The certified $(\delta, \epsilon(\delta))$ from a ten-thousandth of the certificate's $\delta$ on; empty without one."""
        if self.certificate is None:
            return []
        # The middle one is the certificate's own.
        deltas = self.certificate.delta * np.logspace(-_DECADES, _DECADES, _POINTS)
        return [(float(each), self.certificate.epsilon_at(float(each), allow_large_delta=True)) for each in deltas if each < 1.0]


class AuditJob(AuditOptions):
    r"""The configuration of `lethe audit`.

    Args:
        subject: {kind: train, config}, {kind: run, run, data} or {kind: callable, train, score, data, claim}.
        delta: $\delta$ of the audit; null: that of the training configuration, or of the claim.
        game: "two_world", `runs` trainings without and `runs` with one canary; "one_run", one training with `canaries` coins.
        runs, workers, score_file: see `TwoWorldGame`; the file is a .jsonl.
        canaries, guesses: see `OneRunGame`.
        threat, canary, level, conditional, allow_large_delta, seed: see `AuditConfig`.
    """

    subject: Annotated[InstanceOf[AuditSubject], BeforeValidator(lambda value: from_tagged(value, tag="kind", classes=SUBJECTS))]
    delta: float | None = Field(default=None, ge=0, lt=1)
    game: Game = "two_world"
    runs: int = Field(default=1000, ge=2)
    canaries: int = Field(default=1000, ge=4)
    guesses: GuessPairs | None = None
    workers: Workers | None = None
    score_file: str | None = None

    @model_validator(mode="after")
    def _fits_its_game(self) -> AuditJob:
        for game in get_args(Game):
            strange = [key for key in _ONLY[game] if game != self.game and getattr(self, key) != type(self).model_fields[key].default]
            if strange:
                raise InputError(f"{strange[0]}: belongs to game: {game}; the game is {self.game}.", remedy="leave it out, or change game.")
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AuditJob:
        """Read a .yaml or .json configuration; InputError, naming the file, where it holds no valid one."""
        content = read_document(path)
        refuse_other_kind(content, "configuration of `lethe audit`", source=str(path))
        with errors_from(path):
            return cls(**content)

    def execute(self, *, progress: bool = False) -> AuditOutcome:
        """Train, and hold what was found against what is claimed; `progress` is a bar on standard error, if that is a terminal.

        Raises:
            InputError: a file, a function or the data cannot be used, or the score file is another audit's.
            HypothesisError: the run cannot be certified.
        """
        if self.score_file is not None:
            require_place(self.score_file, ".jsonl")
        prepared = self.subject.prepare(self.delta, allow_large_delta=self.allow_large_delta)
        with self._no_empty_file():
            page = audit(prepared.training, prepared.data, self.config(prepared.delta), claim=prepared.claim, progress=progress)
        return AuditOutcome(page=page.model_copy(update={"subject": prepared.name}), certificate=prepared.certificate)

    def config(self, delta: float) -> AuditConfig:
        """The audit that it describes, at that delta."""
        shared = {name: getattr(self, name) for name in AuditOptions.model_fields}
        if self.game == "one_run":
            return AuditConfig(delta=delta, game=OneRunGame(canaries=self.canaries, guesses=self.guesses), **shared)
        return AuditConfig(delta=delta, game=TwoWorldGame(runs=self.runs, workers=self.workers, score_file=self.score_file), **shared)

    def scored(self) -> int:
        """How many trainings the score file keeps; its first line says what game it is."""
        file = None if self.score_file is None else Path(self.score_file)
        return 0 if file is None or not file.exists() else max(0, file.read_bytes().count(b"\n") - 1)

    @contextmanager
    def _no_empty_file(self) -> Iterator[None]:
        """Where no training ended, a score file without scores would refuse the audit with what was mended or declared anew."""
        fresh = self.score_file is not None and not Path(self.score_file).exists()
        try:
            yield
        except (LetheError, KeyboardInterrupt):
            if fresh and self.score_file is not None and self.scored() == 0:
                Path(self.score_file).unlink(missing_ok=True)
            raise
