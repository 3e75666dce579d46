"""Losses of counts and costs: derivatives by autograd, the lemma's curvature to 1 %, the limits of the power, and what zero targets do."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.losses import Tweedie

POWERS = st.one_of(st.sampled_from([1.0, 1.0 + 1e-9, 1.5, 2.0 - 1e-9, 2.0]), st.floats(1.0, 2.0))


def loss_of(power: float, target_bound: float = 3.0, cut: float = 1.0) -> Tweedie:
    return Tweedie(feature_norm=1.0, power=power, target_bound=target_bound, cut=cut)


def half_deviance(power: float, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As in a book, of the mean $e^s$."""
    means = scores.exp()
    if power == 1.0:
        return targets * (targets / means).log() - targets + means
    if power == 2.0:
        return (means / targets).log() + targets / means - 1.0
    return (
        targets ** (2 - power) / ((1 - power) * (2 - power))
        - targets * means ** (1 - power) / (1 - power)
        + means ** (2 - power) / (2 - power)
    )


@pytest.mark.parametrize("power", [1.0, 1.2, 1.5, 1.9, 2.0])
def test_it_is_the_deviance_where_the_slope_is_short_and_its_tangent_elsewhere(power: float) -> None:
    rng = np.random.default_rng(0)
    loss, scores, targets = loss_of(power), 1.5 * rng.standard_normal(400), rng.uniform(0.01, 3.0, 400)
    at = torch.tensor(scores, requires_grad=True)
    values = half_deviance(power, at, torch.tensor(targets))
    (slopes,) = torch.autograd.grad(values.sum(), at, create_graph=True)
    (bent,) = torch.autograd.grad(slopes.sum(), at)
    short = (slopes.abs() < 1.0).detach().numpy()
    assert 100 < short.sum() < 350
    ours = loss.values(scores[:, None], targets), loss.slopes(scores[:, None], targets)[:, 0]
    np.testing.assert_allclose(ours[0][short], values.detach().numpy()[short], atol=1e-12)
    np.testing.assert_allclose(ours[1], slopes.detach().clamp(-1.0, 1.0).numpy(), atol=1e-12)
    curved = loss.curvatures(scores[:, None], targets).diagonal[:, 0]
    np.testing.assert_allclose(curved, np.where(short, bent.numpy(), 0.0), atol=1e-11)
    grid = np.linspace(-9.0, 9.0, 200_001)[:, None]  # beyond both cuts the values are the integral of the slope
    for target in (0.0, 0.3, 3.0):
        repeated = np.full(len(grid), target)
        slope, value = loss.slopes(grid, repeated)[:, 0], loss.values(grid, repeated)
        np.testing.assert_allclose(value - value[0], np.cumsum(np.append(0.0, (slope[1:] + slope[:-1]) / 2)) * 9e-5, atol=1e-7)


@given(power=POWERS, size=st.floats(-6.0, 6.0), cut=st.floats(-6.0, 6.0))
def test_the_curvature_is_never_exceeded_and_reached_to_one_per_cent(power: float, size: float, cut: float) -> None:
    """Also by smaller targets; and it is no more than the closed form."""
    loss = loss_of(power, math.exp(size), math.exp(cut + size * (2.0 - power)))
    closed = loss.target_bound ** (2.0 - power) + max(2.0 - power, power - 1.0) * loss.cut
    assert loss.curvature_bound <= closed * (1.0 + 1e-11)
    for share in (1.0, 0.999, 0.3, 1e-3, 0.0):
        # Near the scores at which the slope is cut, which are where one of the two terms is c and more.
        high = math.log(loss.cut) / max(2.0 - power, 1e-3) + np.linspace(-3.0, 6.0, 4001)
        scores = np.concatenate([np.linspace(-30.0, 30.0, 60_001), np.clip(high, -700.0, 700.0)])[:, None]
        curved = loss.curvatures(scores, np.full(len(scores), share * loss.target_bound)).diagonal
        assert curved.max() <= loss.curvature_bound
        assert share < 1.0 or curved.max() >= 0.99 * loss.curvature_bound
        slopes = loss.slopes(scores, np.full(len(scores), share * loss.target_bound))
        assert np.abs(slopes).max() <= loss.slope_bound
        assert (np.diff(slopes[:60_001, 0]) >= 0.0).all()  # convex


def test_bounds_in_the_weights_are_those_of_the_longest_row() -> None:
    loss = Tweedie(feature_norm=2.0, intercept=True, power=1.0, target_bound=3.0, cut=1.0)
    assert loss.curvature[1] == pytest.approx(5.0 * 4.0, rel=1e-9)
    assert loss.derived_gradient_bound == pytest.approx(math.sqrt(5.0), rel=1e-9)


def test_targets_outside_count_as_the_ends_and_the_mean_ends_there() -> None:
    scores = np.linspace(-3.0, 3.0, 7)[:, None]
    for power in (1.0, 1.5, 2.0):
        loss = loss_of(power)
        for target, end in ((-5.0, 0.0), (0.0, 3.0 * 2.0**-20), (40.0, 3.0)):
            pair = (loss.values(scores, np.full(7, one)) for one in (target, end))
            np.testing.assert_array_equal(*pair)
        assert loss.decide(np.array([[0.5], [2.0]])) == pytest.approx([math.exp(0.5), 3.0])


@pytest.mark.parametrize("power", [0.0, 0.999, 2.001, 3.0])
def test_losses_that_are_not_convex_are_refused(power: float) -> None:
    with pytest.raises(InputError, match="power"):
        loss_of(power)


def test_slopes_that_are_cut_far_below_their_terms_are_refused() -> None:
    assert loss_of(1.0, 1000.0, 1.0).cut == 1.0
    with pytest.raises(InputError, match=r"it needs at least 1, a thousandth"):
        loss_of(1.0, 1000.0, 0.99)
