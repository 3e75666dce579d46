"""Job: what `lethe train` does with a configuration (build an estimator or a run, train, certify, pay), and the folder it writes; the
command, `lethe plan` and audit.py (which trains again and again) read one from a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan
from lethe.calculus.large_delta import delta_for
from lethe.certificates.certificate import Certificate
from lethe.certificates.records import HypothesisClaim, ReleaseRecord, TrainingRecord
from lethe.certificates.statement import Statement
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.specification import StoredSpecification
from lethe.documents.strict import errors_from
from lethe.errors import InputError
from lethe.jobs.configuration import FROM_DATA, Data, EstimatorChoice, LedgerSection, Privacy, refuse_unanswered
from lethe.jobs.datasets import RecordTable, centred_digits, load_table, split
from lethe.jobs.saved import JobOutcome, SavedModel, SavedRule, weights_file
from lethe.jobs.scores import score_lines
from lethe.jobs.tables.columns import PublicColumns, StatedColumns
from lethe.run.effective_loss import descends_envelope
from lethe.run.losses import LOSSES, Tweedie
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run
from lethe.train import Linear, TrainOptions, fit

NOT_SCALED = (
    "no ranges are stated, so the numbers are used as they stand: where columns have different units, the largest is all that is learned "
    "from. State columns: (`lethe init --data FILE --target COLUMN` asks for them), or divide by publicly known ranges first."
)
_FAR = 1.5


class TrainingRows(NamedTuple):
    """All records, those to train on, and those to test on, if any are kept for it."""

    every: RecordTable
    train: RecordTable
    test: RecordTable | None


class Job(StoredSpecification):
    """The configuration of `lethe train`.

    Args:
        data: {path, target, classes, target_range, test_fraction}.
        columns: what is known of each column without looking at the records; None: all are numbers, used as they stand.
        purpose: what it is trained for, in a few words: the title of the report.
        by: who trains, for the report.
        public: how that is known, if it needs a word, such as "read off the table"; it then stands in the certificate, as declared.
        run: the fields of a Run; `records` may be left out and is then the number of training records, which must be public.
        model: in place of a run, an estimator of `lethe.estimators` and its parameters.
        privacy: {delta, epsilon}.
        seed: for reproducible trials, whose certificate is infinite: whoever knows the seed knows the noise; null (the default) draws
            fresh randomness, as a release needs.
        ledger: {place, data_set, by, why, slack}: what pays for the training; null: nothing is counted.
    """

    _kind = "configuration of `lethe train`"
    data: Data = Field(default=Data(), strict=False)
    columns: StatedColumns = None
    purpose: str | None = Field(default=None, min_length=1, max_length=300)
    by: str | None = Field(default=None, min_length=1, max_length=300)
    public: str | None = Field(default=None, min_length=1, max_length=300)
    run: dict[str, Any] | None = None
    model: Annotated[EstimatorChoice | None, BeforeValidator(lambda value: None if value is None else EstimatorChoice.parse(value))] = None
    privacy: Privacy = Field(strict=False)
    seed: int | None = Field(default=None, ge=0)
    ledger: Annotated[LedgerSection | None, Field(strict=False)] = None

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
    def from_document(cls, document: dict[str, Any], *, source: str | None = None) -> Job:
        """Build one from plain data, in which every question of `lethe init` is answered; InputError, naming `source`."""
        with errors_from(source):
            refuse_unanswered(document)
        return super().from_document(document, source=source)

    def to_document(self, run: Run | None = None) -> dict[str, Any]:
        """The configuration as plain data; with a `run` that was planned in place of its own, to be carried out with the noise it has."""
        content: dict[str, Any] = {name: text for name, text in (("purpose", self.purpose), ("by", self.by)) if text is not None}
        content["data"] = self.data.to_document()
        if self.columns is not None:
            content |= {"columns": self.columns.to_document(), **({} if self.public is None else {"public": self.public})}
        if self.model is not None:
            content["model"] = self.model.to_document()
        else:
            content["run"] = self.run if run is None else run.to_document()
        privacy = self.privacy.model_dump() | ({} if run is None else {"epsilon": None})
        ledger = {} if self.ledger is None else {"ledger": self.ledger.model_dump()}
        return {**content, "privacy": privacy, "seed": self.seed, **ledger}

    def prepare(self) -> tuple[TrainingRows, Run]:
        """Read the data, and plan the run if a target is given: all that comes before its training; InputError of a model in its place."""
        if self.run is None:
            raise InputError(
                "model: an estimator chooses its own run; here a run is needed.",
                remedy="state run: in place of model:, or give the function that trains it (docs/audit.md).",
            )
        rows = self.rows()
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

    def train(self, folder: Path, *, progress: bool = True) -> JobOutcome:
        """Train by the run (planned, if a target is given) or the model, and write a new folder, whole or not at all.

        Raises:
            InputError: data, run, model, ledger or folder cannot be used.
            CalibrationError: no noise of the run's shape meets the target.
            BudgetExceededError: the ledger has not enough left.
        """
        require_new_folder(folder)
        if self.model is not None:
            self.model.build(self.privacy, self.data, seed=self.seed)  # its parameters, before the data
        paid = None if self.ledger is None else self.ledger.spending()  # and a ledger that is not there
        outcome = self._by_run(folder, progress, paid) if self.model is None else self._by_model(self.model, folder, paid)
        write_folder(folder, outcome.files())
        return outcome

    def _by_run(self, folder: Path, progress: bool, paid: Any) -> JobOutcome:
        (every, train, test), run = self.prepare()
        options = TrainOptions(seed=self.seed, progress=progress, ledger=paid)
        fitted = fit(Linear(classes=every.classes), None, (train.features, train.targets), run, options=options)
        certificate = certify(
            _declaring(fitted.record, self._declared(every)), self.privacy.delta, allow_large_delta=True
        )  # `prepare` has looked at it
        report, model, loss = fitted.diagnostics, fitted.model, fitted.run.loss.to_document()
        facts = {name: getattr(report, name) for name in ("records", "projected", "left_over", "steps")}
        saved, stated = None, list[str]()
        if self.columns is not None:
            facts["public"] = self.columns.describe()
            stated = ["Stated of the columns:", *(f"    {line}" for line in self.columns.describe())]
            saved = SavedModel(
                trained_by=str(loss["kind"]),
                target=str(self.data.target),
                classes=every.class_names or None,
                feature_norm=float(loss["feature_norm"]),
                rule=_rule_of(fitted.run),
                columns=self.columns,
                weights=model.weights,
                intercept=model.intercept,
            )
        return JobOutcome(
            trained=fitted,
            certificate=certificate,
            epsilon=certificate.epsilon,
            seeded=fitted.run.seeded,
            score_name=model.score_name,
            train_score=model.score(train.features, train.targets),
            test_score=None if test is None else model.score(test.features, test.targets),
            facts=facts,
            about=f"{report.records} records, {report.projected} projected to the feature norm, {report.left_over} left over by the "
            f"batches, {report.steps} steps",
            explanation="\n".join([certificate.explain(), *stated]),
            notes=self._notes(loss.get("feature_norm")),
            weights=weights_file(
                weights=model.weights,
                intercept=model.intercept,
                class_names=every.class_names,
                loss=loss["kind"],
                feature_norm=loss["feature_norm"],  # new features must be projected to it before predicting
            ),
            model=saved,
            run=fitted.run,
            config=self.to_document(run),
            folder=folder,
        )

    def _by_model(self, choice: EstimatorChoice, folder: Path, paid: Any) -> JobOutcome:
        every, train, test = self.rows()
        estimator = choice.build(self.privacy, self.data, seed=self.seed).set_params(ledger=paid)
        estimator.fit(train.features, _targets(train))
        saved = SavedModel(
            trained_by=choice.estimator,
            target=self.data.target or "digit",
            classes=tuple(map(str, estimator.classes_.tolist())) if choice.is_classifier else None,
            feature_norm=float(estimator.feature_norm_),
            columns=self.columns,
            weights=np.atleast_2d(estimator.coef_).T,
            intercept=np.atleast_1d(estimator.intercept_),
            target_range=None if choice.is_classifier else estimator.target_range_,
            rule=SavedRule.of(estimator.score_rule) if choice.is_classifier or estimator.score_name == "D^2" else None,
        )
        declared, public = self._declared(every), [] if self.columns is None else self.columns.describe()
        lines = [estimator.privacy_report_]
        if public:
            lines += ["", "Stated of the columns, and taken as public:", *(f"    {line}" for line in public)]
        if declared:
            lines += ["", "Declared of the data:", *(f"    {claim.name}: {claim.detail}" for claim in declared)]
        epsilon, records = float(estimator.epsilon_), estimator.n_samples_seen_
        scores = score_lines(
            estimator, *(None if data_set is None else (data_set.features, _targets(data_set)) for data_set in (train, test))
        )
        facts = {
            "records": records,
            "estimator": choice.estimator,
            "mechanism": estimator.mechanism_,
            "feature_norm": saved.feature_norm,
            "epsilon": "inf" if epsilon == math.inf else epsilon,
            "delta": self.privacy.delta,
            "declared": [claim._asdict() for claim in declared],
            "public": public,
            "privacy_report": estimator.privacy_report_,
        }
        return JobOutcome(
            trained=estimator,
            certificate=_with_declared(estimator, declared, self.privacy.delta),
            epsilon=epsilon,
            seeded=bool(estimator.seed_noise),
            score_name=scores[0].name,
            train_score=scores[0].train,
            test_score=scores[0].test,
            scores=scores,
            facts=facts,
            about=f"{choice.estimator} by {estimator.mechanism_}, {records} records, {len(saved.weights)} features, "
            f"feature norm {saved.feature_norm:.4g}",
            explanation="\n".join(lines),
            notes=self._notes(choice.feature_norm),
            weights=weights_file(coef_=estimator.coef_, intercept_=estimator.intercept_),
            model=saved,
            run=None,
            config=self.to_document(),
            folder=folder,
        )

    def rows(self) -> TrainingRows:
        """The records of the file, and those of them to train and to test on."""
        table, fraction = self._table(), self.data.test_fraction
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
        """On features whose scale makes a model useless, from public facts alone: what was stated, never what stands in the records."""
        if self.data.path is None:
            return []
        if self.columns is None:
            return [NOT_SCALED]
        longest = self.columns.longest
        if feature_norm is None or feature_norm <= _FAR * longest:
            return []
        return [
            f"feature_norm = {feature_norm:g} is far above {longest:.3g}, which no row of {len(self.columns.used)} columns exceeds "
            f"after scaling: noise grows with it. State {longest:.3g} or less."
        ]

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
        loss_class = LOSSES.get(str(loss.get("kind"))) if isinstance(loss, dict) else None
        return loss_class is not None and issubclass(loss_class, LinearLoss) and loss_class.numeric_targets


def _targets(table: RecordTable) -> npt.NDArray[Any]:
    """Targets as an estimator takes them: classes by their names."""
    return table.targets if table.classes is None else np.array(table.class_names)[table.targets]


def _with_declared(estimator: Any, declared: Sequence[HypothesisClaim], delta: float) -> Certificate | Statement:
    """The estimator's own, and what is declared of the data besides: within the seal."""
    from lethe.estimators.choice.runs import certified, release_record, training_record  # needs the optional scikit-learn

    proof: Certificate | Statement = estimator.certificate_
    if not declared:
        return proof
    if isinstance(proof, Certificate):
        record = training_record(proof.run, estimator.coef_, estimator.intercept_, averaged=estimator.n_averaged_)
        return certified(proof.run, delta).sealed(_declaring(record, declared))
    return Statement.sealed(_declaring(release_record(estimator.statement_, estimator.coef_, estimator.intercept_), declared))


def _rule_of(run: Run) -> SavedRule | None:
    """How classes have probabilities, or counts means, by the weights of a run; None where gradients of classes were clipped: its scores
    are of no known loss.
    """
    enveloped, loss = descends_envelope(run), run.loss
    if not isinstance(loss, LinearLoss) or (run.clips and not enveloped and not isinstance(loss, Tweedie)):
        return None
    envelope = run.clip_norm / loss.feature_norm if enveloped and run.clip_norm is not None else None
    return SavedRule(loss=loss, envelope=envelope, constant=1.0 / loss.feature_norm if loss.intercept else 0.0)


RecordT = TypeVar("RecordT", TrainingRecord, ReleaseRecord)


def _declaring(record: RecordT, declared: Sequence[HypothesisClaim]) -> RecordT:
    for claim in declared:
        record = record.with_declared(*claim)
    return record
