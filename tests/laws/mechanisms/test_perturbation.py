"""Output and objective perturbation from end to end: how far neighbours are apart, what is released, and at what noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from exact_minimisers import Record, exact_delta
from gaussian_guarantees import mu_of
from helpers import LINEAR_LOSSES
from scipy import optimize

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP
from lethe.errors import CalibrationError
from lethe.mechanisms.minimisers.newton import minimiser
from lethe.mechanisms.minimisers.objective import MemoryRecords, Objective
from lethe.mechanisms.minimisers.objective_perturbation import (
    PerturbedMinimiser,
    least_noise_std,
    objective_guarantee,
    objective_noise_std,
    objective_perturbation,
    release_std,
    solver_tolerance,
)
from lethe.mechanisms.minimisers.output_perturbation import output_perturbation, output_sensitivity
from lethe.mechanisms.minimisers.output_perturbation import solver_tolerance as output_tolerance
from lethe.run.losses import Huber, LeastSquares, Logistic, SmoothedHinge, Softmax
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
    assert output_tolerance(3.0, 10) < 0.01 * 3.0 / 10


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


PUBLIC: dict[str, Any] = {"records": 1000, "weights": 5, "regularisation": 0.05}


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize(
    "loss",
    [
        Logistic(feature_norm=1.0),
        Softmax(feature_norm=1.0, classes=4),
        SmoothedHinge(feature_norm=1.0, width=0.5),
        LeastSquares(feature_norm=1.0, residual_bound=2.0),
    ],
    ids=repr,
)
def test_the_noise_meets_the_target_and_no_less_noise_does(loss: LinearLoss, neighbours: str) -> None:
    noise_std = objective_noise_std(loss, target=TARGET, neighbours=neighbours, **PUBLIC)
    assert objective_guarantee(loss, noise_std=noise_std, neighbours=neighbours, **PUBLIC).epsilon(1e-5) <= 1.0
    assert objective_guarantee(loss, noise_std=noise_std / 1.001, neighbours=neighbours, **PUBLIC).epsilon(1e-5) > 1.0


def test_the_calibrated_noise_is_needed() -> None:
    """One hinge, its slope at the bound, at the noise that was found and at a hundredth less: the exact law, the solver's part included."""
    public: dict[str, Any] = {"records": 1, "weights": 1, "regularisation": 3000.0}
    target, loss = ApproxDP(1.0, 1e-4), SmoothedHinge(feature_norm=1.0, width=0.5)
    noise_std = objective_noise_std(loss, target=target, neighbours="replace_one", **public)
    tolerance = solver_tolerance(loss, noise_std=noise_std, **public)
    del public["weights"]
    shift = 2.0 * tolerance / (3000.0 * release_std(loss, noise_std=noise_std, **public))
    pair = [Record(1.0, 1.0, "hinge")], [Record(1.0, 0.0, "hinge")]
    assert shift == pytest.approx(0.03 / noise_std, rel=1e-9)
    assert exact_delta(*pair, 1.0, ridge=3000.0, noise_std=noise_std, shift=shift) <= 1e-4
    assert exact_delta(*pair, 1.0, ridge=3000.0, noise_std=noise_std / 1.01, shift=shift) > 1e-4


