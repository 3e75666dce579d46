"""The settings that `fit` chooses, against what they are said to be."""

import math

import pytest
import torch
from torch import nn

from lethe.calculus.conversions import gdp_mu
from lethe.train.settings import default_batch_size, default_lr, weight_scale


@pytest.mark.parametrize(("epsilon", "size"), [(0.5, 3000), (3.0, 3000), (8.0, 4847)])
def test_batches_are_of_400_steps_or_of_a_noise_multiplier_of_one(epsilon: float, size: int) -> None:
    assert default_batch_size(60_000, 20, epsilon, 1e-5) == size
    if size > 3000:
        assert math.sqrt(size / 60_000 * 20 * (math.e - 1)) == pytest.approx(gdp_mu(epsilon, 1e-5), rel=1e-3)


def test_settings_stay_in_range() -> None:
    for units in (1, 2, 999, 10**9):
        for epochs in (1, 20, 10**6):
            for epsilon in (1e-6, 1.0, 1e6):
                assert 1 <= default_batch_size(units, epochs, epsilon, 1e-12) <= units
    for steps in (1, 400, 10**9):
        for scale in (0.0, 1e-300, 1e-9, 1e-3, 1.0, 1e300, math.inf, math.nan):
            assert 0 < default_lr(steps, scale) <= 0.05


def test_rates_are_rounded_and_those_of_the_weights() -> None:
    """Exact where the weights are ones, of which a frozen one does not count; weights drawn anew have the same."""
    model = nn.Linear(100, 1, bias=False)
    nn.init.ones_(model.weight)
    assert weight_scale(nn.Sequential(model, nn.LayerNorm(3).requires_grad_(requires_grad=False))) == pytest.approx(0.1)
    assert [default_lr(400, 10.0**-power) for power in (4, 6, 8)] == [0.01, 0.001, 0.0001]
    assert [default_lr(100 * steps, 1e-4) for steps in (1, 3, 16, 100)] == [0.02, 0.01, 0.005, 0.002]
    assert default_lr(1, 1.0) == 0.05
    torch.manual_seed(0)
    scales = {default_lr(400, weight_scale(nn.Sequential(nn.Linear(784, 64), nn.Linear(64, 10)))) for _ in range(20)}
    assert scales == {0.01}
    assert weight_scale(None) == weight_scale(nn.ReLU()) == 0.0
