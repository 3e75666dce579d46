"""AuditJob: the configuration of `lethe audit`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.audit.config import AuditConfig, AuditOptions, GuessPairs, OneRunGame, TwoWorldGame, Workers
from lethe.audit.trainers import audit
from lethe.documents.strict import read_document, refuse_other_kind, require_place
from lethe.errors import InputError, LetheError
from lethe.jobs.audit.audited import AuditSubject, parse_subject
from lethe.jobs.audit.outcome import AuditOutcome

Game = Literal["two_world", "one_run"]
_ONLY: dict[Game, tuple[str, ...]] = {"two_world": ("runs", "score_file", "workers"), "one_run": ("canaries", "guesses")}


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

    subject: Annotated[InstanceOf[AuditSubject], BeforeValidator(parse_subject)]
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
        """Read a .yaml or .json configuration.

        Raises:
            InputError: the file cannot be read or holds no valid configuration.
        """
        content = read_document(path)
        refuse_other_kind(content, "configuration of `lethe audit`", source=str(path))
        try:
            return cls(**{str(key): value for key, value in content.items()})
        except InputError as error:
            raise InputError(error.what, source=str(path), remedy=error.remedy) from error

    def execute(self, *, progress: bool = False) -> AuditOutcome:
        """Train, and hold what was found against what is claimed.

        Args:
            progress: a bar on standard error, if that is a terminal.
        Raises:
            InputError: a file, a function or the data cannot be used, or the score file is another audit's.
            HypothesisError: the run cannot be certified.
        """
        if self.score_file is not None:
            require_place(self.score_file, ".jsonl")
        prepared = self.subject.prepare(self.delta, allow_large_delta=self.allow_large_delta)
        with _no_empty_file(self.score_file):
            page = audit(prepared.training, prepared.data, self.config(prepared.delta), claim=prepared.claim, progress=progress)
        return AuditOutcome(page=page.model_copy(update={"subject": prepared.name}), certificate=prepared.certificate)

    def config(self, delta: float) -> AuditConfig:
        """The audit that it describes, at that delta."""
        shared = {name: getattr(self, name) for name in AuditOptions.model_fields}
        if self.game == "one_run":
            return AuditConfig(delta=delta, game=OneRunGame(canaries=self.canaries, guesses=self.guesses), **shared)
        return AuditConfig(delta=delta, game=TwoWorldGame(runs=self.runs, workers=self.workers, score_file=self.score_file), **shared)

    def kept(self) -> int:
        """How many trainings the score file keeps."""
        return 0 if self.score_file is None else _scores(Path(self.score_file))


@contextmanager
def _no_empty_file(score_file: str | None) -> Iterator[None]:
    """Where no training ended, a score file without scores would refuse the audit with what was mended or declared anew."""
    fresh = score_file is not None and not Path(score_file).exists()
    try:
        yield
    except (LetheError, KeyboardInterrupt):
        if fresh and score_file is not None and _scores(Path(score_file)) == 0:
            Path(score_file).unlink(missing_ok=True)
        raise


def _scores(file: Path) -> int:
    # The first line says what game it is.
    return max(0, file.read_bytes().count(b"\n") - 1) if file.exists() else 0
