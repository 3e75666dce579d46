"""The minimiser of a regularised risk: its derivatives, and the certified accuracy, reached by every way on data that are hard for it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import LINEAR_LOSSES
from scipy import optimize

from lethe.errors import LetheError
from lethe.mechanisms.minimisers import newton as module
from lethe.mechanisms.minimisers import objective as objective_module
from lethe.mechanisms.minimisers.newton import minimiser, most_steps, newton
from lethe.mechanisms.minimisers.objective import MemoryRecords, Objective
from lethe.run.losses import LeastSquares, Logistic, SmoothedHinge
from lethe.run.losses.linear import LinearLoss

BY_LOSS: Any = pytest.mark.parametrize("loss", LINEAR_LOSSES, ids=repr)


def risk(
    loss: LinearLoss, *, regularisation: float = 0.01, count: int = 120, columns: int = 4, fall: float = 0.0, norm: float = 1.0
) -> Objective:
    """Rows of norm at most `norm` whose columns shrink with the power `fall`; a tilt; three records more than there are rows."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count, columns)) / np.arange(1, columns + 1) ** fall
    rows *= norm / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    targets = rng.standard_normal(count) if isinstance(loss, LeastSquares) else rng.integers(0, max(loss.outputs, 2), count) * 1.0
    tilt = 0.02 * norm * rng.standard_normal((columns, loss.outputs)) / np.sqrt(columns / 4.0)
    data = MemoryRecords(rows, targets, loss.outputs)
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
@pytest.mark.parametrize("way", ["factored", "conjugate gradients", "accelerated"])
@BY_LOSS
def test_every_way_arrives_at_the_certified_accuracy(loss: LinearLoss, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective, tolerance = risk(loss), 1e-9
    if way != "factored":
        monkeypatch.setattr(objective_module, "_MOST_WEIGHTS_TO_FACTOR", 0)
    if way == "accelerated":
        monkeypatch.setattr(module, "_STEPS", 1)
    found = minimiser(objective, tolerance)
    assert missed(objective, found) <= tolerance
    assert (found == minimiser(objective, tolerance)).all()
    other = optimize.minimize(
        lambda flat: objective.value_and_gradient(flat.reshape(objective.shape))[0], found.ravel(), method="Nelder-Mead"
    )
    assert other.fun >= objective.value_and_gradient(found)[0] - 1e-12


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


@pytest.mark.parametrize("columns", [2, 300])
def test_no_record_present(columns: int) -> None:
    rows, tilt = np.zeros((0, columns)), np.linspace(-1.0, 1.0, columns)[:, None]
    data = MemoryRecords(rows, np.zeros(0), 1)
    objective = Objective(records=5, data=data, loss=Logistic(feature_norm=1.0), regularisation=0.1, tilt=tilt)
    assert minimiser(objective, 1e-9) == pytest.approx(-tilt / 0.1, abs=1e-8)


WAYS = {"factored": 10**9, "conjugate gradients": 0}


def _by_both(objective: Objective, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    found = []
    for limit in WAYS.values():
        monkeypatch.setattr(objective_module, "_MOST_WEIGHTS_TO_FACTOR", limit)
        found.append(newton(objective, tolerance))
        assert missed(objective, found[-1]) <= tolerance
    return found


@pytest.mark.sampled(3)
# Columns of one size; eigenvalues over five decades; fewer records than columns; a ridge below the rounding of single precision.
@pytest.mark.parametrize(
    "shape",
    [
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
def test_the_point_is_that_of_the_factored_hessian(loss: LinearLoss, shape: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have a gradient of at most the tolerance, so each is within tolerance / ridge of the minimiser."""
    objective = risk(loss, **shape)
    tolerance = 1e-11 * objective.loss.row_gradient_bound
    first, second = _by_both(objective, tolerance, monkeypatch)
    assert np.linalg.norm(first - second) <= 2.0 * tolerance / objective.regularisation


def test_a_step_that_leads_nowhere_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a step proposes: here the way up, and nonsense."""
    objective = risk(Logistic(feature_norm=1.0))
    start = objective.value_and_gradient(np.zeros(objective.shape))[0]
    for proposed in (lambda gradient: -gradient, lambda gradient: np.full_like(gradient, np.nan), lambda gradient: 1e9 * gradient):
        monkeypatch.setattr(module, "_factored", lambda _, proposed=proposed: lambda weights, gradient, accuracy: proposed(gradient))
        assert objective.value_and_gradient(newton(objective, 1e-12))[0] <= start
