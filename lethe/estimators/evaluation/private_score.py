"""private_score: accuracy, AUC, log-loss, calibration, R2 or mean absolute error of a model on private records, with intervals.

Called by users with a fitted model and test records: scores on private records are releases too. Each metric is a noisy sum of numbers in
[0, 1] (`lethe.mechanisms.metrics`), the AUC noisy counts; intervals cover the noise and the sampling of records.
"""

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted, column_or_1d

from lethe.calculus.domains import outside
from lethe.calculus.rounding import round_up
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors.names import in_other_words
from lethe.estimators.budget import paid, whole_budget
from lethe.estimators.inputs.tables import public_labels
from lethe.mechanisms.base import gaussian_noise_std, joint
from lethe.mechanisms.bounded_sums import noisy_sums
from lethe.mechanisms.metrics import CLASSIFIES, COLUMNS, NAMES, TWO_CLASSES, Interval, PublicBounds, numbers_of, score_of, sensitivity_of
from lethe.mechanisms.quantiles.located_quantiles import noisy_counts
from lethe.mechanisms.ranking import rank_counts, share_interval
from lethe.run.run import Neighbours


class Score(NamedTuple):
    """A metric with noise, and intervals of it: what the noise leaves open of these records', and of that of all they are drawn from."""

    value: float
    interval: Interval
    population_interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PrivateScores:
    """What `private_score` released.

    Args:
        scores: by name of the metric; of calibration the share of positives, by "calibration [low, high)" of predicted probabilities.
        level: of each interval by itself.
        statement: what all of them cost together.
    """

    scores: Mapping[str, Score]
    level: float
    statement: Statement

    def __repr__(self) -> str:
        width, lines = max(map(len, self.scores)), list[str]()
        for name, (value, of_sample, of_population) in self.scores.items():
            these, new = (f"[{low:.4f}, {high:.4f}]" for low, high in (of_sample, of_population))
            lines.append(f"{name:<{width}}   {value:8.4f}   these records {these:<18}   new ones {new}")
        return "\n".join([*lines, f"intervals at {self.level:.4g}; {self.statement!r}"])


