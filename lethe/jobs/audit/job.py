"""`lethe audit`: its configuration, from which a certificate and audits of the same mechanism come, side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.audit.config import AuditConfig, AuditOptions, GuessPairs, OneRunGame, TwoWorldGame, Workers
from lethe.audit.page import AuditPage
from lethe.audit.trainers import audit
from lethe.certificates.certificate import Certificate
from lethe.documents.specification import from_tagged
from lethe.documents.strict import errors_from, read_document, refuse_other_kind, require_place
from lethe.documents.version import __version__
from lethe.errors import InputError, LetheError
from lethe.jobs.audit.subjects import SUBJECTS, AuditSubject

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

    def kept(self) -> int:
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
            if fresh and self.score_file is not None and self.kept() == 0:
                Path(self.score_file).unlink(missing_ok=True)
            raise
