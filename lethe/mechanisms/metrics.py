r"""Metrics of a model as means over records of numbers in [0, 1], and their intervals from noisy means.

`private_score` and `PrivateSearch` turn predictions into these numbers (`numbers_of`, `gains`), release their sums with noise, and read
score and interval off them (`score_of`).

A mean of n such numbers, $\hat m$ with noise of standard deviation s, has the interval $\{a : (\hat m - a)^2 \le z^2(s^2 + a(1-a)/n)\}$ for
the mean of what the records are drawn from, since no law on [0, 1] of mean a has a larger variance; for their own the last term goes.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.domains import outside, require_positive
from lethe.errors import InputError
from lethe.mechanisms.base import Array
from lethe.mechanisms.bounded_sums import sums_sensitivity
from lethe.mechanisms.quantiles.located_quantiles import histogram_sensitivity
from lethe.mechanisms.ranking import LEVELS, rank_counts, z_of
from lethe.run.run import Neighbours

Interval = tuple[float, float]
COLUMNS = {"accuracy": 1, "log_loss": 1, "r2": 3, "mean_absolute_error": 1}
"""The metrics that are means of numbers in [0, 1], and how many of them a record has."""
NAMES = (*COLUMNS, "roc_auc", "calibration")
CLASSIFIES, TWO_CLASSES = frozenset({"accuracy", "log_loss", "roc_auc", "calibration"}), frozenset({"roc_auc", "calibration"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicBounds:
    """Public numbers that make one record's part in a metric bounded."""

    least_probability: float = 0.01  # to which that of the true class is raised
    target_range: Interval | None = None  # of targets and predictions, clipped to it
    error_bound: float | None = None  # on an absolute error; None: the width of the range

    def __post_init__(self) -> None:
        if not 0.0 < self.least_probability < 1.0:
            raise outside("least_probability", self.least_probability, "a number above 0 and below 1")
        if self.target_range is not None:
            require_positive("the width of target_range", self.target_range[1] - self.target_range[0])
        if self.error_bound is not None:
            require_positive("error_bound", self.error_bound)

    @property
    def ends(self) -> Interval:
        """Of the range of targets."""
        if self.target_range is None:
            raise InputError("target_range: missing; without it one record could move the score without bound.", remedy="give (low, high)")
        return self.target_range

    def largest(self, metric: str) -> float:
        """The largest loss of a record: what 1 stands for."""
        if metric == "log_loss":
            return -math.log(self.least_probability)
        error = self.ends[1] - self.ends[0] if self.error_bound is None else self.error_bound
        return error**2 if metric == "r2" else error


def sensitivity_of(metric: str, neighbours: object) -> float:
    """How far one record moves what is released for it, rounded up."""
    if metric in COLUMNS:
        return sums_sensitivity(COLUMNS[metric], neighbours)
    return histogram_sensitivity(LEVELS if metric == "roc_auc" else 1, neighbours)


def losses_of(metric: str, bounds: PublicBounds, model: Any, X: Any, y: Any) -> Array:
    """Of each record a loss over the largest, in [0, 1], shape (n,); of accuracy a miss."""
    targets = np.asarray(y)
    if metric == "accuracy":
        return np.asarray(model.predict(X) != targets, dtype=np.float64)
    if metric == "log_loss":
        chances = np.asarray(model.predict_proba(X), dtype=np.float64)
        true = chances[np.arange(len(chances)), np.searchsorted(model.classes_, targets)]
        likely = np.where(true > bounds.least_probability, true, bounds.least_probability)  # what is no number counts as worthless
        return np.clip(np.log(likely) / math.log(bounds.least_probability), 0.0, 1.0)
    low, high = (-math.inf, math.inf) if bounds.target_range is None else bounds.target_range
    targets, predicted = (np.clip(np.asarray(array, dtype=np.float64), low, high) for array in (targets, model.predict(X)))
    errors = np.abs(targets - predicted) / bounds.largest("mean_absolute_error")
    losses = errors**2 if metric == "r2" else errors
    return np.where(losses < 1.0, losses, 1.0)


def gains(metric: str, bounds: PublicBounds, model: Any, rows: Any, targets: Any) -> Array:
    """Of each record one less its loss over the largest, in [0, 1], shape (m,)."""
    return 1.0 - losses_of(metric, bounds, model, rows, targets)


def area(model: Any, rows: Any, targets: Any, *, noise_std: float, neighbours: Neighbours, generator: np.random.Generator) -> Array:
    """The area under the ROC curve, with the noise of its ranks."""
    scores, positive = np.asarray(model.decision_function(rows), dtype=np.float64), targets == model.classes_[1]
    return np.array(rank_counts(scores, positive, noise_std=noise_std, neighbours=neighbours, generator=generator).value)


def numbers_of(metric: str, bounds: PublicBounds, model: Any, X: Any, y: Any) -> Array:
    """What each record adds to the sums of a metric, shape (n, columns): its loss; of r2 also the place of its target, and the square."""
    losses = losses_of(metric, bounds, model, X, y)
    if metric != "r2":
        return losses[:, None]
    low, high = bounds.ends
    scaled_targets = (np.clip(np.asarray(y, dtype=np.float64), low, high) - low) / (high - low)
    return np.stack([losses, scaled_targets, scaled_targets**2], axis=1)


def mean_interval(mean: float, noise_std: float, z: float, records: float) -> Interval:
    """The interval of the module's first lines; `records` are infinitely many for the mean of these."""
    more = z**2 / records
    middle, root = 2.0 * mean + more, math.sqrt(max((2.0 * mean + more) ** 2 - 4.0 * (1.0 + more) * (mean**2 - (z * noise_std) ** 2), 0.0))
    low, high = (min(max((middle + sign * root) / (2.0 + 2.0 * more), 0.0), 1.0) for sign in (-1.0, 1.0))
    return low, high


def score_of(metric: str, means: Array, noise_std: float, level: float, records: float, bounds: PublicBounds) -> tuple[float, Interval]:
    """The metric and an interval, of means with noise; of r2 from one of its error and one of its variance, each at half the risk."""
    unit, mean = 1.0 if metric == "accuracy" else bounds.largest(metric), float(means[0])
    low, high = mean_interval(mean, noise_std, z_of(level), records)
    if metric == "accuracy":
        return 1.0 - mean, (1.0 - high, 1.0 - low)
    if metric != "r2":
        return mean * unit, (low * unit, high * unit)
    z, unit = z_of(0.5 + 0.5 * level), unit / (bounds.ends[1] - bounds.ends[0]) ** 2
    low, high = mean_interval(mean, noise_std, z, records)
    # The variance is a mean of (t - c)^2, at most `largest_square`, less the square of c minus the mean, which noise and sampling move.
    middle = min(max(float(means[1]), 0.0), 1.0)
    largest_square, variance = max(middle, 1.0 - middle) ** 2, float(means[2]) - middle**2
    spread = noise_std * math.sqrt(1.0 + 4.0 * middle**2) / largest_square
    narrow, wide = (end * largest_square for end in mean_interval(variance / largest_square, spread, z, records))
    wide = min(wide + z**2 * (noise_std**2 + wide / records), 0.25)
    worst, best = 1.0 - high * unit / narrow if narrow > 0.0 else -math.inf, 1.0 - low * unit / wide
    return min(max(1.0 - mean * unit / variance if variance > 0.0 else -math.inf, worst), best), (worst, best)
