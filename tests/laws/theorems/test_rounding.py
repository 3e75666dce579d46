r"""What rounding of hidden iterates costs: never less than in linear runs whose roundings all point one way, and no more than that."""

from typing import Any

import numpy as np
import pytest

import lethe
from lethe.calculus.guarantees import GDP, WithSlack
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.run.run import Run
from lethe.theorems.holder_shift import HolderPath
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.steps import errors_mu, step_constants
from lethe.theorems.windowed import Windowed

FLOAT32 = {"dtype": "float32", "parameter_norm": 1000.0}


def make_run(**changes: Any) -> Run:
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
    guarantee = OptimalShift().bound(run).guarantee
    assert isinstance(guarantee, GDP)
    return guarantee.mu


def exact_mu(lipschitz: float, moves: np.ndarray, noise_stds: np.ndarray) -> float:
    """Of $x_t = Lx_{t-1} + m_t + \\nu_t$, the two worlds m apart: a Gaussian with another mean."""
    weights = lipschitz ** np.arange(len(moves))[::-1]
    return float((weights * moves).sum() / np.sqrt((weights * noise_stds) @ (weights * noise_stds)))


def test_the_contract_s_example() -> None:
    """2000 steps of float32 at d = 10^6 weights near 1, noise .008: mu = .67 by rounding alone (theory.md, section 9)."""
    rounding = 2.0**-23 * 1000.0
    run = make_run(records=2000, batches=lethe.batches.Cyclic(1), passes=1, step_size=1.0, clip_norm=1e-9, noise_multiplier=8e6)
    smooth = run.replace(loss=lethe.losses.Convex(smoothness=1e-12))
    assert mu(smooth) == pytest.approx(np.sqrt(2000) * rounding / 0.008, rel=1e-6)
    assert mu(smooth) == pytest.approx(0.67, abs=0.004)


@pytest.mark.parametrize("design", [lethe.batches.Full(), lethe.batches.Cyclic(6), lethe.batches.Cyclic(20)])
@pytest.mark.parametrize("regulariser", [None, lethe.regularisers.L2(0.3)])
def test_no_less_than_roundings_that_all_point_one_way(
    design: lethe.batches.Cyclic | lethe.batches.Full, regulariser: lethe.regularisers.L2 | None
) -> None:
    """A linear loss: every step keeps distances, and a ridge shrinks them; each rounding adds to what the record did."""
    run = make_run(batches=design, regulariser=regulariser, loss=lethe.losses.Convex(smoothness=1e-12))
    errors = run.rounding_errors
    assert errors is not None
    shrinks = 1.0 if regulariser is None else 1.0 / (1.0 + 0.1 * regulariser.strength)
    worst = 0.0
    touched = np.zeros(run.total_steps, dtype=bool)
    for slot in range(run.steps_per_pass):
        touched = np.arange(run.total_steps) % run.steps_per_pass == slot
        worst = max(worst, exact_mu(shrinks, np.where(touched, run.sensitivities, 0.0) + errors, run.noise_stds))
    assert worst > exact_mu(shrinks, np.where(touched, run.sensitivities, 0.0), run.noise_stds) * 1.01
    assert mu(run) >= worst * (1 - 1e-12)


def test_a_mean_of_iterates_is_rounded_too() -> None:
    """Two roundings a step for the mean itself, and the iterates', of which the k-th is in all later ones."""
    run = make_run(noise_at="pass_ends", pass_weights=1.0, loss=lethe.losses.Convex(smoothness=1e-12))
    errors, precision = run.rounding_errors, run.precision
    assert errors is not None
    assert precision is not None
    shares = np.arange(10, 0, -1) / 10
    together = (shares * errors[0]).sum() + 20 * precision.rounding
    assert mu(run) - mu(run.replace(precision=None)) == pytest.approx(np.sqrt(5) * together / run.noise_stds[-1], rel=1e-6)


BOUNDED = {"regulariser": lethe.regularisers.Ball(0.05)}


def test_tangents_of_a_holder_gradient_count_rounding() -> None:
    """The search for tangents may find others; of the same ones, each rounding adds at every step from the first touch on."""
    run = make_run(**BOUNDED, loss=lethe.losses.Holder(constant=1.0, exponent=0.5))
    at = np.full(run.total_steps, 0.01)
    exact, rounded = (HolderPath(one).solve(at, None) for one in (run.replace(precision=None), run))
    errors = run.rounding_errors
    assert errors is not None
    added = rounded.sensitivity - exact.sensitivity
    assert (rounded.lipschitz > 1.0).all()
    assert added == pytest.approx(rounded.lipschitz * errors, rel=1e-9)
    assert rounded.mu > exact.mu * 1.001


STEPS = [
    (lethe.losses.WeaklyConvex(weak_convexity=5.0, smoothness=5.0, gradient_bound=1.0), 1.5),
    (lethe.losses.StronglyConvex(strong_convexity=5.0, smoothness=5.0, gradient_bound=1.0), 0.5),
]


@pytest.mark.parametrize(("loss", "constant"), STEPS, ids=["expands", "contracts"])
def test_an_error_goes_through_a_step_that_expands_and_whole_into_one_that_contracts(loss: lethe.losses.Loss, constant: float) -> None:
    """What was rounded before a step is L times as much after it; what its own gradient is off by is not made smaller."""
    run = make_run(batches=lethe.batches.Full(), loss=loss, clip_norm=None, precision={**FLOAT32, "gradient_error": 1e-3})
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
    run = make_run(batches=lethe.batches.Poisson(6), neighbours="zero_out", regulariser=lethe.regularisers.L2(0.3), precision=FLOAT32)
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
