"""The minimiser of a regularised risk, found to a certified accuracy; and its release by output and by objective perturbation."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exact_minimisers import Record, exact_delta
from gaussian_guarantees import mu_of
from helpers import LINEAR_LOSSES
from scipy import optimize

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP
from lethe.errors import CalibrationError, LetheError
from lethe.mechanisms.minimisers import newton as module
from lethe.mechanisms.minimisers import objective as objective_module
from lethe.mechanisms.minimisers.newton import minimiser, most_steps, newton
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

BY_LOSS: Any = pytest.mark.parametrize("loss", LINEAR_LOSSES, ids=repr)
BOTH: Any = pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
TARGET = ApproxDP(1.0, 1e-5)


def labels_of(loss: LinearLoss, rng: np.random.Generator, count: int) -> np.ndarray:
    return 2.0 * rng.standard_normal(count) if isinstance(loss, LeastSquares) else rng.integers(0, max(loss.outputs, 2), count) * 1.0


def risk(
    loss: LinearLoss, *, regularisation: float = 0.01, count: int = 120, columns: int = 4, fall: float = 0.0, norm: float = 1.0
) -> Objective:
    """Rows of norm at most `norm` whose columns shrink with the power `fall`; a tilt; three records more than there are rows."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count, columns)) / np.arange(1, columns + 1) ** fall
    rows *= norm / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    data = MemoryRecords(rows, labels_of(loss, rng, count), loss.outputs)
    tilt = 0.02 * norm * rng.standard_normal((columns, loss.outputs)) / np.sqrt(columns / 4.0)
    return Objective(records=count + 3, data=data, loss=loss.on_rows(norm), regularisation=regularisation * norm**2, tilt=tilt)


def missed(objective: Objective, weights: np.ndarray) -> float:
    return float(np.linalg.norm(objective.value_and_gradient(weights)[1]))