def test_what_is_released_is_the_tilted_minimiser_and_a_little_noise() -> None:
    """One weight, its minimiser found again by bisection with the same random numbers."""
    features, labels, regularisation = [0.3, -0.9, 1.0, 0.2, -0.5], [1, 0, 0, 1, 1], 8.0
    released = objective_perturbation(
        np.array(features)[:, None],
        labels,
        loss=Logistic(feature_norm=1.0),
        regularisation=regularisation,
        target=TARGET,
        generator=np.random.default_rng(11),
    )
    random = np.random.default_rng(11)
    tilt, last = released.noise_std * random.standard_normal(), random.standard_normal()
    records = [Record(feature, label, "logistic") for feature, label in zip(features, labels, strict=True)]

    def slope(weight: float) -> float:
        return sum(float(record.gradient(np.array([weight]))[0]) for record in records) + 5 * regularisation * weight + tilt

    exact = optimize.brentq(slope, -100.0, 100.0, xtol=1e-14)
    std = release_std(Logistic(feature_norm=1.0), records=5, regularisation=regularisation, noise_std=released.noise_std)
    public: dict[str, Any] = {"records": 5, "regularisation": regularisation, "noise_std": released.noise_std}
    accuracy = solver_tolerance(Logistic(feature_norm=1.0), weights=1, **public) / regularisation
    assert std == pytest.approx(0.1 * released.noise_std / (5 * (regularisation + 0.25)))
    assert abs(released.weights[0, 0] - (exact + std * last)) <= accuracy
    assert released.statement.planned.epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)
    assert released.statement.planned == objective_guarantee(Logistic(feature_norm=1.0), weights=1, **public)
    # Two points, each within the accuracy of its own minimiser, are at most twice that apart when the minimisers are equal.
    assert isinstance(released.statement.planned, PerturbedMinimiser)
    assert released.statement.planned.cases[0][1][-1] == (pytest.approx(2.0 * accuracy / std), 1)
    names = {finding.name: finding.evidence for finding in released.statement.findings}
    assert names["generalised linear"] == names["solver's error"] == "enforced"


def test_the_classical_noise_is_larger() -> None:
    r"""Kifer, Smith, Thakurta 2012: $\sigma^2 = G^2(8\log(2/\delta) + 4\epsilon)/\epsilon^2$ and $\Lambda \ge 2\beta/\epsilon$.

    Here at the smallest $\Lambda$ it allows, for one record taken out, which is how later work reads it.
    """
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-5)):
        classical = math.sqrt(8.0 * math.log(2.0 / delta) + 4.0 * epsilon) / epsilon
        public: dict[str, Any] = {"records": 100, "weights": 3, "regularisation": 2.0 * 0.25 / epsilon / 100}
        assert (
            objective_noise_std(Logistic(feature_norm=1.0), target=ApproxDP(epsilon, delta), neighbours="zero_out", **public)
            < 0.75 * classical
        )


def test_too_small_a_ridge_is_refused_with_the_least_one() -> None:
    with pytest.raises(CalibrationError, match=r"well above 0\.000145"):
        objective_noise_std(Logistic(feature_norm=1.0), target=TARGET, **PUBLIC | {"regularisation": 1e-5})
    assert objective_noise_std(Logistic(feature_norm=1.0), target=TARGET, **PUBLIC | {"regularisation": 2e-4}) > 10.0


def test_rounding_is_paid_for_where_it_is_larger_than_the_wanted_accuracy() -> None:
    public = PUBLIC | {"records": 10**9, "regularisation": 1e-5}
    tolerance = solver_tolerance(Logistic(feature_norm=1.0), noise_std=4.0, **public)
    assert tolerance > 1e-12
    larger = objective_guarantee(Logistic(feature_norm=1.0), noise_std=4.0, **public).cases[0][1][-1][0]
    assert larger > 0.03 * 1.0 / 4.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize(
    "loss", [Logistic(feature_norm=1.5), Huber(feature_norm=1.5, residual_bound=0.7), Softmax(feature_norm=1.5, classes=4)]
)
@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_the_least_noise_is_below_the_noise_and_near_it(loss: LinearLoss, neighbours: Any, epsilon: float) -> None:
    target = ApproxDP(epsilon, 1e-6)
    for share in (0.01, 0.1, 1.0, 100.0):
        regularisation = share * loss.smoothness
        least = least_noise_std(loss, ridge=1000 * regularisation, target=target, neighbours=neighbours)
        noise = objective_noise_std(loss, records=1000, weights=4, regularisation=regularisation, target=target, neighbours=neighbours)
        assert 0.7 * noise < least <= noise
    assert math.isinf(least_noise_std(loss, ridge=1e-9, target=target, neighbours=neighbours))
