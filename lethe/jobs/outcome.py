"""JobOutcome: what `lethe train` has after a training, by a run or by an estimator, and the files that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.certificates.certificate import Certificate
from lethe.certificates.statement import Statement
from lethe.documents.strict import to_json
from lethe.jobs.estimators.saved import MODEL, WEIGHTS, SavedModel
from lethe.run.run import Run


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobOutcome:
    """The result of a training, by `lethe.train.fit` or of an estimator; scores are of private data, and no certificate covers them.

    Args:
        certificate: with what is declared of the data; `epsilon` is infinite of a seeded training.
        facts: what the report says besides; `about` says it to a person, in a line.
        explanation: how private it is, in words.
        weights: the file of weights.
        model: what `lethe predict` reads; None: nothing is stated of the columns of a run's data.
        run: as recorded; None: of an estimator, whose certificate holds it.
        config: the configuration that trains the same again.
    """

    trained: Any
    certificate: Certificate | Statement
    epsilon: float
    seeded: bool
    score_name: str
    train_score: float
    test_score: float | None
    facts: dict[str, Any]
    about: str
    explanation: str
    notes: Sequence[str]
    weights: bytes
    model: SavedModel | None
    run: Run | None
    config: dict[str, Any]
    folder: Path

    def __repr__(self) -> str:
        return f"JobOutcome({self.trained!r}, {self.certificate!r}, {self.folder})"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights, as plain data."""
        return {
            "folder": str(self.folder),
            "score": {"kind": self.score_name, "train": self.train_score, "test": self.test_score},
            **self.facts,
            "seeded": self.seeded,
            "notes": list(self.notes),
            "certificate": self.certificate.to_dict(),
        }

    def files(self) -> dict[str, bytes]:
        """The folder's files."""
        documents = {"config.json": self.config, "certificate.json": self.certificate.to_dict(), "report.json": self.to_dict()}
        if self.run is not None:
            documents["run.json"] = self.run.to_document()
        return {
            WEIGHTS: self.weights,
            **({} if self.model is None else {MODEL: self.model.document()}),
            **{name: to_json(content).encode() for name, content in documents.items()},
        }

    def summary(self) -> str:
        """For a person, in a few lines."""
        test = "" if self.test_score is None else f", test {self.test_score:.4f}"
        lines = [
            f"{self.score_name}: train {self.train_score:.4f}{test} (computed on the data itself: not covered by the certificate)",
            self.about,
            f"weights, {'model' if self.run is None else 'run'}, certificate and report: {self.folder}/",
            *(f"note: {note}" for note in self.notes),
        ]
        if self.seeded:
            lines.append("NO RELEASE: the noise was seeded, which is fine for a trial; leave seed out to draw fresh randomness.")
        return "\n".join(lines)
