"""Newton's method by conjugate gradients: the same point as with the Hessian factored, on data that are hard for it, in few products."""

from dataclasses import replace

import numpy as np
import pytest
from risks_to_minimise import LOSSES, risk

from lethe.mechanisms.minimisers import newton as module
from lethe.mechanisms.minimisers.linear_objective import LinearObjective
from lethe.mechanisms.minimisers.newton import newton
from lethe.run.losses import Logistic, Softmax, TruncatedSoftmax
from lethe.run.losses.linear import LinearLoss

WAYS = {"factored": 10**9, "conjugate gradients": 0}


def _by_both(objective: LinearObjective, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    found = []
    for limit in WAYS.values():
        monkeypatch.setattr(module, "_MOST_WEIGHTS_TO_FACTOR", limit)
        found.append(newton(objective, tolerance))
        assert np.linalg.norm(objective.value_and_gradient(found[-1])[1]) <= tolerance
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
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_point_is_that_of_the_factored_hessian(loss: LinearLoss, shape: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have a gradient of at most the tolerance, so each is within tolerance / ridge of the minimiser."""
    objective = risk(loss, **shape)
    tolerance = 1e-11 * objective.loss.row_gradient_bound
    first, second = _by_both(objective, tolerance, monkeypatch)
    assert np.linalg.norm(first - second) <= 2.0 * tolerance / objective.regularisation


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [Logistic(feature_norm=1.0), Softmax(feature_norm=1.0, classes=4), TruncatedSoftmax(feature_norm=1.0, classes=4, cut=0.5)],
    ids=repr,
)
def test_the_metric_takes_the_condition_out(loss: LinearLoss, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eigenvalues of C over four decades, turned so that no column shows them; by the columns' own sizes it arrives too, but late."""
    straight = risk(loss, count=600, columns=100, fall=1.0, regularisation=1e-5)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((100, 100)))[0]
    objective = replace(straight, rows=straight.rows @ turn)
    tolerance = 1e-10 * loss.row_gradient_bound
    monkeypatch.setattr(module, "_MOST_WEIGHTS_TO_FACTOR", 0)
    products = 0

    def counted(*arguments, inner=module.cg, **options):
        def count(_: object) -> None:
            nonlocal products
            products += 1

        return inner(*arguments, callback=count, **options)

    monkeypatch.setattr(module, "cg", counted)
    needed = []
    for limit in (2_000, 0):
        monkeypatch.setattr(module, "_MOST_AXES", limit)
        products = 0
        found = newton(objective, tolerance)
        needed.append(products)
        assert np.linalg.norm(objective.value_and_gradient(found)[1]) <= tolerance
    assert 2 * needed[0] < needed[1]


def test_a_step_that_leads_nowhere_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a step proposes: here the way up, and nonsense."""
    objective = risk(Logistic(feature_norm=1.0))
    start = objective.value_and_gradient(np.zeros(objective.shape))[0]
    for proposed in (lambda gradient: -gradient, lambda gradient: np.full_like(gradient, np.nan), lambda gradient: 1e9 * gradient):
        monkeypatch.setattr(module, "_factored", lambda _, proposed=proposed: lambda weights, gradient, accuracy: proposed(gradient))
        assert objective.value_and_gradient(newton(objective, 1e-12))[0] <= start
