"""Problems for the solvers' tests: a quadratic with a known minimum, heavy-tailed regression, and an oracle that errs as told."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.oracles import ExactMean, MeanOracle
from lethe.heavy_tailed.problem import Records
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.solution import Release, gaussian_release

SPARSE = 0.1  # the strength of an L1 regulariser


CURVATURES = np.array([1.0, 10.0])


SLOPES = np.array([0.3, 1.0])


def quadratic_gradient(parameters: Array, records: Records) -> Array:
    """Of (w1^2 + 10 w2^2)/2 - 0.3 w1 - w2, the same for every record."""
    assert isinstance(records, np.ndarray)
    return np.tile(CURVATURES * parameters - SLOPES, (len(records), 1))


def quadratic_gap(parameters: Array) -> float:
    return float(0.5 * (CURVATURES * (parameters - SLOPES / CURVATURES) ** 2).sum())


QUADRATIC = Problem(gradient=quadratic_gradient, dimension=2, domain=BallDomain(radius=1.0), smoothness=10.0, strong_convexity=1.0)


def sparse_gap(parameters: Array) -> float:
    """Of the quadratic plus 0.1 |w|_1, whose minimum is at the soft threshold of the slopes over the curvatures."""
    best = np.sign(SLOPES) * np.maximum(np.abs(SLOPES) - SPARSE, 0.0) / CURVATURES

    def value(w: Array) -> float:
        return float((0.5 * CURVATURES * w * w - SLOPES * w + SPARSE * np.abs(w)).sum())

    return value(parameters) - value(best)


def distances(parameters: Array, records: Records) -> Array:
    """Subgradients of |w - x|; 0 at x itself."""
    assert isinstance(records, np.ndarray)
    gaps = parameters - records.astype(np.float64)
    return gaps / np.maximum(np.linalg.norm(gaps, axis=1), 1e-300)[:, None]


def absolute_deviations(parameters: Array, records: Records) -> Array:
    assert isinstance(records, tuple)
    features, targets = (np.asarray(column, dtype=np.float64) for column in records)
    return np.sign(features @ parameters - targets)[:, None] * features


FEATURE_SCALES = np.sqrt(np.linspace(0.1, 1.0, 10))


TEACHER = np.full(10, 0.5 / np.sqrt(10))


def regression_gradient(parameters: Array, records: Records) -> Array:
    assert isinstance(records, tuple)
    features, targets = (np.asarray(column, dtype=np.float64) for column in records)
    return (features @ parameters - targets)[:, None] * features


def regression() -> Problem:
    """Features with 5 degrees of freedom; r_2 from the closed form, with the largest distance from the teacher, 1.5."""
    squares = FEATURE_SCALES**2
    fourth = 3.0 + 6.0 / (5 - 4)
    spread = max(square * (square * fourth + squares.sum() - square) for square in squares)
    second = float(np.sqrt(1.5**2 * spread + squares.sum()))
    moments = Moments(order=2, bound=second)
    domain = BallDomain(radius=1.0)
    return Problem(gradient=regression_gradient, dimension=10, domain=domain, smoothness=1.0, strong_convexity=0.1, moments=moments)


def regression_records(count: int, rng: np.random.Generator) -> Records:
    features = FEATURE_SCALES * rng.standard_t(5, size=(count, 10)) / np.sqrt(5 / 3)
    return features, features @ TEACHER + rng.standard_t(3, size=count) / np.sqrt(3)


def regression_gap(parameters: Array) -> float:
    return float(0.5 * (FEATURE_SCALES**2 * (parameters - TEACHER) ** 2).sum())


@dataclass(frozen=True)
class ErringMean(MeanOracle):
    """The mean, plus a fixed bias, plus noise of a variance summed over coordinates."""

    bias: tuple[float, ...]
    variance: float

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        noise = generator.standard_normal(rows.shape[1]) * np.sqrt(self.variance / rows.shape[1])
        return ExactMean().mean(rows, generator) + np.array(self.bias) + noise

    def release(self, size: int, dimension: int) -> Release:
        return gaussian_release(1.0, 0.0)

    def shared(self, touches: int) -> ErringMean:
        return self


def stated(beta: float, order: float, bound: float, second: float, dimension: int, radius: float = 1.0) -> Problem:
    moments = Moments(order=order, bound=bound, second=second)
    return Problem(gradient=quadratic_gradient, dimension=dimension, domain=BallDomain(radius=radius), smoothness=beta, moments=moments)


CLASSIC = stated(1.0, 2, math.sqrt(20), math.sqrt(20), 20)


def strongly(kappa: float, second: float, dimension: int) -> Problem:
    return replace(stated(kappa, 2, second, second, dimension), strong_convexity=1.0)
