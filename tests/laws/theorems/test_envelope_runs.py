"""Runs along envelopes: the constants of their steps, what the error of the search costs, and which theorems may speak of them."""

import math
from typing import Any

import numpy as np
import pytest
from exact_runs import DELTA
from helpers import batches, make_run
from oracles import brute_force_shift, linear_gaussian_mu_same_direction

import lethe
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.run.descended import descended_curvature, descends_envelope
from lethe.run.losses import Softmax
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.steps import errors_mu, step_constants
from lethe.theorems.windowed import Windowed

ANY_METHOD = {"balls-in-bins", "composition", "sampled-gaussian", "budget-filter"}


def enveloped(**changes: Any) -> lethe.Run:
    return make_run(**{"clip_norm": 0.25, "clip_method": "envelope", **changes})


def constant(run: lethe.Run) -> float:
    steps = step_constants(run)
    assert steps is not None
    return steps.constant.constant


def mu(run: lethe.Run) -> float:
    guarantee = OptimalShift().bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    return guarantee.mu


@pytest.mark.parametrize(
    ("loss", "curvature"),
    [
        ({"kind": "softmax_regression", "feature_norm": 1.0}, 0.25 * (math.sqrt(2) - 0.25)),
        ({"kind": "softmax_regression", "feature_norm": 1.0, "intercept": True}, 0.25 * (2 - 0.25)),
        ({"kind": "softmax_regression", "feature_norm": 0.3}, 0.045),
        ({"kind": "logistic_regression", "feature_norm": 2.0}, 0.25 * 1.75),
        ({"kind": "smoothed_hinge", "feature_norm": 1.0, "width": 0.5}, 1.0),
        ({"kind": "least_squares", "feature_norm": 1.0, "residual_bound": 2.0}, 1.0),
        ({"kind": "huber", "feature_norm": 1.0, "residual_bound": 2.0}, 1.0),
    ],
)
def test_a_step_of_two_over_the_curvature_does_not_expand_and_a_longer_one_does(loss: dict[str, Any], curvature: float) -> None:
    run = enveloped(loss=loss)
    assert descends_envelope(run)
    assert descended_curvature(run) == (0.0, pytest.approx(curvature, rel=1e-12))
    assert constant(run.replace(step_size=2 / curvature * (1 - 1e-12))) == 1.0
    assert constant(run.replace(step_size=2 / curvature * 1.01)) == pytest.approx(1.02, rel=1e-9)
    assert run.record_bound == 0.25
    assert run.sensitivities[0] == pytest.approx(2 * 0.5 * 0.25 / 10)


def test_plain_clipping_expands_where_the_envelope_does_not() -> None:
    run = enveloped(step_size=4.0)
    assert constant(run) == 1.0
    assert constant(run.replace(clip_method="clip")) == pytest.approx(math.sqrt(2))
    assert lethe.certify(run, DELTA).epsilon < 0.7 * lethe.certify(run.replace(clip_method="clip"), DELTA).epsilon


@pytest.mark.parametrize("changes", [{}, {"regulariser": {"kind": "ridge", "strength": 0.1}}, {"noise_at": "pass_ends"}])
@pytest.mark.parametrize("design", ["full", "cyclic"])
def test_the_error_of_the_search_is_paid_for(changes: dict[str, Any], design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were a tenth of C: no less than a chain in which each of two gradients is off by that, one to either side, at every step."""
    run = enveloped(batches=batches(design, 10), steps=20, neighbours="zero_out", **changes)
    exact = mu(run)
    monkeypatch.setattr(Softmax, "envelope_error", 0.1)
    steps = step_constants(run)
    assert steps is not None
    assert steps.errors is not None
    np.testing.assert_allclose(steps.errors, 2 * 0.1 * 0.25 * run.step_sizes, rtol=1e-12)
    touched = run.sensitivities * (np.ones(20) if design == "full" else np.arange(1, 21) % 10 == 0)
    worst = linear_gaussian_mu_same_direction(steps.lipschitz, touched + steps.errors, run.noise_stds)
    assert mu(run) >= worst * (1 - 1e-12) > exact * 1.01
    assert mu(run) == pytest.approx(exact + errors_mu(run, steps), rel=1e-9)
    if "noise_at" in changes:
        return
    if design == "full" and not changes:
        assert mu(run) <= worst * (1 + 1e-9)  # and no more than that where all adds up
    else:
        assert mu(run) >= brute_force_shift(steps.lipschitz, touched + steps.errors, run.noise_stds) * (1 - 1e-6)


@pytest.mark.parametrize("wrong", [0.99, 1.01])
def test_one_per_cent_of_the_bound_is_one_per_cent_of_the_guarantee(wrong: float) -> None:
    """The exact privacy of a linear envelope scales with C: see `exact_runs`."""
    run = enveloped(batches={"design": "full"}, steps=20, neighbours="zero_out")
    exact = math.sqrt(20) * run.step_sizes[0] * 0.25 / 100 / run.noise_stds[0]
    assert mu(run) == pytest.approx(exact, rel=1e-6)
    other = run.replace(clip_norm=0.25 * wrong)
    assert other.sensitivities[0] == pytest.approx(run.sensitivities[0] * wrong)


def test_windows_hide_the_errors_of_their_steps_and_start_farther_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the window of all steps, which is composition."""
    run = enveloped(batches=batches("without_replacement", 10), steps=60, regulariser={"kind": "ridge", "strength": 0.1})
    plain = Windowed().bound(run).guarantee
    monkeypatch.setattr(Softmax, "envelope_error", 0.1)
    steps, raised = step_constants(run), Windowed().bound(run).guarantee
    assert steps is not None
    assert isinstance(plain, WindowedGaussian)
    assert isinstance(raised, WindowedGaussian)
    more = np.array(raised.shift_mus) - np.array(plain.shift_mus)
    assert more[-1] == 0.0
    assert raised.shift_mus[-1] == 0.0
    assert (more[:-1] >= errors_mu(run, steps) * (1 - 1e-9)).all()
    # Tracked forward, the start of a window is farther by a tenth of C twice a step against 2 C of a touch: more than by the errors inside.
    assert more[0] >= errors_mu(run, steps) + 0.09 * plain.shift_mus[0]
