"""`lethe train`: from a configuration to a folder with weights, the recorded run and its certificate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan
from lethe.calculus.large_delta import delta_for
from lethe.certificates.training_record import HypothesisClaim
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.specification import Specification
from lethe.documents.strict import read_document, refuse_other_kind
from lethe.errors import InputError
from lethe.jobs.configuration import FROM_DATA, Data, Privacy, as_data, as_mapping, as_privacy, refuse_unanswered
from lethe.jobs.datasets import RecordTable, centred_digits, load_table, split
from lethe.jobs.estimators.choice import EstimatorChoice
from lethe.jobs.estimators.training import EstimatorOutcome, train_estimator
from lethe.jobs.ledger_section import LedgerSection, as_ledger
from lethe.jobs.run_outcome import JobOutcome
from lethe.jobs.tables.public_columns import PublicColumns
from lethe.jobs.tables.scale_notes import scale_notes
from lethe.run.losses import LOSSES
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run
from lethe.train import Linear, TrainOptions, fit


def _as_columns(value: Any) -> PublicColumns | None:
    return None if value is None else PublicColumns.parse(value)


def _as_run(value: Any) -> dict[str, Any] | None:
    return None if value is None else as_mapping(value)


def _as_model(value: Any) -> EstimatorChoice | None:
    return None if value is None else EstimatorChoice.parse(value)


class TrainingRows(NamedTuple):
    """All records, those to train on, and those to test on, if any are kept for it."""

    every: RecordTable
    train: RecordTable
    test: RecordTable | None


class Job(Specification):
    """The configuration of `lethe train`.

    Args:
        data: {path, target, classes, target_range, test_fraction}.
        columns: what is known of each column without looking at the records; None: all are numbers, used as they stand.
        public: how that is known, if it needs a word, such as "read off the table"; it then stands in the certificate, as declared.
        run: the fields of a Run; `records` may be left out and is then the number of training records, which must be public.
        model: in place of a run, an estimator of `lethe.estimators` and its parameters.
        privacy: {delta, epsilon}.
        seed: for reproducible trials, whose certificate is infinite: whoever knows the seed knows the noise; null (the default) draws
            fresh randomness, as a release needs.
        ledger: {place, data_set, by, why, slack}: what pays for the training; null: nothing is counted.
    """

    data: Annotated[InstanceOf[Data], BeforeValidator(as_data)] = Data()
    columns: Annotated[InstanceOf[PublicColumns] | None, BeforeValidator(_as_columns)] = None
    public: str | None = Field(default=None, min_length=1, max_length=300)
    run: Annotated[dict[str, Any] | None, BeforeValidator(_as_run)] = None
    model: Annotated[InstanceOf[EstimatorChoice] | None, BeforeValidator(_as_model)] = None
    privacy: Annotated[InstanceOf[Privacy], BeforeValidator(as_privacy)]
    seed: int | None = Field(default=None, ge=0)
    ledger: Annotated[InstanceOf[LedgerSection] | None, BeforeValidator(as_ledger)] = None

    @model_validator(mode="after")
    def _one_way_to_train(self) -> Job:
        if (self.run is None) == (self.model is None):
            raise InputError(
                f"run, model: both are {'missing' if self.run is None else 'given'}; one of the two says how to train.",
                remedy="state the fields of a run, or model: {estimator: logistic_regression}.",
            )
        if self.columns is not None and self.data.path is None:
            raise InputError("columns: they belong to a file of yours.", remedy="state data.path, or drop columns.")
        if self.public is not None and self.columns is None:
            raise InputError(
                "public: it says how what is stated under columns is known, and nothing is.", remedy="drop it, or state columns."
            )
        if self.run is not None and self.data.target_range is not None:
            raise InputError("data.target_range: a run states its residual_bound in place of it.", remedy="leave it out.")
        if self.model is not None:
            self.model.require_sections(self.privacy, self.data)
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Job:
        """Read a .yaml or .json configuration.

        Raises:
            InputError: the file cannot be read or holds no valid configuration.
        """
        content = read_document(path)
        try:
            refuse_unanswered(content)
        except InputError as error:
            raise InputError(error.what, source=str(path), remedy=error.remedy) from error
        refuse_other_kind(content, "configuration of `lethe train`", source=str(path))
        try:
            return cls(**{str(key): value for key, value in content.items()})
        except InputError as error:
            raise InputError(error.what, source=str(path), remedy=error.remedy) from error

    def repeating(self, run: Run | None = None) -> dict[str, Any]:
        """The configuration that trains the same again, as plain data.

        Args:
            run: as it was planned, to be carried out with the noise that it has; None: of an estimator.
        """
        data = {**self.data.model_dump(), "classes": None}
        if self.data.classes is not None:
            data["classes"] = list(self.data.classes) or FROM_DATA
        privacy = self.privacy.model_dump()
        content: dict[str, Any] = {"data": data}
        if self.columns is not None:
            content |= {"columns": self.columns.to_document(), **({} if self.public is None else {"public": self.public})}
        paid = {} if self.ledger is None else {"ledger": self.ledger.model_dump()}
        if run is None:
            assert self.model is not None
            return {**content, "model": self.model.to_document(), "privacy": privacy, "seed": self.seed, **paid}
        return {**content, "run": run.to_document(), "privacy": {**privacy, "epsilon": None}, "seed": self.seed, **paid}

    def prepare(self) -> tuple[TrainingRows, Run]:
        """All that comes before the training of a run: read the data, and plan the run if a target is given.

        Raises:
            InputError: data or run cannot be used, or a model is asked for in place of a run.
            CalibrationError: no noise of the run's shape meets the target.
        """
        if self.run is None:
            raise InputError(
                "model: an estimator chooses its own run; here a run is needed.",
                remedy="state run: in place of model:, or give the function that trains it (docs/audit.md).",
            )
        rows = self._rows()
        run = Run.from_document({"records": len(rows.train.features), **self.run}, source="run")
        if run.neighbours == "add_or_remove" and rows.test is not None:
            raise InputError(
                "data.test_fraction: a removed record would move others between training and test rows.",
                source="run.neighbours = add_or_remove",
                remedy="set data.test_fraction to 0 and test on another file, or certify zero_out or replace_one.",
            )
        delta_for(run.records, self.privacy.delta, allow_large_delta=self.privacy.allow_large_delta)  # before the long work
        if self.privacy.epsilon is not None:
            run = plan(run, self.privacy.epsilon, self.privacy.delta, allow_large_delta=True)
        return rows, run

    def train(self, folder: Path, *, progress: bool = True) -> JobOutcome | EstimatorOutcome:
        """Train by the run, or the model, and write the folder, whole or not at all.

        Args:
            folder: a new one.
            progress: whether a bar is shown.
        Raises:
            InputError: data, run, model or folder cannot be used.
            CalibrationError: no noise of the run's shape meets the target.
        """
        if self.model is None:
            return self.execute(folder, progress=progress)
        require_new_folder(folder)
        self.model.build(self.privacy, self.data, seed=self.seed)  # its parameters, before the data
        paid = None if self.ledger is None else self.ledger.spending()  # and a ledger that is not there
        rows = self._rows()
        return train_estimator(
            self.model,
            rows.train,
            rows.test,
            data=self.data,
            privacy=self.privacy,
            seed=self.seed,
            columns=self.columns,
            declared=self._declared(rows.every),
            notes=self._notes(self.model.feature_norm),
            config=self.repeating(),
            folder=folder,
            ledger=paid,
        )

    def execute(self, folder: Path, *, progress: bool = True) -> JobOutcome:
        """Of a run: plan (if a target is given), train, certify what was recorded, and write the folder, whole or not at all.

        Args:
            folder: a new one.
            progress: whether a bar is shown.
        Raises:
            InputError: data, run or folder cannot be used.
            CalibrationError: no noise of the run's shape meets the target.
        """
        require_new_folder(folder)
        paid = None if self.ledger is None else self.ledger.spending()  # a ledger that is not there, before the data
        (table, train, test), run = self.prepare()
        options = TrainOptions(seed=self.seed, progress=progress, ledger=paid)
        trained = fit(Linear(classes=table.classes), None, (train.features, train.targets), run, options=options)
        record = trained.record
        for claim in self._declared(table):
            record = record.with_declared(*claim)
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
            target=self.data.target,
            columns=self.columns,
            notes=tuple(self._notes(trained.run.loss.to_document().get("feature_norm"))),
        )
        write_folder(folder, outcome.files())
        return outcome

    def _rows(self) -> TrainingRows:
        table = self._table()
        fraction = self.data.test_fraction
        return TrainingRows(table, *(split(table, fraction, seed=self.seed or 0) if fraction > 0 else (table, None)))

    def _declared(self, table: RecordTable) -> list[HypothesisClaim]:
        """What the certificate rests on besides, and nobody can check: that facts about the data are public."""
        claims: list[HypothesisClaim] = []
        if self.data.classes == ():
            names = ", ".join(table.class_names)
            claims.append(HypothesisClaim("classes", f"read off the data and said to be public knowledge: {names}"))
        if self.columns is not None:
            how = "stated without a look at the records" if self.public is None else f"said to be public knowledge: {self.public}"
            claims.append(HypothesisClaim("columns", f"names, types, ranges, categories and fill values: {how}"))
        return claims

    def _notes(self, feature_norm: float | None) -> list[str]:
        return [] if self.data.path is None else scale_notes(feature_norm, self.columns)

    def _table(self) -> RecordTable:
        data, columns = self.data, self.columns
        if data.path is None:
            return centred_digits()
        if self.model is not None and columns is None and not data.path.lower().endswith(".npz"):
            columns = PublicColumns.parse({})  # whatever is not stated is refused by name
        if self._numeric_targets():
            return load_table(data.path, data.target, task="regression", columns=columns)
        if data.classes is None:
            raise InputError(
                "data.classes: missing; which classes occur is itself private, and the trained weights would show it.",
                remedy=f"list the classes that may occur, or say classes: {FROM_DATA} if those found in the data are public knowledge.",
            )
        return load_table(data.path, data.target, task="classification", classes=data.classes or None, columns=columns)

    def _numeric_targets(self) -> bool:
        if self.model is not None:
            return not self.model.is_classifier
        loss = (self.run or {}).get("loss")
        known = LOSSES.get(str(loss.get("kind"))) if isinstance(loss, dict) else None
        return known is not None and issubclass(known, LinearLoss) and known.numeric_targets
