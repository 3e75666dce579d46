"""The settings that `fit` chooses, against what they are said to be."""

import math

import pytest

from lethe.calculus.conversions import gdp_mu
from lethe.train.settings import default_batch_size, default_lr


@pytest.mark.parametrize(("epsilon", "size"), [(0.5, 1200), (3.0, 1200), (8.0, 4847)])
def test_batches_are_of_a_thousand_steps_or_of_a_noise_multiplier_of_one(epsilon: float, size: int) -> None:
    assert default_batch_size(60_000, 20, epsilon, 1e-5) == size
    if size > 1200:
        assert math.sqrt(size / 60_000 * 20 * (math.e - 1)) == pytest.approx(gdp_mu(epsilon, 1e-5), rel=1e-3)


def test_settings_stay_in_range() -> None:
    for units in (1, 2, 999, 10**9):
        for epochs in (1, 20, 10**6):
            for epsilon in (1e-6, 1.0, 1e6):
                assert 1 <= default_batch_size(units, epochs, epsilon, 1e-12) <= units
    assert default_lr(1) == default_lr(64) == 0.05
    assert default_lr(1600) == 0.01
