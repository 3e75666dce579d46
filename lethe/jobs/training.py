"""`lethe train`: from a configuration to a folder with weights, the recorded run and its certificate."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan
from lethe.calculus.large_delta import delta_for
from lethe.certificates.certificate import Certificate
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.specification import Specification
from lethe.documents.strict import read_document, to_json
from lethe.errors import InputError
from lethe.jobs.datasets import Table, centred_digits, load_table, split
from lethe.run.losses import LOSSES, LinearLoss
from lethe.run.run import Run
from lethe.train import Fitted, LinearPredictor, fit_linear

FROM_DATA = "from_data"


def _as_mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"got {value!r}; it needs a mapping.")
    return {str(key): entry for key, entry in value.items()}


def _as_classes(value: Any) -> tuple[str, ...] | None:
    if value is None or value == FROM_DATA:
        return () if value == FROM_DATA else None
    if isinstance(value, list | tuple) and value and all(isinstance(name, str | int) and not isinstance(name, bool) for name in value):
        return tuple(str(name) for name in value)
    raise InputError(f"got {value!r}; it needs a list of class names, or {FROM_DATA}.")


class Privacy(Specification):
    """The target (epsilon, delta); with epsilon null the run's own noise is used and certified at delta.

    Args:
        delta: in (0, 1), and below 1/records.
        epsilon: > 0.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
    """

    delta: float = Field(gt=0, lt=1)
    epsilon: float | None = Field(default=None, gt=0)
    allow_large_delta: bool = False


class Data(Specification):
    """Where the records are.

    Args:
        path: a .csv, .parquet or .npz file; null: scikit-learn's digits.
        target: the column (or array) to predict.
        classes: the public list of classes, or "from_data", which says that the classes found there are public knowledge.
        test_fraction: of the rows, in [0, 1), kept for testing.
    """

    path: str | None = None
    target: str | None = None
    classes: Annotated[tuple[str, ...] | None, BeforeValidator(_as_classes)] = None
    test_fraction: float = Field(default=0.2, ge=0, lt=1)

    @model_validator(mode="after")
    def _complete(self) -> Data:
        if self.path is None and (self.target is not None or self.classes is not None):
            raise InputError("path: missing; a target or classes belong to a file of yours.", remedy="name the file, or drop both.")
        if self.path is not None and self.target is None:
            raise InputError("target: missing; name the column (or array) to predict.")
        return self


def _as_data(value: Any) -> Data:
    return value if isinstance(value, Data) else Data(**_as_mapping(value))


def _as_privacy(value: Any) -> Privacy:
    return value if isinstance(value, Privacy) else Privacy(**_as_mapping(value))


class TrainingRows(NamedTuple):
    """All records, those to train on, and those to test on, if any are kept for it."""

    every: Table
    train: Table
    test: Table | None


class Job(Specification):
    """The configuration of `lethe train`.

    Args:
        data: {path, target, test_fraction}.
        run: the fields of a Run; `records` may be left out and is then the number of training records, which must be public.
        privacy: {delta, epsilon}.
        seed: for reproducible trials, whose certificate is infinite: whoever knows the seed knows the noise; null (the default) draws
            fresh randomness, as a release needs.
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
        content = read_document(path)
        if "run" not in content and "batches" in content:
            raise InputError(
                "this describes a run; a training configuration also says on which data and at what delta.",
                source=str(path),
                remedy="put these fields under run:, add data: and privacy: (docs/train.md), or use `lethe certify`.",
            )
        try:
            return cls(**{str(key): value for key, value in content.items()})
        except InputError as error:
            raise InputError(error.what, source=str(path), remedy=error.remedy) from error

    def repeating(self, run: Run) -> dict[str, Any]:
        """The configuration that carries out this run again, with the noise that it has, as plain data.

        Args:
            run: as it was planned.
        """
        data = self.data.model_dump()
        if data["classes"] is not None:
            data["classes"] = list(data["classes"]) or FROM_DATA
        privacy = {**self.privacy.model_dump(), "epsilon": None}
        return {"data": data, "run": run.to_document(), "privacy": privacy, "seed": self.seed}

    def prepare(self) -> tuple[TrainingRows, Run]:
        """All that comes before training: read the data, and plan the run if a target is given.

        Raises:
            InputError: data or run cannot be used.
            CalibrationError: no noise of the run's shape meets the target.
        """
        table = self._table()
        train, test = split(table, self.data.test_fraction, seed=self.seed or 0) if self.data.test_fraction > 0 else (table, None)
        run = Run.from_document({"records": len(train.features), **self.run}, source="run")
        if run.neighbours == "add_or_remove" and test is not None:
            raise InputError(
                "data.test_fraction: a removed record would move others between training and test rows.",
                source="run.neighbours = add_or_remove",
                remedy="set data.test_fraction to 0 and test on another file, or certify zero_out or replace_one.",
            )
        delta_for(run.records, self.privacy.delta, allow_large_delta=self.privacy.allow_large_delta)  # before the long work
        if self.privacy.epsilon is not None:
            run = plan(run, self.privacy.epsilon, self.privacy.delta, allow_large_delta=True)
        return TrainingRows(table, train, test), run

    def execute(self, folder: Path, *, progress: bool = True) -> JobOutcome:
        """Plan (if a target is given), train, certify what was recorded, and write the folder, whole or not at all.

        Args:
            folder: a new one.
            progress: whether a bar is shown.
        Raises:
            InputError: data, run or folder cannot be used.
            CalibrationError: no noise of the run's shape meets the target.
        """
        require_new_folder(folder)
        (table, train, test), run = self.prepare()
        trained = fit_linear(run, train.features, train.targets, classes=table.classes, seed=self.seed, progress=progress)
        record = trained.record
        if self.data.classes == ():
            names = ", ".join(table.class_names)
            record = record.with_declared("classes", f"read off the data and said to be public knowledge: {names}")
        certificate = certify(record, self.privacy.delta, allow_large_delta=True)  # `prepare` has looked at it
        outcome = JobOutcome(
            trained=trained,
            certificate=certificate,
            train_score=trained.model.score(train.features, train.targets),
            test_score=None if test is None else trained.model.score(test.features, test.targets),
            folder=folder,
            seeded=trained.run.seeded,
            class_names=table.class_names,
            config=self.repeating(run),
        )
        write_folder(folder, outcome.files())
        return outcome

    def _table(self) -> Table:
        data = self.data
        if data.path is None:
            return centred_digits()
        loss = self.run.get("loss")
        known = LOSSES.get(str(loss.get("kind"))) if isinstance(loss, dict) else None
        if known is not None and issubclass(known, LinearLoss) and known.numeric_targets:
            return load_table(data.path, data.target, task="regression")
        if data.classes is None:
            raise InputError(
                "data.classes: missing; which classes occur is itself private, and the trained weights would show it.",
                remedy=f"list the classes that may occur, or say classes: {FROM_DATA} if those found in the data are public knowledge.",
            )
        return load_table(data.path, data.target, task="classification", classes=data.classes or None)


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

    def __repr__(self) -> str:
        return f"JobOutcome({self.trained!r}, {self.certificate!r}, {self.folder})"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights, as plain data."""
        report = self.trained.report
        return {
            "folder": str(self.folder),
            "score": {"kind": self.trained.model.score_name, "train": self.train_score, "test": self.test_score},
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
            "weights.npz": weights.getvalue(),
            "config.json": to_json(self.config).encode(),
            "run.json": to_json(self.trained.run.to_document()).encode(),
            "certificate.json": to_json(self.certificate.to_dict()).encode(),
            "report.json": to_json(self.to_dict()).encode(),
        }

    def summary(self) -> str:
        """For a person, in a few lines; the scores are of private data and are not covered by the certificate."""
        report, score_name = self.trained.report, self.trained.model.score_name
        test = "" if self.test_score is None else f", test {self.test_score:.4f}"
        lines = [
            f"{score_name}: train {self.train_score:.4f}{test} (computed on the data itself: not covered by the certificate)",
            f"{report.records} records, {report.projected} projected to the feature norm, "
            f"{report.left_over} left over by the batches, {report.steps} steps",
            f"weights, run, certificate and report: {self.folder}/",
        ]
        if report.projected == report.records:
            lines.append(
                "Every feature vector was longer than feature_norm: scale the features by public constants, or state a larger norm."
            )
        if self.seeded:
            lines.append("NO RELEASE: the noise was seeded, which is fine for a trial; leave seed out to draw fresh randomness.")
        return "\n".join(lines)
