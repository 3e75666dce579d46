"""ScoreRule: how scores and probabilities of classes are computed from released weights, of an estimator or of what was saved of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.domains import as_number
from lethe.errors import InputError
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.models.whitened_rows import WhitenedRows
from lethe.mechanisms.base import Array
from lethe.run.losses import Logistic, Softmax, TruncatedLogistic, TruncatedSoftmax, parse_loss
from lethe.run.losses.inverse_links import class_log_probabilities
from lethe.run.losses.linear import LinearLoss


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreRule:
    """Of rows shortened to norm `feature_norm`; lengths and the envelope's bound are in units of it."""

    loss: LinearLoss  # that was trained on
    feature_norm: float
    envelope: float | None = None  # C > 0 of the Lipschitz envelope that was descended; None: the loss itself
    constant: float = 0.0  # the size of the intercept's feature
    whitened: WhitenedRows | None = None

    @property
    def has_probabilities(self) -> bool:
        """Whether the loss is one of probabilities."""
        return isinstance(self.loss, Logistic | Softmax | TruncatedLogistic | TruncatedSoftmax)

    def projected(self, scores: Array, rows: Any, weights: Array) -> Array:
        """Scores, shape (n, k), without intercepts, of rows (n, d), by weights (d, k); whitened rows are projected again, as trained."""
        if self.whitened is None:
            return scores
        middle = self.feature_norm * self.whitened.mean @ weights
        return np.asarray(middle + (scores - middle) / np.maximum(self._lengths(rows), 1.0)[:, None])

    def log_probabilities(self, scores: Array, rows: Any) -> Array:
        """Logarithms of probabilities of scores (n, K), or log-odds of scores (n,) of two classes, of rows (n, d)."""
        bounds = None
        if self.envelope is not None:
            with np.errstate(divide="ignore"):
                bounds = self.envelope / np.hypot(np.minimum(self._lengths(rows), 1.0), self.constant)
        return class_log_probabilities(self.loss, scores, bounds)

    def _lengths(self, rows: Any) -> Array:
        """Of rows as they were trained on, but for the last projection, over its radius, shape (n,)."""
        if self.whitened is None:
            return row_norms(rows) / self.feature_norm
        return self.whitened.lengths(rows if isinstance(rows, np.ndarray) else rows.toarray(), self.feature_norm)

    def to_document(self) -> dict[str, Any]:
        """As plain data, but for `feature_norm`."""
        made = self.whitened
        matrix = None if made is None or made.matrix is None else made.matrix.tolist()
        whitened = None if made is None else {"mean": made.mean.tolist(), "matrix": matrix, "norm": float(made.norm)}
        return {"loss": self.loss.to_document(), "envelope": self.envelope, "constant": self.constant, "whitened": whitened}

    @classmethod
    def from_document(cls, document: object, *, feature_norm: float, columns: int) -> ScoreRule:
        """From what `to_document` gave; InputError of anything else, and of whitened rows of another number of columns."""
        try:
            if not isinstance(document, Mapping) or document.keys() != {"loss", "envelope", "constant", "whitened"}:
                raise InputError("it needs loss, envelope, constant and whitened.")
            loss, envelope, whitened = parse_loss(document["loss"]), document["envelope"], document["whitened"]
            if not isinstance(loss, LinearLoss):
                raise InputError(f"loss: {loss.kind} is of no linear model.")
            numbers = {"envelope": envelope, "constant": document["constant"]} | ({} if whitened is None else {"norm": whitened["norm"]})
            read = {name: as_number(name, value, "a number") for name, value in numbers.items() if value is not None}
            if not all(0.0 <= value < np.inf and (value > 0.0 or name == "constant") for name, value in read.items()):
                raise InputError(f"it needs finite numbers > 0, got {read}.")
            made = None
            if whitened is not None:
                mean, matrix = np.array(whitened["mean"], dtype=np.float64), whitened["matrix"]
                matrix = None if matrix is None else np.array(matrix, dtype=np.float64)
                if mean.shape != (columns,) or (matrix is not None and matrix.shape != (columns, columns)):
                    raise InputError(f"whitened: it does not fit {columns} columns.")
                made = WhitenedRows(mean=mean, matrix=matrix, norm=read["norm"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"rule: {error.what if isinstance(error, InputError) else error}") from error
        return cls(loss=loss, feature_norm=feature_norm, envelope=read.get("envelope"), constant=read.get("constant", 0.0), whitened=made)