@in_other_words
def private_score(
    model: Any,
    X: Any,
    y: Any,
    metrics: Sequence[str] = ("accuracy",),
    *,
    epsilon: float,
    delta: float | None = None,
    neighbours: Neighbours = "zero_out",
    level: float = 0.95,
    bins: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    least_probability: float = 0.01,
    target_range: Interval | None = None,
    error_bound: float | None = None,
    ledger: Any = None,
    generator: np.random.Generator | None = None,
) -> PrivateScores:
    r"""Score a model on n private records within $(\epsilon, \delta)$: sums and counts, all with Gaussian noise of the same size.

    It is about the records of X and y: where the model was trained on them too, its own statement is to be added (`lethe.total`).

    Args:
        model: fitted, of scikit-learn's manners, pipelines included.
        X: shape (n, d), in memory, as the model takes it.
        y: shape (n,).
        metrics: some of accuracy, log_loss, roc_auc and calibration (of two classes), r2, mean_absolute_error.
        epsilon: > 0.
        delta: in (0, 1), below 1/n; None: the smaller of 1e-5 and 1/(10 n).
        neighbours: "zero_out" or "replace_one".
        level: of each interval, in (0, 1).
        bins: of calibration: edges of predicted probabilities, ascending from 0 to 1; public.
        least_probability: of log_loss: that of the true class is raised to it.
        target_range: (low, high), public: targets and predictions of a regression are clipped to it.
        error_bound: from which absolute error a prediction counts as worthless; None: the width of the range.
        ledger: as of the estimators.
        generator: for tests, and the statement is then `seeded`; None: fresh entropy.
    Raises:
        InputError: a metric that the model has not, or a number out of its range.
    """
    check_is_fitted(model)
    labels, edges = column_or_1d(y), np.asarray(bins, dtype=np.float64)
    requested = (metrics,) if isinstance(metrics, str) else tuple(dict.fromkeys(metrics))
    supported = [name for name in NAMES if (name in CLASSIFIES) == is_classifier(model)]
    if is_classifier(model):
        public_labels(model.classes_, labels)
        supported = [name for name in supported if name not in TWO_CLASSES or len(model.classes_) == 2]
    if not requested or any(name not in supported for name in requested):
        raise outside("metrics", metrics, f"some of {', '.join(supported)}, for this model")
    if not 0.0 < level < 1.0:
        raise outside("level", level, "a number above 0 and below 1")
    if edges.ndim != 1 or edges.size < 2 or (edges[0], edges[-1]) != (0.0, 1.0) or not (np.diff(edges) > 0.0).all():
        raise outside("bins", bins, "edges that ascend from 0 to 1")
    bounds = PublicBounds(least_probability=least_probability, target_range=target_range, error_bound=error_bound)
    prepared = {metric: _prepared(metric, bounds, model, X, labels) for metric in requested}  # what may be refused, before anything is paid
    records, budget = len(labels), whole_budget(epsilon, delta, len(labels), neighbours)
    settle = paid(ledger, budget.planned("a private score", records), seeded=generator is not None)
    moved = math.hypot(*(sensitivity_of(metric, neighbours) for metric in requested))
    noise_std = gaussian_noise_std(round_up(moved, 1e-12), budget.as_gaussian())
    noise: dict[str, Any] = {"noise_std": noise_std, "neighbours": neighbours, "generator": generator}
    statements, scores = list[Statement](), dict[str, Score]()
    for metric in requested:
        if metric in COLUMNS:
            sums, statement = noisy_sums(prepared[metric], name=metric, **noise)
            intervals = [score_of(metric, sums / records, noise_std / records, level, n, bounds) for n in (math.inf, records)]
            scores[metric] = Score(intervals[0][0], intervals[0][1], intervals[1][1])
        elif metric == "roc_auc":
            ranks = rank_counts(*prepared[metric], **noise)
            statement, intervals_of_ranks = (
                ranks.statement,
                [ranks.interval(level, population=of_population) for of_population in (False, True)],
            )
            scores[metric] = Score(ranks.value, *intervals_of_ranks)
        else:
            chances, positive = prepared[metric]
            places = np.clip(np.searchsorted(edges, np.nan_to_num(chances), side="right") - 1, 0, edges.size - 2)
            cells = np.bincount(places + (edges.size - 1) * positive, minlength=2 * edges.size - 2).astype(np.float64)
            noisy, statement = noisy_counts(cells[None, :], records=records, name=metric, **noise)
            scores |= _calibration(edges.tolist(), noisy.reshape(2, -1), noise_std, level)
        statements.append(statement)
    whole = joint(statements, name=f"private scores: {', '.join(requested)}")
    apart = holds("model", "trained on other records, or what that cost is added to this", evidence="declared")
    whole = replace(whole, records=records, target_delta=budget.delta, release_id=secrets.token_hex(16), findings=(apart, *whole.findings))
    if settle is not None:
        settle(whole)
    return PrivateScores(scores=scores, level=level, statement=whole)


def _prepared(metric: str, bounds: PublicBounds, model: Any, X: Any, labels: Any) -> Any:
    """What is computed of the records: numbers in [0, 1], or scores and which records are positive."""
    if metric in COLUMNS:
        return numbers_of(metric, bounds, model, X, labels)
    if metric == "roc_auc" and hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(X), dtype=np.float64), labels == model.classes_[1]
    chances = np.asarray(model.predict_proba(X), dtype=np.float64)[:, 1]
    with np.errstate(divide="ignore"):
        return chances if metric == "calibration" else np.log(chances) - np.log1p(-chances), labels == model.classes_[1]


def _calibration(edges: list[float], counts: Any, noise_std: float, level: float) -> Iterator[tuple[str, Score]]:
    for low, high, no, yes in zip(edges[:-1], edges[1:], *counts.tolist(), strict=True):
        sample_interval, population_interval = (
            share_interval(yes, no, noise_std, level, population=of_population) for of_population in (False, True)
        )
        value = min(max(yes / (yes + no), sample_interval[0]), sample_interval[1]) if yes + no > 0.0 else sum(sample_interval) / 2.0
        yield f"calibration [{low:g}, {high:g})", Score(value, sample_interval, population_interval)
