"""Gradients that are off and iterates that are rounded: what the errors of envelopes and of floating point cost, and never less than it."""

import math
from typing import Any

import numpy as np
import pytest
from exact_runs import DELTA
from helpers import batches, make_run
from oracles import brute_force_shift, linear_gaussian_mu_same_direction
from theorem_bounds import mu_of

import lethe
from lethe.calculus.guarantees import WithSlack
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.run.effective_loss import descended_curvature, descends_envelope
from lethe.run.losses import Softmax
from lethe.run.run import Run
from lethe.theorems.holder.path import HolderPath
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.steps import errors_mu, step_constants
from lethe.theorems.windowed import Windowed

FLOAT32 = {"dtype": "float32", "parameter_norm": 1000.0}


def rounded_run(**changes: Any) -> Run:
    said: dict[str, Any] = {
        "records": 60,
        "batches": lethe.batches.Cyclic(6),
        "passes": 5,
        "step_size": 0.1,
        "clip_norm": 1.0,
        "noise_multiplier": 2.0,
        "loss": lethe.losses.Convex(smoothness=1.0),
        "release": "last",
        "neighbours": "replace_one",
        "precision": FLOAT32,
    }
    return Run(**{**said, **changes})


def mu(run: Run) -> float:
    return mu_of(OptimalShift(), run)


def exact_mu(lipschitz: float, moves: np.ndarray, noise_stds: np.ndarray) -> float:
    return linear_gaussian_mu_same_direction(np.full(moves.size, lipschitz), moves, noise_stds)


def test_the_contract_s_example() -> None:
    """2000 steps of float32 at d = 10^6 weights near 1, noise .008: mu = .67 by rounding alone (theory.md, section 9)."""
    rounding = 2.0**-23 * 1000.0
    run = rounded_run(records=2000, batches=lethe.batches.Cyclic(1), passes=1, step_size=1.0, clip_norm=1e-9, noise_multiplier=8e6)
    smooth = run.replace(loss=lethe.losses.Convex(smoothness=1e-12))
    assert mu(smooth) == pytest.approx(np.sqrt(2000) * rounding / 0.008, rel=1e-6)
    assert mu(smooth) == pytest.approx(0.67, abs=0.004)


@pytest.mark.parametrize("design", [lethe.batches.Full(), lethe.batches.Cyclic(6), lethe.batches.Cyclic(20)])
@pytest.mark.parametrize("regulariser", [None, lethe.regularisers.L2(0.3)])
def test_no_less_than_roundings_that_all_point_one_way(
    design: lethe.batches.Cyclic | lethe.batches.Full, regulariser: lethe.regularisers.L2 | None
) -> None:
    """A linear loss: every step keeps distances, and a ridge shrinks them; each rounding adds to what the record did."""
    run = rounded_run(batches=design, regulariser=regulariser, loss=lethe.losses.Convex(smoothness=1e-12))
    errors = run.rounding_errors
    assert errors is not None
    shrinks = 1.0 if regulariser is None else 1.0 / (1.0 + 0.1 * regulariser.strength)
    moves = [run.sensitivities * (np.arange(run.total_steps) % run.steps_per_pass == slot) for slot in range(run.steps_per_pass)]
    worst = max(exact_mu(shrinks, moved + errors, run.noise_stds) for moved in moves)
    assert worst > exact_mu(shrinks, moves[-1], run.noise_stds) * 1.01
    assert mu(run) >= worst * (1 - 1e-12)


def test_a_mean_of_iterates_is_rounded_too() -> None:
    """Two roundings a step for the mean itself, and the iterates', of which the k-th is in all later ones."""
    run = rounded_run(noise_at="pass_ends", pass_weights=1.0, loss=lethe.losses.Convex(smoothness=1e-12))
    errors, precision = run.rounding_errors, run.precision
    assert errors is not None
    assert precision is not None
    shares = np.arange(10, 0, -1) / 10
    together = (shares * errors[0]).sum() + 20 * precision.rounding
    assert mu(run) - mu(run.replace(precision=None)) == pytest.approx(np.sqrt(5) * together / run.noise_stds[-1], rel=1e-6)


