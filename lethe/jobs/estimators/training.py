"""Train the estimator that a configuration asks for, and write its weights, its encoding and how private it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.certificates.certificate import Certificate
from lethe.certificates.statement import Statement
from lethe.certificates.training_record import HypothesisClaim
from lethe.documents.folders import require_new_folder, write_folder
from lethe.documents.strict import to_json
from lethe.jobs.configuration import Data, Privacy
from lethe.jobs.datasets import RecordTable
from lethe.jobs.estimators.choice import EstimatorChoice
from lethe.jobs.estimators.saved import MODEL, WEIGHTS, SavedModel, weights_file
from lethe.jobs.tables.public_columns import PublicColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorOutcome:
    """The result: the fitted estimator, how private it is, and scores.

    Args:
        estimator: fitted.
        saved: the same, as it is written.
        certificate: of the run, or the statement of another mechanism; with what is declared of data.
        delta: at which epsilon is shown.
        declared: what was declared of the data.
        public: what was stated of the columns, a line each.
        notes: on the scale of features, from public facts.
        train_score, test_score: accuracy, or R^2; not private.
        config: the configuration that trains the same again.
        folder: what was written.
    """

    estimator: Any
    saved: SavedModel
    certificate: Certificate | Statement
    delta: float
    declared: tuple[HypothesisClaim, ...]
    public: tuple[str, ...]
    notes: tuple[str, ...]
    train_score: float
    test_score: float | None
    config: dict[str, Any]
    folder: Path

    @property
    def epsilon(self) -> float:
        """As certified; infinite of a seeded training."""
        return float(self.estimator.epsilon_)

    @property
    def score_name(self) -> str:
        """What the scores are."""
        return "R^2" if self.saved.classes is None else "accuracy"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights, as plain data."""
        return {
            "folder": str(self.folder),
            "score": {"kind": self.score_name, "train": self.train_score, "test": self.test_score},
            "records": self.estimator.n_samples_seen_,
            "seeded": bool(self.estimator.seed_noise),
            "estimator": self.saved.trained_by,
            "mechanism": self.estimator.mechanism_,
            "feature_norm": self.saved.feature_norm,
            "epsilon": "inf" if self.epsilon == float("inf") else self.epsilon,
            "delta": self.delta,
            "declared": [claim._asdict() for claim in self.declared],
            "public": list(self.public),
            "notes": list(self.notes),
            "privacy_report": self.estimator.privacy_report_,
            "certificate": self.certificate.to_dict(),
        }

    def files(self) -> dict[str, bytes]:
        """The folder's files."""
        return {
            WEIGHTS: weights_file(self.estimator.coef_, self.estimator.intercept_),
            MODEL: self.saved.document(),
            "config.json": to_json(self.config).encode(),
            "certificate.json": to_json(self.certificate.to_dict()).encode(),
            "report.json": to_json(self.to_dict()).encode(),
        }

    def summary(self) -> str:
        """For a person, in a few lines; the scores are of private data and are not covered by the certificate."""
        test = "" if self.test_score is None else f", test {self.test_score:.4f}"
        lines = [
            f"{self.score_name}: train {self.train_score:.4f}{test} (computed on the data itself: not covered by the certificate)",
            f"{self.saved.trained_by} by {self.estimator.mechanism_}, {self.estimator.n_samples_seen_} records, "
            f"{len(self.saved.weights)} features, feature norm {self.saved.feature_norm:.4g}",
            f"weights, model, certificate and report: {self.folder}/",
            *(f"note: {note}" for note in self.notes),
        ]
        if self.estimator.seed_noise:
            lines.append("NO RELEASE: the noise was seeded, which is fine for a trial; leave seed out to draw fresh randomness.")
        return "\n".join(lines)

    def explain(self) -> str:
        """How private it is, in words."""
        lines = [self.estimator.privacy_report_]
        if self.public:
            lines += ["", "Stated of the columns, and taken as public:", *(f"    {line}" for line in self.public)]
        if self.declared:
            lines += ["", "Declared of the data:", *(f"    {claim.name}: {claim.detail}" for claim in self.declared)]
        return "\n".join(lines)


def train_estimator(
    choice: EstimatorChoice,
    train: RecordTable,
    test: RecordTable | None,
    *,
    data: Data,
    privacy: Privacy,
    seed: int | None,
    columns: PublicColumns | None,
    declared: Sequence[HypothesisClaim],
    notes: Sequence[str],
    config: dict[str, Any],
    folder: Path,
    ledger: Any = None,
) -> EstimatorOutcome:
    """Fit, and write the folder, whole or not at all.

    Args:
        choice: the estimator.
        train, test: encoded records.
        data, privacy, seed: sections of the configuration.
        columns: the encoding, to be saved with the weights.
        declared: what is declared of the data.
        notes: to be shown.
        config: the configuration that trains the same again.
        folder: does not exist yet.
        ledger: what pays; None: nothing does.
    Raises:
        BudgetExceededError: the ledger has not enough left.
        InputError: parameters, data, the ledger or the folder cannot be used.
    """
    require_new_folder(folder)
    estimator = choice.build(privacy, data, seed=seed).set_params(ledger=ledger).fit(train.features, _targets(train))
    saved = SavedModel(
        trained_by=choice.estimator,
        target=data.target or "digit",
        classes=tuple(map(str, estimator.classes_.tolist())) if choice.is_classifier else None,
        feature_norm=float(estimator.feature_norm_),
        columns=columns,
        weights=np.atleast_2d(estimator.coef_).T,
        intercept=np.atleast_1d(estimator.intercept_),
        target_range=None if choice.is_classifier else estimator.target_range_,
    )
    outcome = EstimatorOutcome(
        estimator=estimator,
        saved=saved,
        certificate=_certificate(estimator, declared, privacy.delta),
        delta=privacy.delta,
        declared=tuple(declared),
        public=() if columns is None else tuple(columns.describe()),
        notes=tuple(notes),
        train_score=float(estimator.score(train.features, _targets(train))),
        test_score=None if test is None else float(estimator.score(test.features, _targets(test))),
        config=config,
        folder=folder,
    )
    write_folder(folder, outcome.files())
    return outcome


def _targets(table: RecordTable) -> npt.NDArray[Any]:
    return table.targets if table.classes is None else np.array(table.class_names)[table.targets]


def _certificate(estimator: Any, declared: Sequence[HypothesisClaim], delta: float) -> Certificate | Statement:
    """The estimator's own, and what is declared of the data besides: within the seal."""
    from lethe.estimators.choice.runs import certified, release_record, training_record  # needs the optional scikit-learn

    proof: Certificate | Statement = estimator.certificate_
    if not declared:
        return proof
    if isinstance(proof, Certificate):
        record = training_record(proof.run, estimator.coef_, estimator.intercept_, averaged=estimator.n_averaged_)
        for claim in declared:
            record = record.with_declared(*claim)
        return certified(proof.run, delta).sealed(record)
    release = release_record(estimator.statement_, estimator.coef_, estimator.intercept_)
    for claim in declared:
        release = release.with_declared(*claim)
    return Statement.sealed(release)