@BY_LOSS
def test_derivatives_agree_with_differences(loss: LinearLoss, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = risk(loss)
    weights = np.random.default_rng(2).standard_normal(objective.shape)
    value, gradient = objective.value_and_gradient(weights)
    hessian = objective.hessian(weights)
    for place in range(weights.size):
        moved = np.zeros(weights.size)
        moved[place] = 1e-6
        (high, up), (low, down) = (objective.value_and_gradient(weights + sign * moved.reshape(weights.shape)) for sign in (1, -1))
        assert (high - low) / 2e-6 == pytest.approx(gradient.ravel()[place], abs=1e-7)
        assert (up - down).ravel() / 2e-6 == pytest.approx(hessian[place], abs=1e-4)
    monkeypatch.setattr(objective_module, "_CHUNK", 40)
    objective = replace(objective)
    chunked, by_chunks = objective.value_and_gradient(weights)
    assert chunked == pytest.approx(value, rel=1e-13)
    assert by_chunks == pytest.approx(gradient, abs=1e-14)
    assert objective.hessian(weights) == pytest.approx(hessian, abs=1e-13)


@pytest.mark.sampled(3)
# Few columns; columns of one size; eigenvalues over five decades; fewer records than columns; a ridge below the rounding of single
# precision; and units that are very large and very small.
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"count": 300, "columns": 30},
        {"count": 400, "columns": 40, "fall": 1.5, "regularisation": 1e-5},
        {"count": 20, "columns": 60, "regularisation": 1e-3},
        {"count": 3_000, "columns": 10, "regularisation": 1e-8},
        {"count": 300, "columns": 30, "norm": 1e25, "fall": 1.0},
        {"count": 300, "columns": 30, "norm": 1e-25, "fall": 1.0},
    ],
    ids=lambda shape: ", ".join(f"{name} {value}" for name, value in shape.items()),
)
@BY_LOSS
def test_every_way_arrives_at_the_certified_accuracy(loss: LinearLoss, shape: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Factored, by conjugate gradients, and accelerated: gradients of at most the tolerance, so points within tolerance / ridge."""
    objective = risk(loss, **shape)
    tolerance = 1e-11 * objective.loss.row_gradient_bound
    found = [newton(objective, tolerance)]
    assert (found[0] == minimiser(objective, tolerance)).all()
    monkeypatch.setattr(objective_module, "_MOST_WEIGHTS_TO_FACTOR", 0)
    found.append(newton(objective, tolerance))
    if not shape:
        monkeypatch.setattr(module, "_STEPS", 1)
        found.append(minimiser(objective, tolerance))
    for one in found:
        assert missed(objective, one) <= tolerance
        assert np.linalg.norm(found[0] - one) <= 2.0 * tolerance / objective.regularisation


def test_hard_problems_end_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Separable records, a regularisation of 1e-4; the descent alone, its gradients counted."""
    objective = risk(SmoothedHinge(feature_norm=1.0, width=0.01), regularisation=1e-4, count=6)
    gradient = missed(objective, np.zeros(objective.shape))
    condition = (objective.loss.smoothness + 1e-4) / 1e-4
    found = module._accelerated(objective, np.zeros(objective.shape), gradient, 1e-6)
    assert missed(objective, found) <= 1e-6
    assert most_steps(condition, gradient, 1e-6) < 60_000
    assert minimiser(objective, 1e-6) == pytest.approx(found, abs=2 * 1e-6 / 1e-4)
    monkeypatch.setattr(module, "most_steps", lambda *_: 1)
    with pytest.raises(LetheError, match="rounding is larger"):
        module._accelerated(objective, np.zeros(objective.shape), gradient, 1e-300)


def test_a_step_that_leads_nowhere_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a step proposes: here the way up, and nonsense."""
    objective = risk(Logistic(feature_norm=1.0))
    start = objective.value_and_gradient(np.zeros(objective.shape))[0]
    for proposed in (lambda gradient: -gradient, lambda gradient: np.full_like(gradient, np.nan), lambda gradient: 1e9 * gradient):
        monkeypatch.setattr(module, "_factored", lambda _, proposed=proposed: lambda weights, gradient, accuracy: proposed(gradient))
        assert objective.value_and_gradient(newton(objective, 1e-12))[0] <= start


# --- output perturbation ---


def exact_minimiser(rows: np.ndarray, targets: np.ndarray, loss: LinearLoss, regularisation: float, records: int = 5) -> np.ndarray:
    data = MemoryRecords(rows, targets, loss.outputs)
    return minimiser(Objective(records=records, data=data, loss=loss, regularisation=regularisation), 1e-12)


def share_moved(loss: LinearLoss, first: Any, second: Any, regularisation: float, seed: int) -> float:
    """How far the minimiser moves when one record of five is changed, or taken away where it has no second; in units of the bound."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((4, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    targets = labels_of(loss, rng, 4)
    found = [
        exact_minimiser(rows, targets, loss, regularisation)
        if one is None
        else exact_minimiser(np.vstack([rows, one[0]]), np.append(targets, one[1]), loss, regularisation)
        for one in (first, second)
    ]
    public = {"records": 5, "regularisation": regularisation, "gradient_bound": loss.row_gradient_bound, "tolerance": 0.0}
    bound = output_sensitivity(neighbours="zero_out" if second is None else "replace_one", **public)
    return float(np.linalg.norm(found[0] - found[1])) / bound


@pytest.mark.sampled(3)
@BOTH
@BY_LOSS
def test_neighbours_are_never_further_apart(loss: LinearLoss, neighbours: str) -> None:
    rng = np.random.default_rng(3)
    shares = []
    for seed in range(12):
        angle, other = rng.uniform(0, 2 * math.pi, 2)
        labels = labels_of(loss, rng, 2) * 4.0 if isinstance(loss, LeastSquares) else labels_of(loss, rng, 2)
        first = [math.cos(angle), math.sin(angle)], labels[0]
        second = None if neighbours == "zero_out" else ([math.cos(other), math.sin(other)], labels[1])
        shares.append(share_moved(loss, first, second, float(10 ** rng.uniform(-2, 1)), seed))
    assert 0.1 < max(shares) <= 1.0 + 1e-9


@BOTH
@pytest.mark.parametrize("loss", [SmoothedHinge(feature_norm=1.0, width=0.4), LeastSquares(feature_norm=1.0, residual_bound=0.5)], ids=repr)
def test_the_sensitivity_is_reached(loss: LinearLoss, neighbours: str) -> None:
    """Slopes at their bounds all along, on the same features with opposite targets."""
    low, high = (-9.0, 9.0) if isinstance(loss, LeastSquares) else (0.0, 1.0)
    for regularisation in (10.0, 100.0):
        second = None if neighbours == "zero_out" else ([1.0, 0.0], low)
        assert 0.98 < share_moved(loss, ([1.0, 0.0], high), second, regularisation, 0) <= 1 + 1e-9


def test_the_solvers_error_is_counted_on_both_sides() -> None:
    """Of two quadratics with minimisers 2G/(n lambda) apart, points with gradient tau can be 2 tau/lambda further apart."""
    exact = output_sensitivity(records=10, regularisation=0.5, gradient_bound=3.0, tolerance=0.0)
    assert exact == pytest.approx(2 * 3.0 / (10 * 0.5))
    assert output_sensitivity(records=10, regularisation=0.5, gradient_bound=3.0, tolerance=0.2) == pytest.approx(exact + 2 * 0.2 / 0.5)
    assert output_tolerance(3.0, 10) < 0.01 * 3.0 / 10


@pytest.mark.parametrize("target", [TARGET, GDP(0.3), ZCDP(0.05)])
@BOTH
@BY_LOSS
def test_what_is_released_is_the_minimiser_and_the_stated_noise(loss: LinearLoss, neighbours: str, target: Any) -> None:
    rng = np.random.default_rng(0)
    features, labels = 3.0 * rng.standard_normal((40, 3)), rng.integers(0, 2, 40)
    wide = loss.model_copy(update={"feature_norm": 2.0, "intercept": True})
    options = {"target": target, "neighbours": neighbours, "records": 40, "generator": np.random.default_rng(7)}
    released = output_perturbation(features, labels, loss=wide, regularisation=0.1, **options)
    rows = features * np.minimum(1.0, 2.0 / np.linalg.norm(features, axis=1, keepdims=True))
    rows = np.hstack([rows, np.ones((40, 1))])
    exact = exact_minimiser(rows, labels * 1.0, loss, 0.1, 40)
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
    nobody = {"loss": Logistic(feature_norm=1.0), "regularisation": 1.0, "target": target, "neighbours": "zero_out", "records": 8}
    assert np.isfinite(output_perturbation(np.zeros((0, 2)), [], **nobody).weights).all()


# --- objective perturbation ---

PUBLIC: dict[str, Any] = {"records": 1000, "weights": 5, "regularisation": 0.05}


@BOTH
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
    options = {"loss": Logistic(feature_norm=1.0), "target": TARGET, "generator": np.random.default_rng(11)}
    released = objective_perturbation(np.array(features)[:, None], labels, regularisation=regularisation, **options)
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
@BOTH
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
