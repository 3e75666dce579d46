"""The minimiser of a regularised risk: the certified accuracy is reached by every way, and a fallback always arrives."""

import numpy as np
import pytest
from risks_to_minimise import LOSSES, risk
from scipy import optimize

from lethe.errors import LetheError
from lethe.mechanisms.minimisers import minimiser as module
from lethe.mechanisms.minimisers import newton as newton_module
from lethe.mechanisms.minimisers.linear_objective import LinearObjective
from lethe.mechanisms.minimisers.minimiser import minimiser, most_steps
from lethe.run.losses import Logistic, SmoothedHinge
from lethe.run.losses.linear import LinearLoss


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["factored", "conjugate gradients", "accelerated"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_every_way_arrives_at_the_certified_accuracy(loss: LinearLoss, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective, tolerance = risk(loss), 1e-9
    if way != "factored":
        monkeypatch.setattr(newton_module, "_MOST_WEIGHTS_TO_FACTOR", 0)
    if way == "accelerated":
        monkeypatch.setattr(newton_module, "_STEPS", 1)
    found = minimiser(objective, tolerance)
    assert np.linalg.norm(objective.value_and_gradient(found)[1]) <= tolerance
    assert (found == minimiser(objective, tolerance)).all()
    other = optimize.minimize(
        lambda flat: objective.value_and_gradient(flat.reshape(objective.shape))[0], found.ravel(), method="Nelder-Mead"
    )
    assert other.fun >= objective.value_and_gradient(found)[0] - 1e-12


@pytest.mark.slow
def test_hard_problems_end_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Separable records, a regularisation of 1e-4; the descent alone, its gradients counted."""
    objective = risk(SmoothedHinge(feature_norm=1.0, width=0.01), regularisation=1e-4, count=6)
    gradient = float(np.linalg.norm(objective.value_and_gradient(np.zeros(objective.shape))[1]))
    condition = (objective.loss.smoothness + 1e-4) / 1e-4
    found = module._accelerated(objective, np.zeros(objective.shape), gradient, 1e-6)
    assert np.linalg.norm(objective.value_and_gradient(found)[1]) <= 1e-6
    assert most_steps(condition, gradient, 1e-6) < 60_000
    assert minimiser(objective, 1e-6) == pytest.approx(found, abs=2 * 1e-6 / 1e-4)
    monkeypatch.setattr(module, "most_steps", lambda *_: 1)
    with pytest.raises(LetheError, match="rounding is larger"):
        module._accelerated(objective, np.zeros(objective.shape), gradient, 1e-300)


@pytest.mark.parametrize("columns", [2, 300])
def test_no_record_present(columns: int) -> None:
    rows, tilt = np.zeros((0, columns)), np.linspace(-1.0, 1.0, columns)[:, None]
    objective = LinearObjective(records=5, rows=rows, targets=np.zeros(0), loss=Logistic(feature_norm=1.0), regularisation=0.1, tilt=tilt)
    assert minimiser(objective, 1e-9) == pytest.approx(-tilt / 0.1, abs=1e-8)
