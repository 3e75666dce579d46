"""Passes that end at an average: against exact linear-Gaussian runs, against the plain engine, and by hand."""

import math

import numpy as np
import pytest
from helpers import EXACT_SLOT_DESIGNS, batches, make_run
from hypothesis import given
from hypothesis import strategies as st

import lethe
from lethe.theorems.shuffled import positions
from lethe.theorems.shuffled.positions import averaged_mus, averaged_worst

SLOTS, PASSES = 4, 3
QUADRATIC = {"kind": "strongly_convex", "strong_convexity": 0.4, "smoothness": 0.4, "gradient_bound": 1.0}
CONCAVE = {"kind": "weakly_convex", "weak_convexity": 0.4, "smoothness": 0.4, "gradient_bound": 1.0}


def averaged_run(weights, **changes):
    fields = {"records": 40, "batches": batches("cyclic", 10), "passes": PASSES, "noise_at": "pass_ends", "pass_weights": weights}
    return make_run(**{**fields, **changes})


def exact_mu(run: lethe.Run, factor: float, slot: int) -> float:
    """Maps x -> factor x, all differences in one direction, carried out step by step: displacement and noise of the end."""
    weights = run.pass_averages
    assert weights is not None
    moved, variance = 0.0, 0.0
    for first in range(0, run.total_steps, SLOTS):
        inner_moved, inner_scale, mean_moved, mean_scale = moved, 1.0, 0.0, 0.0
        for k in range(SLOTS):
            inner_moved = factor * inner_moved + (run.sensitivities[first + k] if k == slot else 0.0)
            inner_scale *= factor
            mean_moved += weights[k] * inner_moved
            mean_scale += weights[k] * inner_scale
        moved = mean_moved
        variance = mean_scale**2 * variance + run.noise_stds[first + SLOTS - 1] ** 2
    return moved / math.sqrt(variance)


@pytest.mark.parametrize("weights", [1.0, [0.0, 1.0, 0.0, 3.0], [1.0, 0.0, 0.0, 0.0]])
@pytest.mark.parametrize(("loss", "factor"), [(QUADRATIC, 0.8), (CONCAVE, 1.2)])
def test_never_below_an_exact_linear_run(weights, loss, factor) -> None:
    run = averaged_run(weights, loss=loss)
    certified = lethe.certify(run, 1e-5)
    assert certified.theorem == "optimal-shift"
    assert isinstance(certified.guarantee, lethe.guarantees.GDP)
    exact = max(exact_mu(run, factor, slot) for slot in range(SLOTS))
    assert certified.guarantee.mu >= exact
    if factor < 1:  # all merges, and the bound is the truth
        assert certified.guarantee.mu == pytest.approx(exact, rel=1e-12)


@pytest.mark.slow
@given(
    st.lists(st.floats(0, 1.5), min_size=12, max_size=12),
    st.lists(st.floats(0, 2), min_size=12, max_size=12),
    st.lists(st.floats(0.1, 2), min_size=3, max_size=3),
    st.one_of(st.none(), st.floats(0.1, 5)),
)
def test_all_weight_on_the_last_iterate_is_the_plain_engine(lipschitz, sensitivity, noise, diameter) -> None:
    noise_std = np.zeros(12)
    noise_std[3::4] = noise
    last = np.array([0.0, 0.0, 0.0, 1.0])
    averaged = averaged_mus(lipschitz, sensitivity, noise_std, last, diameter)
    plain = positions.position_mus(lipschitz, sensitivity, noise_std, 4, diameter)
    # With a diameter the plain engine may also start inside a pass, which can only lower it.
    if diameter is None:
        assert averaged == pytest.approx(plain, rel=1e-9, abs=1e-12)
    assert (averaged >= plain * (1 - 1e-9) - 1e-150).all()  # both round up where squares leave the range of doubles


def test_without_contraction_an_earlier_touch_counts_for_more() -> None:
    """L = 1, all iterates alike: the record of batch j has moved l - j + 1 of the l iterates of its pass."""
    run = averaged_run(1.0)
    mus = averaged_mus(np.ones(12), run.sensitivities, run.noise_stds, run.pass_averages)
    shares = np.array([4, 3, 2, 1]) / 4
    assert mus == pytest.approx(shares * math.sqrt(PASSES) * run.sensitivities[0] / run.noise_stds[3], rel=1e-12)
    assert averaged_worst(np.ones(12), run.sensitivities, run.noise_stds, run.pass_averages) == pytest.approx(mus[0], rel=1e-12)


def test_one_secret_order_is_no_worse_than_a_known_one_and_a_fresh_one_each_pass_no_worse_than_the_worst() -> None:
    known, once, fresh = (lethe.certify(averaged_run(1.0, batches=batches(design, 10)), 1e-5).epsilon for design in EXACT_SLOT_DESIGNS)
    assert once < known
    assert fresh == pytest.approx(known)


def test_a_small_domain_bounds_the_last_pass_alone() -> None:
    """D + 2 C times the average step size of the last pass, over its noise: no smoothness is needed."""
    ball = {"kind": "ball", "radius": 0.01}
    steps = [0.5, 0.4, 0.3, 0.2] * 60
    run = averaged_run(1.0, regulariser=ball, loss={"kind": "unknown"}, clip_norm=1.0, passes=60, step_size=steps)
    guarantee = lethe.certify(run, 1e-5).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    assert guarantee.mu == pytest.approx((0.02 + 2 * 0.35) / run.noise_stds[-1], rel=1e-12)


def test_expansion_beyond_all_numbers_is_no_privacy() -> None:
    steps = np.full(4000, 1e300)
    with np.errstate(all="raise"):
        weights = np.full(2000, 1 / 2000)
        assert averaged_mus(steps, np.ones(4000), np.ones(4000), weights).max() == math.inf
        assert averaged_worst(steps, np.ones(4000), np.ones(4000), weights) == math.inf