def test_tangents_of_a_holder_gradient_count_rounding() -> None:
    """The search for tangents may find others; of the same ones, each rounding adds at every step from the first touch on."""
    run = rounded_run(regulariser=lethe.regularisers.Ball(0.05), loss=lethe.losses.Holder(constant=1.0, exponent=0.5))
    at = np.full(run.total_steps, 0.01)
    exact, rounded = (HolderPath(one).solve(at, None) for one in (run.replace(precision=None), run))
    errors = run.rounding_errors
    assert errors is not None
    added = rounded.sensitivity - exact.sensitivity
    assert (rounded.lipschitz > 1.0).all()
    assert added == pytest.approx(rounded.lipschitz * errors, rel=1e-9)
    assert rounded.mu > exact.mu * 1.001


@pytest.mark.parametrize(
    ("loss", "constant"),
    [
        (lethe.losses.WeaklyConvex(weak_convexity=5.0, smoothness=5.0, gradient_bound=1.0), 1.5),
        (lethe.losses.StronglyConvex(strong_convexity=5.0, smoothness=5.0, gradient_bound=1.0), 0.5),
    ],
)
def test_an_error_goes_through_a_step_that_expands_and_whole_into_one_that_contracts(loss: lethe.losses.Loss, constant: float) -> None:
    """What was rounded before a step is L times as much after it; what its own gradient is off by is not made smaller."""
    run = rounded_run(batches=lethe.batches.Full(), loss=loss, clip_norm=None, precision={**FLOAT32, "gradient_error": 1e-3})
    steps, errors = step_constants(run), run.rounding_errors
    assert errors is not None
    assert steps is not None
    assert steps.errors is not None
    assert steps.lipschitz == pytest.approx(constant, rel=1e-12)
    expected = max(constant, 1.0) * errors
    assert steps.errors == pytest.approx(expected, rel=1e-12)
    assert (steps.errors >= expected).all()
    assert mu(run) >= exact_mu(constant, run.sensitivities + expected, run.noise_stds) * (1 - 1e-12)


def test_windows_count_what_was_rounded_before_them_and_within() -> None:
    """With a ridge the distance that a window begins with grows by touches and errors alike; those within cost as much again."""
    run = rounded_run(batches=lethe.batches.Poisson(6), neighbours="zero_out", regulariser=lethe.regularisers.L2(0.3), precision=FLOAT32)
    run = run.replace(loss=lethe.losses.Convex(smoothness=1e-12))
    shifts = []
    for one in (run, run.replace(precision=None)):
        guarantee = Windowed().bound(one).guarantee
        while not isinstance(guarantee, WindowedGaussian):
            assert isinstance(guarantee, WithSlack)
            guarantee = guarantee.guarantee
        shifts.append(np.array(guarantee.shift_mus[:-1]))
    steps = step_constants(run)
    assert steps is not None
    assert steps.errors is not None
    grown = 1.0 + steps.errors[0] / run.sensitivities[0]
    assert grown > 1.001
    assert shifts[0] == pytest.approx(shifts[1] * grown + errors_mu(run, steps), rel=1e-9)


def enveloped(**changes: Any) -> lethe.Run:
    return make_run(**{"clip_norm": 0.25, "clip_method": "envelope", **changes})


def constant_of(run: lethe.Run) -> float:
    steps = step_constants(run)
    assert steps is not None
    return steps.constant.constant


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
    assert constant_of(run.replace(step_size=2 / curvature * (1 - 1e-12))) == 1.0
    assert constant_of(run.replace(step_size=2 / curvature * 1.01)) == pytest.approx(1.02, rel=1e-9)
    assert run.record_bound == 0.25
    assert run.sensitivities[0] == pytest.approx(2 * 0.5 * 0.25 / 10)


def test_plain_clipping_expands_where_the_envelope_does_not() -> None:
    run = enveloped(step_size=4.0)
    assert constant_of(run) == 1.0
    assert constant_of(run.replace(clip_method="clip")) == pytest.approx(math.sqrt(2))
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


def test_a_linear_envelope_is_exact() -> None:
    """Its exact privacy scales with C: see `exact_runs`."""
    run = enveloped(batches={"design": "full"}, steps=20, neighbours="zero_out")
    assert mu(run) == pytest.approx(math.sqrt(20) * run.step_sizes[0] * 0.25 / 100 / run.noise_stds[0], rel=1e-6)


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
