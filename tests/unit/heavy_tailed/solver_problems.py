"""Problems for the solvers' tests: a quadratic with a known minimum, heavy-tailed regression, and an oracle that errs as told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.oracles.exact import ExactMean
from lethe.heavy_tailed.problem import Records
from lethe.heavy_tailed.solution import Release, gaussian_release

CURVATURES = np.array([1.0, 10.0])
SLOPES = np.array([0.3, 1.0])


def quadratic_gradient(parameters: Array, records: Records) -> Array:
    """Of (w1^2 + 10 w2^2)/2 - 0.3 w1 - w2, the same for every record."""
    assert isinstance(records, np.ndarray)
    return np.tile(CURVATURES * parameters - SLOPES, (len(records), 1))


def quadratic_gap(parameters: Array) -> float:
    return float(0.5 * (CURVATURES * (parameters - SLOPES / CURVATURES) ** 2).sum())


QUADRATIC = Problem(gradient=quadratic_gradient, dimension=2, domain=BallDomain(radius=1.0), smoothness=10.0, strong_convexity=1.0)

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
