"""One-pass clipped SGD: steps and weights, the settings of the theorem, and its bound against what it does."""

import math

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import (
    QUADRATIC,
    quadratic_gap,
    quadratic_gradient,
)

from lethe.calculus.guarantees import GDP
from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.one_pass import one_pass, one_pass_bound, one_pass_optimised, one_pass_practical, one_pass_theory, step_weights
from lethe.heavy_tailed.oracles import ClippedMean, ExactMean
from lethe.heavy_tailed.settings import gradient_errors
from lethe.heavy_tailed.shuffled_oracles import ShuffledClippedMean


def test_steps_and_weights_at_the_worked_points() -> None:
    steps, weights = step_weights(6, 0.5, 4.0)
    assert steps == pytest.approx(np.full(7, 0.25))
    assert weights * 2.546500 == pytest.approx([1.142857, 1.306122, 1.492711, 1.705956, 1.949664, 2.228187, 2.546500], rel=1e-6)
    steps, weights = step_weights(12, 0.5, 4.0)
    assert steps == pytest.approx([0.25] * 7 + [0.235294, 0.222222, 0.210526, 0.2, 0.190476, 0.181818], abs=5e-7)
    assert weights * 22 == pytest.approx([0.0] * 6 + [16, 17, 18, 19, 20, 21, 22])
    steps, weights = step_weights(10**6, 1e-8, 1.0)
    assert np.isfinite(weights).all()
    assert step_weights(0, 2.0, 2.0)[1] == pytest.approx([1.0])


@settings(max_examples=examples(100), deadline=None)
@given(
    last=st.integers(1, 300), ratio=st.floats(1.0, 200.0), noise=st.floats(0.0, 5.0), drift=st.floats(0.0, 1.0), seed=st.integers(0, 10**6)
)
def test_no_sequence_of_the_recursion_exceeds_the_bound(last: int, ratio: float, noise: float, drift: float, seed: int) -> None:
    """r' <= (1 - a eta) r - 2 eta s + c eta^2 + e eta with r' >= 0 and s >= 0: random and greedy adversaries."""
    mu, beta = 1.0, ratio
    steps, weights = step_weights(last, mu / 2, beta)
    rng = np.random.default_rng(seed)
    variance, bias = noise, drift
    for greed in (0.0, 1.0, rng.random()):
        r, paid = 4.0, []
        for length in steps:
            most = (1 - mu / 2 * length) * r + 2 * length**2 * variance + 4 * length * bias**2 / mu
            spend = most * (greed if rng.random() < 0.9 else rng.random())
            paid.append(spend / (2 * length))
            r = most - spend
        bound = one_pass_bound(last + 1, beta, mu, 2.0, bias, variance)
        if last <= 2 * ratio or greed > 0.0 or r >= 0.0:
            assert float(weights @ np.array(paid) / weights.sum()) <= bound * (1 + 1e-9)


def test_the_noiseless_run_at_the_worked_point() -> None:
    done = one_pass(QUADRATIC, np.zeros(61), oracle=ExactMean(), steps=61, start=[-1.0, 0.0])
    assert done.parameters == pytest.approx([0.2841094, 0.1000000], abs=1e-7)
    assert quadratic_gap(done.parameters) == pytest.approx(1.262559e-4, rel=1e-5)


def test_the_price_and_the_batches() -> None:
    """61 rounds of 200 records: batches of 3, not of 200 // 60; the noise from the real size."""
    done = one_pass(QUADRATIC, np.zeros(200), oracle=ClippedMean(clip_norm=2.0, rho=0.5), steps=61)
    (phase,) = done.phases
    assert (phase.batch_size, phase.touches, phase.stop, phase.steps) == (3, 1, 183, 61)
    assert phase.release.noise_std == pytest.approx(4.0 / 3.0)
    assert (2 * 2.0 / 3) ** 2 / (2 * phase.release.noise_std**2) <= 0.5
    assert isinstance(done.fresh.guarantee, GDP)
    assert done.fresh.guarantee.mu == pytest.approx(1.0)
    assert np.linalg.norm(done.parameters) <= 1.0 + 1e-12
    quiet = one_pass(QUADRATIC, np.zeros(200), oracle=ClippedMean(clip_norm=1e9, rho=math.inf), steps=61)
    assert quiet.parameters == pytest.approx(one_pass(QUADRATIC, np.zeros(200), oracle=ExactMean(), steps=61).parameters)
    mixed = one_pass(QUADRATIC, np.zeros(200), oracle=ShuffledClippedMean(clip_norm=1.0, epsilon=2.0, delta=1e-4), steps=4)
    assert mixed.fresh.guarantee.epsilon(1e-4) == 2.0


def test_records_are_in_one_batch_each() -> None:
    seen: list[float] = []

    def gradient(parameters: np.ndarray, records: np.ndarray) -> np.ndarray:
        seen.extend(records.tolist())
        return np.zeros((len(records), 2))

    problem = Problem(gradient=gradient, dimension=2, smoothness=5.0, strong_convexity=1.0)  # pyright: ignore[reportArgumentType]
    one_pass(problem, np.arange(11.0), oracle=ClippedMean(clip_norm=1.0, rho=1.0), steps=4)
    assert seen == [float(record) for record in range(8)]


def _stated(kappa: float, second: float, dimension: int) -> Problem:
    moments = Moments(order=2, bound=second)
    domain = BallDomain(radius=1.0)
    return Problem(gradient=quadratic_gradient, dimension=dimension, domain=domain, smoothness=kappa, strong_convexity=1.0, moments=moments)


def test_the_theorem_s_settings() -> None:
    plan = one_pass_theory(_stated(5.0, 3.0, 10), 20_000, 0.5)
    assert plan.steps == 265
    assert plan.clip_norm == pytest.approx(59.188219, rel=1e-7)
    assert plan.notes == ()
    short = one_pass_theory(_stated(144.7648, 3.0, 10), 1000, 0.5)
    assert short.steps == 1000
    assert "7842." in short.notes[0] or "7843" in short.notes[0]
    assert "does not apply" in short.notes[0]


@pytest.mark.slow
def test_the_optimised_bound_is_the_smallest() -> None:
    problem = _stated(5.0, 3.0, 10)
    best = one_pass_optimised(problem, 20_000, 0.5)
    assert best.bound <= min(one_pass_theory(problem, 20_000, 0.5).bound, one_pass_practical(problem, 20_000, 0.5).bound)
    for rounds in (best.steps // 2, best.steps, 2 * best.steps):
        for factor in (0.5, 0.9, 1.1, 2.0):
            errors = gradient_errors(problem, batch_size=20_000 // rounds, clip_norm=best.clip_norm * factor, rho=0.5)
            assert one_pass_bound(rounds, 5.0, 1.0, 2.0, errors.bias, errors.variance) >= best.bound * 0.98  # of the grid's spacing
    practical = one_pass_practical(problem, 20_000, 0.5)
    assert (practical.steps, practical.clip_norm) == (30, 3.0)
    assert practical.oracle == ClippedMean(clip_norm=3.0, rho=0.5)
