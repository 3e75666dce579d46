"""Output perturbation: neighbours' minimisers are never further apart than stated, and nearly so; the noise is what it says."""

import math
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from helpers import LINEAR_LOSSES

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP
from lethe.mechanisms.minimisers.newton import minimiser
from lethe.mechanisms.minimisers.objective import MemoryRecords, Objective
from lethe.mechanisms.minimisers.output_perturbation import output_perturbation, output_sensitivity, solver_tolerance
from lethe.run.losses import LeastSquares, Logistic, SmoothedHinge
from lethe.run.losses.linear import LinearLoss

TARGET = ApproxDP(1.0, 1e-5)


def _minimiser(rows: np.ndarray, targets: np.ndarray, loss: LinearLoss, records: int, regularisation: float) -> np.ndarray:
    data = MemoryRecords(rows, targets, loss.outputs)
    return minimiser(Objective(records=records, data=data, loss=loss, regularisation=regularisation), 1e-12)


def _moved(loss: LinearLoss, first: tuple[Any, float], second: tuple[Any, float] | None, regularisation: float, seed: int) -> float:
    """How far the minimiser moves when one record of five is changed."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((4, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    targets = rng.standard_normal(4) * 2 if isinstance(loss, LeastSquares) else rng.integers(0, max(loss.outputs, 2), 4) * 1.0
    here = _minimiser(np.vstack([rows, first[0]]), np.append(targets, first[1]), loss, 5, regularisation)
    with_it = (rows, targets) if second is None else (np.vstack([rows, second[0]]), np.append(targets, second[1]))
    return float(np.linalg.norm(here - _minimiser(*with_it, loss, 5, regularisation)))


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("loss", LINEAR_LOSSES, ids=repr)
def test_neighbours_are_never_further_apart(loss: LinearLoss, neighbours: str) -> None:
    rng = np.random.default_rng(3)
    largest = 0.0
    for seed in range(12):
        regularisation = float(10 ** rng.uniform(-2, 1))
        bound = output_sensitivity(
            records=5, regularisation=regularisation, gradient_bound=loss.row_gradient_bound, neighbours=neighbours, tolerance=0.0
        )
        angle, other = rng.uniform(0, 2 * math.pi, 2)
        labels = rng.normal(0, 9, 2) if isinstance(loss, LeastSquares) else rng.integers(0, max(loss.outputs, 2), 2)
        first = [math.cos(angle), math.sin(angle)], float(labels[0])
        second = None if neighbours == "zero_out" else ([math.cos(other), math.sin(other)], float(labels[1]))
        share = _moved(loss, first, second, regularisation, seed) / bound
        assert share <= 1.0 + 1e-9
        largest = max(largest, share)
    assert largest > 0.1


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("loss", [SmoothedHinge(feature_norm=1.0, width=0.4), LeastSquares(feature_norm=1.0, residual_bound=0.5)], ids=repr)
def test_the_sensitivity_is_reached(loss: LinearLoss, neighbours: str) -> None:
    """Slopes at their bounds all along, on the same features with opposite targets."""
    low, high = (-9.0, 9.0) if isinstance(loss, LeastSquares) else (0.0, 1.0)
    for regularisation in (10.0, 100.0):
        bound = output_sensitivity(
            records=5, regularisation=regularisation, gradient_bound=loss.row_gradient_bound, neighbours=neighbours, tolerance=0.0
        )
        moved = _moved(loss, ([1.0, 0.0], high), None if neighbours == "zero_out" else ([1.0, 0.0], low), regularisation, 0)
        assert 0.98 * bound < moved <= bound * (1 + 1e-9)


def test_the_solvers_error_is_counted_on_both_sides() -> None:
    """Of two quadratics with minimisers 2G/(n lambda) apart, points with gradient tau can be 2 tau/lambda further apart."""
    exact = output_sensitivity(records=10, regularisation=0.5, gradient_bound=3.0, tolerance=0.0)
    assert exact == pytest.approx(2 * 3.0 / (10 * 0.5))
    assert output_sensitivity(records=10, regularisation=0.5, gradient_bound=3.0, tolerance=0.2) == pytest.approx(exact + 2 * 0.2 / 0.5)
    assert solver_tolerance(3.0, 10) < 0.01 * 3.0 / 10


@pytest.mark.parametrize("target", [TARGET, GDP(0.3), ZCDP(0.05)])
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("loss", LINEAR_LOSSES, ids=repr)
def test_what_is_released_is_the_minimiser_and_the_stated_noise(loss: LinearLoss, neighbours: str, target: Any) -> None:
    rng = np.random.default_rng(0)
    features, labels = 3.0 * rng.standard_normal((40, 3)), rng.integers(0, 2, 40)
    released = output_perturbation(
        features,
        labels,
        loss=loss.model_copy(update={"feature_norm": 2.0, "intercept": True}),
        regularisation=0.1,
        target=target,
        neighbours=neighbours,
        records=40,
        generator=np.random.default_rng(7),
    )
    rows = features * np.minimum(1.0, 2.0 / np.linalg.norm(features, axis=1, keepdims=True))
    rows = np.hstack([rows, np.ones((40, 1))])
    exact = _minimiser(rows, labels * 1.0, loss, 40, 0.1)
    noise = np.random.default_rng(7).standard_normal(exact.shape)
    assert released.weights == pytest.approx(exact + released.noise_std * noise, abs=1e-2 * released.noise_std)
    touch = 2.0 if neighbours == "replace_one" else 1.0
    bound = math.sqrt(5.0) * loss.slope_bound
    mu = touch * bound / (40 * 0.1 * released.noise_std)
    assert isinstance(released.statement.planned, GDP)
    assert mu < mu_of(released.statement.planned) < 1.005 * mu  # the solver's error is the difference
    met = {ApproxDP: lambda: released.statement.planned.epsilon(1e-5), GDP: lambda: mu_of(released.statement.planned) / 0.3}
    assert met.get(type(target), lambda: mu_of(released.statement.planned) ** 2 / 2 / 0.05)() == pytest.approx(1.0, rel=1e-9)
    assert released.statement.neighbours == neighbours
    assert {finding.name for finding in released.statement.findings} >= {"bounded features", "strongly convex", "solver's error"}
    with pytest.raises(ValueError, match="read-only"):
        released.weights[0] = 0.0


def test_no_record_present_is_a_data_set_as_well() -> None:
    released = output_perturbation(
        np.zeros((0, 2)), [], loss=Logistic(feature_norm=1.0), regularisation=1.0, target=TARGET, neighbours="zero_out", records=8
    )
    assert np.isfinite(released.weights).all()
