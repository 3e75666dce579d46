"""Multi-pass and one-pass clipped descent: steps and weights, their price, the settings of the theorem, and its bound."""

import math

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import (
    QUADRATIC,
    quadratic_gradient,
)

from lethe.calculus.guarantees import GDP
from lethe.heavy_tailed import Moments, Problem, multi_pass
from lethe.heavy_tailed.one_pass import one_pass, one_pass_bound, one_pass_optimised, one_pass_practical, one_pass_theory, step_weights
from lethe.heavy_tailed.oracles import ClippedMean, ExactMean
from lethe.heavy_tailed.problem import Records
from lethe.heavy_tailed.sets import BallDomain, BoxDomain, ConvexSet, WholeSpace
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


RECORDS = np.zeros(7)


@pytest.mark.parametrize(("count", "batch"), [(7, None), (7, 3), (8, 2), (5, 5), (1, 1)])
def test_the_price_is_the_one_asked_for_whatever_the_batches(count: int, batch: int | None) -> None:
    seen: list[float] = []

    def gradient(parameters: np.ndarray, records: Records) -> np.ndarray:
        assert isinstance(records, np.ndarray)
        seen.extend(records.tolist())
        return np.ones((len(records), 2))

    problem = QUADRATIC.__class__(gradient=gradient, dimension=2, domain=QUADRATIC.domain, smoothness=1.0)
    done = multi_pass(problem, np.arange(float(count)), oracle=ClippedMean(clip_norm=1.5, rho=0.4), passes=5, batch_size=batch)
    (phase,) = done.phases
    size = batch or count
    used = count - count % size
    assert {record: seen.count(record) for record in set(seen)} == {float(record): 5 for record in range(used)}
    assert phase.steps * phase.batch_size == len(seen)
    # sum of Delta^2 / (2 sigma^2) over the steps that touch one record, from first principles
    spent = 5 * (2 * 1.5 / size) ** 2 / (2 * phase.release.noise_std**2)
    assert spent == pytest.approx(0.4, rel=1e-12)
    assert spent <= 0.4 * (1 + 1e-15)
    assert isinstance(done.fresh.guarantee, GDP)
    assert done.fresh.guarantee.mu == pytest.approx(math.sqrt(0.8), rel=1e-12)
    assert done.zcdp is not None
    assert done.zcdp.rho == pytest.approx(0.4, rel=1e-12)
    assert done.neighbours == "replace_one"


def test_seeds_repeat_and_no_seed_does_not() -> None:
    oracle = ClippedMean(clip_norm=1.0, rho=0.5)
    runs = [multi_pass(QUADRATIC, RECORDS, oracle=oracle, generator=np.random.default_rng(3)).parameters for _ in range(2)]
    assert np.array_equal(runs[0], runs[1])
    fresh = [multi_pass(QUADRATIC, RECORDS, oracle=oracle, passes=1, step_size=1e-3).parameters for _ in range(2)]
    assert not np.array_equal(fresh[0], fresh[1])
    assert np.linalg.norm(runs[0]) <= 1.0 + 1e-12


@pytest.mark.parametrize(
    ("domain", "norm"),
    [
        (BallDomain(radius=2.0), 2.0),
        (BallDomain(radius=2.0, centre=(3.0, 4.0)), 7.0),
        (BoxDomain(low=(-3.0, 0.0), high=(1.0, 4.0)), 5.0),
        (WholeSpace(), None),
    ],
)
def test_its_run_states_the_set_s_norm_and_what_a_mean_is_off_by(domain: ConvexSet, norm: float | None) -> None:
    problem = QUADRATIC.__class__(gradient=lambda w, rows: np.ones((len(rows), 2)), dimension=2, domain=domain, smoothness=1.0)
    run = multi_pass(problem, np.arange(8.0), oracle=ClippedMean(clip_norm=1.5, rho=0.4), passes=2, batch_size=4).run
    assert run is not None
    if norm is None:
        assert run.precision is None
        return
    assert run.precision is not None
    assert run.precision.dtype == "float64"
    assert run.precision.roundings == 7.0
    assert norm < run.precision.parameter_norm == pytest.approx(norm, rel=1e-9)
    assert run.precision.gradient_error == pytest.approx(2.0**-53 * (4 + 2 + 32) * 1.5, rel=1e-12, abs=0.0)
