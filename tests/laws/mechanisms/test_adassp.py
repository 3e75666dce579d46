"""Noisy moments: brute-force neighbours never move them further than stated, and some do; the release, the ridge and the prediction."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.mechanisms import adassp as module
from lethe.mechanisms.adassp import adassp, moments_sensitivity, noise_norm

TARGET = ApproxDP(1.0, 1e-5)
WEIGHTS = [(0.3, 0.0), (1.0, 0.0), (1.0, 0.5), (1.4, 0.0), (2.0, 0.5)]


def _distance(parameters: np.ndarray, rest: np.ndarray, neighbours: str, norm: float, bound: float, weights: tuple[float, float]) -> float:
    """How far the moments move, by their definition, for records read off unbounded parameters: d + 1 numbers each."""
    columns = rest.shape[1] - 1

    def record(values: np.ndarray) -> np.ndarray:
        row, length = values[:columns], np.linalg.norm(values[:columns])
        row = row * min(1.0, norm / length) if length > 0 else row
        return np.append(row, np.clip(values[columns], -bound, bound))

    def statistic(table: np.ndarray) -> np.ndarray:
        square = table[:, :columns].T @ table[:, :columns]
        cross = weights[0] * norm / bound * (table[:, :columns].T @ table[:, columns])
        # The Frobenius norm of the whole matrix is the Euclidean norm of its svec.
        return np.concatenate([square.ravel(), cross, [weights[1] * np.linalg.eigvalsh(square)[0]]])

    first, second = parameters[: columns + 1], parameters[columns + 1 :]
    with_first = np.vstack([rest, record(first)])
    other = rest if neighbours == "zero_out" else np.vstack([rest, record(second)])
    return float(np.linalg.norm(statistic(with_first) - statistic(other)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("norm", "bound"), [(1.0, 1.0), (2.0, 0.3)])
def test_neighbours_never_move_the_moments_further_and_some_do(
    neighbours: str, weights: tuple[float, float], norm: float, bound: float
) -> None:
    """Random starts, improved by Nelder-Mead; among the other records one is large beside the first axis, so that eigenvalues move."""
    rng = np.random.default_rng(2)
    stated = moments_sensitivity(norm=norm, neighbours=neighbours, target_weight=weights[0], eigenvalue_weight=weights[1])
    rest = np.array([[0.0, 90.0 * norm, bound]])
    found = []
    for _ in range(4):
        start = np.concatenate([norm * rng.standard_normal(2), [bound], norm * rng.standard_normal(2), [-bound]])
        result = optimize.minimize(lambda p: -_distance(p, rest, neighbours, norm, bound, weights), 3.0 * start, method="Nelder-Mead")
        found.append(-result.fun)
    assert max(found) <= stated * (1 + 1e-9)
    assert max(found) >= 0.95 * stated


def test_the_released_vector_has_the_norm_of_the_matrices() -> None:
    """With the weights 1 and 1/2 that the sensitivity supposes where none are said."""
    rng = np.random.default_rng(1)
    rows, targets = rng.standard_normal((7, 3)), rng.standard_normal(7)
    square, cross = module._sums([(rows, targets)], 3, 0.5)
    vector = module._released_vector(square, cross, 2.0 / 0.5)
    assert square == pytest.approx(rows.T @ rows)
    assert cross == pytest.approx(rows.T @ np.clip(targets, -0.5, 0.5))
    squares = (square**2).sum(), ((2.0 / 0.5 * cross) ** 2).sum(), (0.5 * np.linalg.eigvalsh(square)[0]) ** 2
    assert vector @ vector == pytest.approx(sum(squares))
    defaults = {"target_weight": 1.0, "eigenvalue_weight": 0.5}
    assert moments_sensitivity(norm=2.0) == moments_sensitivity(norm=2.0, **defaults)


def test_one_vector_costs_less_than_three_releases() -> None:
    """Apart, with the same noise on every part: sqrt(2 + 4 + 1/4) R^2 against 2.18 R^2; and Frobenius against the upper triangle."""
    together = moments_sensitivity(norm=1.0)
    assert together == pytest.approx(math.sqrt(4.75))
    assert together < 0.9 * math.sqrt(2.0 + 4.0 + 0.25)
    assert moments_sensitivity(norm=3.0, neighbours="zero_out", eigenvalue_weight=0.0) == pytest.approx(9.0 * math.sqrt(2.0))
    below, above = (moments_sensitivity(norm=1.0, target_weight=math.sqrt(2.0) + shift, eigenvalue_weight=0.0) for shift in (-1e-9, 1e-9))
    assert below == pytest.approx(above, rel=1e-8)


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_what_is_released_follows_from_the_noisy_moments(neighbours: str) -> None:
    """Many records: the ridge is 0, and the weights solve the noisy normal equations, built here entry by entry."""
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((4000, 3)), 2.0 * rng.standard_normal(4000)
    options = {"target": TARGET, "neighbours": neighbours, "generator": np.random.default_rng(5)}
    released = adassp(features, targets, feature_norm=1.5, target_bound=2.0, **options)
    rows = features * np.minimum(1.0, 1.5 / np.linalg.norm(features, axis=1, keepdims=True))
    square, cross = rows.T @ rows, rows.T @ np.clip(targets, -2.0, 2.0)
    noise = released.noise_std * np.random.default_rng(5).standard_normal(10)
    square += np.diag(noise[:3])
    for value, (row, column) in zip(noise[3:6], itertools.combinations(range(3), 2), strict=True):
        square[row, column] += value / math.sqrt(2.0)
        square[column, row] += value / math.sqrt(2.0)
    cross += noise[6:9] / (1.5 / 2.0)
    assert released.weights[:, 0] == pytest.approx(np.linalg.solve(square, cross), rel=1e-9)
    guarantee = released.statement.planned
    stated = moments_sensitivity(norm=1.5, neighbours=neighbours)
    assert isinstance(guarantee, GDP)
    assert guarantee.mu == pytest.approx(stated / released.noise_std, rel=1e-12)
    assert guarantee.epsilon(1e-5) == pytest.approx(1.0, rel=1e-9)


def test_the_noise_norm_is_exceeded_as_rarely_as_stated() -> None:
    rng = np.random.default_rng(3)
    exceeded = 0
    for _ in range(400):
        upper = np.triu(rng.standard_normal((8, 8)), 1) / math.sqrt(2.0)
        noise = upper + upper.T + np.diag(rng.standard_normal(8))
        exceeded += np.abs(np.linalg.eigvalsh(noise)).max() > noise_norm(1.0, 8)
    assert exceeded <= 20


def test_few_records_and_equal_columns_still_give_finite_weights() -> None:
    for seed in range(20):
        for features in (np.zeros((0, 3)), np.ones((5, 3)), np.zeros((4, 3))):
            options = {"target": ApproxDP(0.1, 1e-6), "intercept": True, "generator": np.random.default_rng(seed)}
            released = adassp(features, np.ones(len(features)), feature_norm=1.0, target_bound=1.0, **options)
            assert np.isfinite(released.weights).all()
            assert released.weights.shape == (4, 1)
