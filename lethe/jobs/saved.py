"""SavedModel, the two plain files that `lethe train` writes (nothing in them is executed), and JobOutcome, the report of a training.

training.py makes them; `lethe predict` loads the model, the command prints the outcome.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.certificates.certificate import Certificate
from lethe.certificates.statement import Statement
from lethe.documents.specification import Specification
from lethe.documents.strict import as_path, read_document, reading_arrays, to_json
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.jobs.scores import ScoreLine
from lethe.jobs.tables.columns import Array, StatedColumns, as_range
from lethe.jobs.tables.reading import ColumnTable
from lethe.run.losses import Logistic, Loss, Softmax, TruncatedLogistic, TruncatedSoftmax, Tweedie, parse_loss
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run

MODEL, WEIGHTS = "model.json", "weights.npz"
_FORMAT = "linear-model-3"
_KEYS = {"format", "lethe", "trained_by", "target", "target_range", "classes", "feature_norm", "rule", "columns"}
# What the first wrote predicted numbers of any size; neither it nor the second has probabilities.
_FORMATS = {_FORMAT: _KEYS, "linear-model-2": _KEYS - {"rule"}, "linear-model-1": _KEYS - {"rule", "target_range"}}
_NAMES = (("coef_", "intercept_"), ("weights", "intercept"))  # of an estimator; of a run, the other way round


class SavedRule(Specification):
    """An estimator's `ScoreRule` but for its feature norm, as plain data; mean, matrix and norm are those of whitened rows."""

    loss: Annotated[InstanceOf[Loss], BeforeValidator(parse_loss)]
    envelope: float | None = Field(default=None, gt=0)
    constant: float = Field(default=0.0, ge=0)
    mean: Annotated[tuple[float, ...] | None, Field(strict=False)] = None
    matrix: Annotated[tuple[Annotated[tuple[float, ...], Field(strict=False)], ...] | None, Field(strict=False)] = None
    norm: float = Field(default=1.0, gt=0)

    @classmethod
    def of(cls, rule: Any) -> SavedRule:
        """That of a `ScoreRule`."""
        plain: dict[str, Any] = {"loss": rule.loss, "envelope": rule.envelope, "constant": rule.constant}
        if (rows := rule.whitened) is not None:
            matrix = None if rows.matrix is None else rows.matrix.tolist()
            plain |= {"mean": rows.mean.tolist(), "matrix": matrix, "norm": float(rows.norm)}
        return cls(**plain)

    def to_document(self) -> dict[str, Any]:
        """As plain data."""
        return {**self.model_dump(mode="json", exclude={"loss"}), "loss": self.loss.to_document()}

    def build(self, feature_norm: float, columns: int) -> Any:
        """The `ScoreRule`; InputError where it is of no linear model, or of another number of columns."""
        from lethe.estimators.models.score_rule import ScoreRule, WhitenedRows  # needs the optional scikit-learn

        if not isinstance(self.loss, LinearLoss):
            raise InputError(f"loss: {self.loss.kind} is of no linear model.")
        rows, lengths = None, {len(row) for row in (self.mean or (), *(self.matrix or ()))}
        if self.mean is not None:
            if lengths != {columns} or (self.matrix is not None and len(self.matrix) != columns):
                raise InputError(f"rule: mean and matrix do not fit {columns} columns.")
            rows = WhitenedRows(mean=np.array(self.mean), matrix=None if self.matrix is None else np.array(self.matrix), norm=self.norm)
        return ScoreRule(loss=self.loss, feature_norm=feature_norm, envelope=self.envelope, constant=self.constant, whitened=rows)


