"""JobOutcome: what `lethe train` has after the training of a run, and the files that it writes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lethe.certificates.certificate import Certificate
from lethe.documents.strict import to_json
from lethe.jobs.estimators.saved import MODEL, SavedModel
from lethe.jobs.tables.public_columns import PublicColumns
from lethe.train import Fitted
from lethe.train.linear.models import LinearPredictor


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobOutcome:
    """The result of a training: weights, recorded run, certificate, scores."""

    trained: Fitted[LinearPredictor]
    certificate: Certificate
    train_score: float
    test_score: float | None
    folder: Path
    seeded: bool
    class_names: tuple[str, ...]
    config: dict[str, Any]
    target: str | None = None
    columns: PublicColumns | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"JobOutcome({self.trained!r}, {self.certificate!r}, {self.folder})"

    @property
    def epsilon(self) -> float:
        """As certified."""
        return self.certificate.epsilon

    def explain(self) -> str:
        """How private it is, in words."""
        public = [] if self.columns is None else ["Stated of the columns:", *(f"    {line}" for line in self.columns.describe())]
        return "\n".join([self.certificate.explain(), *public])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights, as plain data."""
        report = self.trained.diagnostics
        return {
            "folder": str(self.folder),
            "score": {"kind": self.trained.model.score_name, "train": self.train_score, "test": self.test_score},
            "records": report.records,
            "projected": report.projected,
            "left_over": report.left_over,
            "steps": report.steps,
            "seeded": self.seeded,
            **({} if self.columns is None else {"public": self.columns.describe()}),
            "notes": list(self.notes),
            "certificate": self.certificate.to_dict(),
        }

    def files(self) -> dict[str, bytes]:
        """The folder's files."""
        weights = io.BytesIO()
        loss = self.trained.run.loss.to_document()
        np.savez(
            weights,
            weights=self.trained.model.weights,
            intercept=self.trained.model.intercept,
            class_names=np.array(self.class_names),
            loss=np.array(loss["kind"]),
            feature_norm=np.array(loss["feature_norm"]),  # new features must be projected to it before predicting
        )
        return {
            **({} if self.columns is None else {MODEL: self._saved(self.columns, loss).document()}),
            "weights.npz": weights.getvalue(),
            "config.json": to_json(self.config).encode(),
            "run.json": to_json(self.trained.run.to_document()).encode(),
            "certificate.json": to_json(self.certificate.to_dict()).encode(),
            "report.json": to_json(self.to_dict()).encode(),
        }

    def _saved(self, columns: PublicColumns, loss: dict[str, Any]) -> SavedModel:
        return SavedModel(
            trained_by=str(loss["kind"]),
            target=str(self.target),
            classes=self.class_names or None,
            feature_norm=float(loss["feature_norm"]),
            columns=columns,
            weights=self.trained.model.weights,
            intercept=self.trained.model.intercept,
        )

    def summary(self) -> str:
        """For a person, in a few lines; the scores are of private data and are not covered by the certificate."""
        report, score_name = self.trained.diagnostics, self.trained.model.score_name
        test = "" if self.test_score is None else f", test {self.test_score:.4f}"
        lines = [
            f"{score_name}: train {self.train_score:.4f}{test} (computed on the data itself: not covered by the certificate)",
            f"{report.records} records, {report.projected} projected to the feature norm, "
            f"{report.left_over} left over by the batches, {report.steps} steps",
            f"weights, run, certificate and report: {self.folder}/",
        ]
        lines += [f"note: {note}" for note in self.notes]
        if self.seeded:
            lines.append("NO RELEASE: the noise was seeded, which is fine for a trial; leave seed out to draw fresh randomness.")
        return "\n".join(lines)
