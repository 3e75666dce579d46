"""The regularised risk: its derivatives against differences, whatever the chunks."""

import numpy as np
import pytest
from risks_to_minimise import LOSSES, risk

from lethe.mechanisms.minimisers import linear_objective
from lethe.run.losses.linear import LinearLoss


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
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
    monkeypatch.setattr(linear_objective, "_CHUNK", 40)
    chunked, by_chunks = objective.value_and_gradient(weights)
    assert chunked == pytest.approx(value, rel=1e-13)
    assert by_chunks == pytest.approx(gradient, abs=1e-14)
    assert objective.hessian(weights) == pytest.approx(hessian, abs=1e-13)