class SavedModel(Specification):
    r"""A linear function of encoded rows, each shortened to norm R: $x \mapsto \langle w, x\min(1, R/\|x\|)\rangle + b$; of counts and
    costs the logarithm of their mean.

    Args:
        trained_by: the estimator, or the loss of a run.
        target: what is predicted.
        target_range: at whose ends numbers that are predicted are cut, as those trained on were; None: they are not, or are classes.
        classes: in the order of the scores; None: numbers are predicted.
        feature_norm: R.
        rule: by which scores are projected and classes have probabilities; None: neither.
        columns: how rows of a table are encoded; None: the model is of arrays.
        weights, intercept: shapes (d, k) and (k,), k scores.
    """

    trained_by: str
    target: str
    target_range: Annotated[tuple[float, float] | None, BeforeValidator(lambda value: None if value is None else as_range(value))] = None
    classes: Annotated[tuple[str, ...] | None, Field(strict=False, min_length=2)]
    feature_norm: float = Field(gt=0)
    rule: Annotated[SavedRule | None, Field(strict=False)] = None
    columns: StatedColumns
    weights: InstanceOf[np.ndarray]
    intercept: InstanceOf[np.ndarray]

    @model_validator(mode="after")
    def _fits(self) -> SavedModel:
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise InputError(f"classes: got {list(self.classes)}; it needs a list of different names, or null.")
        outputs = 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)
        if self.weights.shape[1] not in (outputs, len(self.classes or ())) or self.intercept.shape != self.weights.shape[1:]:
            fitting = "numbers" if self.classes is None else f"{len(self.classes)} classes"
            raise InputError(f"weights of shape {self.weights.shape} do not fit {fitting}.")
        if self.columns is not None and len(self.columns.feature_names) != len(self.weights):
            raise InputError(f"{len(self.weights)} weights do not fit the {len(self.columns.feature_names)} features of its columns.")
        return self

    def document(self) -> bytes:
        """The public document that goes beside the weights."""
        content: dict[str, Any] = {"format": _FORMAT, "lethe": __version__}
        content |= {name: getattr(self, name) for name in ("trained_by", "target", "target_range", "classes", "feature_norm")}
        content["rule"] = None if self.rule is None else self.rule.to_document()
        return to_json({**content, "columns": None if self.columns is None else self.columns.to_document()}).encode()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> SavedModel:
        """Read a folder that `lethe train` wrote; InputError where it holds no model, or a damaged one."""
        path = as_path(folder)
        if not (path / MODEL).is_file():
            remedy = "give the folder that `lethe train` wrote from a configuration with `model:`."
            raise InputError(f"{path}: it holds no {MODEL}.", remedy=remedy)
        content = read_document(path / MODEL)
        try:
            if set(content) != _FORMATS.get(str(content.get("format"))):
                raise InputError(f"it is no model of the formats {', '.join(_FORMATS)}.")
            del content["format"], content["lethe"]
            weights, intercept = _arrays(path / WEIGHTS)
            return cls(**content, weights=weights, intercept=intercept)
        except (ValueError, TypeError) as error:  # NumPy's, of texts among the weights, too
            what = error.what if isinstance(error, InputError) else str(error)
            raise InputError(f"not a model: {what}", source=str(path), remedy="give a folder that `lethe train` wrote, whole.") from error

    def scores(self, features: npt.ArrayLike) -> Array:
        """Shape (n, k), of encoded rows, shape (n, d), finite; InputError of others."""
        rows = np.asarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.weights) or not np.isfinite(rows).all():
            raise InputError(f"features: got shape {rows.shape}; they need (n, {len(self.weights)}), all finite.")
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        shorter: Array = np.minimum(1.0, self.feature_norm / np.maximum(norms, 1e-300))
        result: Array = (rows @ self.weights) * shorter
        if self.rule is not None and self.rule.mean is not None:
            result = self.rule.build(self.feature_norm, len(self.weights)).projected(result, rows, self.weights)
        return result + self.intercept

    def predict(self, features: npt.ArrayLike, *, threshold: float | None = None) -> npt.NDArray[Any]:
        """Classes, or numbers, shape (n,), of encoded rows; with a `threshold` in (0, 1) the second of two classes is predicted where its
        probability is at least that.
        """
        if threshold is not None:
            if self.classes is None or len(self.classes) != 2 or not 0.0 < threshold < 1.0:
                of = "numbers" if self.classes is None else f"{len(self.classes)} classes"
                raise InputError(f"threshold: got {threshold!r}, of {of}; it needs a number in (0, 1), of two classes.")
            return np.array(self.classes)[(self.predict_proba(features)[:, 1] >= threshold).astype(np.intp)]
        scores = self.scores(features)
        if self.classes is None:
            loss, values = None if self.rule is None else self.rule.loss, scores[:, 0]
            if isinstance(loss, Tweedie):
                values = np.exp(np.minimum(values, np.log(loss.target_bound if self.target_range is None else self.target_range[1])))
            return values if self.target_range is None else np.clip(values, *self.target_range)
        class_indices = (scores[:, 0] > 0.0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.array(self.classes)[class_indices]

    def predict_proba(self, features: npt.ArrayLike) -> Array:
        """Probabilities of the classes, shape (n, K), of encoded rows; InputError of a model that has none."""
        if self.rule is None or not isinstance(self.rule.loss, Logistic | Softmax | TruncatedLogistic | TruncatedSoftmax):
            what = f"no probabilities are known of {self.trained_by}, as this model was trained or saved."
            raise InputError(what, remedy="train logistic_regression or softmax_regression, with this version of Lethe.")
        scores, rule = self.scores(features), self.rule.build(self.feature_norm, len(self.weights))
        logs = rule.log_probabilities(scores[:, 0] if scores.shape[1] == 1 else scores, np.asarray(features, dtype=np.float64))
        return np.exp(logs if logs.ndim == 2 else -np.logaddexp(0.0, np.stack([logs, -logs], axis=1)))

    def encode(self, path: str | os.PathLike[str], *, keep: Sequence[str] = ()) -> tuple[Array, dict[str, list[str]]]:
        """Rows of a table as the model takes them, shape (n, d), and columns to `keep` beside predictions, as they stand there; others that
        were not trained on are not looked at. InputError of a column that is missing or cannot be encoded, and of a model of arrays.
        """
        file = as_path(path)
        if self.columns is None:
            raise InputError("columns: this model was trained on arrays.", remedy="call predict with an array of such rows.")
        table = ColumnTable.read(file, as_text=[*self.columns.stated, *keep])
        for name in keep:
            if name not in table.names or name == self.target:
                what = "the column of the predictions" if name == self.target else f"none of the columns {', '.join(table.names)}"
                raise InputError(f"keep: {name!r} is {what}.", source=str(file), remedy="name another column, such as an id.")
        return self.columns.encode(table, None), {name: [text or "" for text in table.texts(name)] for name in keep}

    def predict_table(self, path: str | os.PathLike[str]) -> npt.NDArray[Any]:
        """Classes, or numbers, shape (n,), of the rows of a table, as `encode` reads it."""
        return self.predict(self.encode(path)[0])


def weights_file(**arrays: npt.ArrayLike) -> bytes:
    """The file of a model's weights, under the names to which its certificate is bound."""
    stream = io.BytesIO()
    np.savez(stream, **{name: np.asarray(array) for name, array in arrays.items()})  # pyright: ignore[reportArgumentType]
    return stream.getvalue()


def _arrays(file: Path) -> tuple[Array, Array]:
    with reading_arrays(file, remedy="give the folder as `lethe train` wrote it."), file.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        arrays = {name: np.asarray(archive[name]) for name in archive.files}
    for weight_name, intercept_name in _NAMES:
        if weight_name in arrays and intercept_name in arrays:
            weights, intercept = (
                np.asarray(arrays[weight_name], dtype=np.float64),
                np.atleast_1d(np.asarray(arrays[intercept_name], dtype=np.float64)),
            )
            weights = weights if weight_name == "weights" else np.atleast_2d(weights).T
            if weights.ndim != 2 or not np.isfinite(weights).all() or not np.isfinite(intercept).all():
                raise InputError("its weights are no finite table.")
            return weights, intercept
    raise InputError(f"{file.name} holds {', '.join(arrays) or 'nothing'}, and no weights.")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobOutcome:
    """The result of a training, by `lethe.train.fit` or of an estimator; scores are of private data, and no certificate covers them.

    Args:
        certificate: with what is declared of the data; `epsilon` is infinite of a seeded training.
        scores: of an estimator, with that one, and beside a constant's.
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
    scores: Sequence[ScoreLine] = ()
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
            "date": date.today().isoformat(),
            "score": {"kind": self.score_name, "train": self.train_score, "test": self.test_score},
            "scores": [score._asdict() for score in self.scores],
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
        plain = [score.formatted() for score in self.scores] or [f"    {self.score_name}: train {self.train_score:.4f}{test}"]
        lines = [
            "COVERED by the certificate: the weights, and whatever is computed of them alone",
            "NOT COVERED, computed on the records themselves and not to be published (private_score releases such numbers):",
            *plain,
            self.about,
            f"weights, {'model' if self.run is None else 'run'}, certificate and report: {self.folder}/",
            *(f"note: {note}" for note in self.notes),
        ]
        if self.seeded:
            lines.append("NO RELEASE: the noise was seeded, which is fine for a trial; leave seed out to draw fresh randomness.")
        return "\n".join(lines)
