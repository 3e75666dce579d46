"""`lethe train`: from a configuration to a folder with weights, the recorded run and its certificate."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf

from lethe.certificate import Certificate
from lethe.certify import certify
from lethe.datasets import Table, centred_digits, load_table, split
from lethe.documents import read_document, require_new_folder, to_json, write_folder
from lethe.errors import InputError
from lethe.noun import Noun
from lethe.plan import plan
from lethe.run import Run
from lethe.train import Trained, fit_linear


class Privacy(Noun):
    """The target (epsilon, delta); with epsilon null the run's own noise is used and certified at delta."""

    delta: float = Field(gt=0, lt=1)
    epsilon: float | None = Field(default=None, gt=0)


class Data(Noun):
    """Where the records are: `path` null means scikit-learn's digits."""

    path: str | None = None
    target: str | None = None
    test_fraction: float = Field(default=0.2, ge=0, lt=1)


def _as_mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"got {value!r}; it needs a mapping.")
    return {str(key): entry for key, entry in value.items()}


def _as_data(value: Any) -> Data:
    return value if isinstance(value, Data) else Data(**_as_mapping(value))


def _as_privacy(value: Any) -> Privacy:
    return value if isinstance(value, Privacy) else Privacy(**_as_mapping(value))


class Job(Noun):
    """What `lethe train` is told.

    Args:
        data: {path, target, test_fraction}.
        run: the fields of a Run; `records` may be left out and is then the number of training records, which must be public.
        privacy: {delta, epsilon}.
        seed: for reproducible trials; null (the default) draws fresh randomness, as a release needs.
    """

    data: Annotated[InstanceOf[Data], BeforeValidator(_as_data)] = Data()
    run: Annotated[dict[str, Any], BeforeValidator(_as_mapping)]
    privacy: Annotated[InstanceOf[Privacy], BeforeValidator(_as_privacy)]
    seed: int | None = Field(default=None, ge=0)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Job:
        """Read a .yaml or .json configuration.

        Raises:
            InputError: the file cannot be read or holds no valid configuration.
        """
        try:
            return cls(**{str(key): value for key, value in read_document(path).items()})
        except InputError as error:
            raise InputError(error.what, source=str(path), remedy=error.remedy) from error

    def execute(self, folder: Path) -> JobOutcome:
        """Plan (if a target is given), train, certify what was recorded, and write the folder, whole or not at all.

        Raises:
            InputError: data, run or folder cannot be used.
            CalibrationError: no noise of the run's shape meets the target.
        """
        require_new_folder(folder)
        table = self._table()
        train, test = split(table, self.data.test_fraction, seed=self.seed or 0) if self.data.test_fraction > 0 else (table, None)
        run = Run.from_document({"records": len(train.features), **self.run}, source="run")
        if self.privacy.epsilon is not None:
            run = plan(run, self.privacy.epsilon, self.privacy.delta)
        trained = fit_linear(run, train.features, train.targets, classes=table.classes, seed=self.seed, progress=True)
        certificate = certify(trained.run, self.privacy.delta)
        outcome = JobOutcome(
            trained=trained,
            certificate=certificate,
            train_score=trained.score(train.features, train.targets),
            test_score=None if test is None else trained.score(test.features, test.targets),
            folder=folder,
            seeded=self.seed is not None,
            class_names=table.class_names,
        )
        write_folder(folder, outcome.files())
        return outcome

    def _table(self) -> Table:
        if self.data.path is None:
            return centred_digits()
        if self.data.target is None:
            raise InputError("data.target: missing; name the column (or array) to predict.")
        kind = self.run.get("loss", {}).get("kind") if isinstance(self.run.get("loss"), dict) else None
        return load_table(self.data.path, self.data.target, task="regression" if kind == "least_squares" else "classification")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What training gave: weights, recorded run, certificate, scores."""

    trained: Trained
    certificate: Certificate
    train_score: float
    test_score: float | None
    folder: Path
    seeded: bool
    class_names: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights, as plain data."""
        report = self.trained.report
        return {
            "folder": str(self.folder),
            "score": {"kind": self.trained.score_name, "train": self.train_score, "test": self.test_score},
            "records": report.records,
            "projected": report.projected,
            "left_over": report.left_over,
            "steps": report.steps,
            "seeded": self.seeded,
            "certificate": self.certificate.to_dict(),
        }

    def files(self) -> dict[str, bytes]:
        """The folder's files."""
        weights = io.BytesIO()
        np.savez(weights, weights=self.trained.weights, intercept=self.trained.intercept, class_names=np.array(self.class_names))
        return {
            "weights.npz": weights.getvalue(),
            "run.json": to_json(self.trained.run.to_document()).encode(),
            "certificate.json": to_json(self.certificate.to_dict()).encode(),
            "report.json": to_json(self.to_dict()).encode(),
        }

    def summary(self) -> str:
        """For a person, in a few lines; the scores are of private data and are not covered by the certificate."""
        report = self.trained.report
        test = "" if self.test_score is None else f", test {self.test_score:.4f}"
        lines = [
            f"{self.trained.score_name}: train {self.train_score:.4f}{test} (computed on the data itself: not covered by the certificate)",
            f"{report.records} records, {report.projected} projected to the feature norm, "
            f"{report.left_over} left over by the batches, {report.steps} steps",
            f"weights, run, certificate and report: {self.folder}/",
        ]
        if self.seeded:
            lines.append("The noise was seeded: fine for a trial, not for a release; leave seed out to draw fresh randomness.")
        return "\n".join(lines)
