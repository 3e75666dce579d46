"""The relative bound of private gradient descent: its values, its best number of steps, drawn batches, and the way to true risk."""

import math
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_quadratics import exact_risk

from lethe_experiments.risk.best_steps import (
    best_steps_dynamic,
    best_steps_uniform,
    t_dyn_exact,
    t_dyn_stated,
    t_uni_exact,
    t_uni_printed,
    t_uni_stated,
)
from lethe_experiments.risk.gradient_descent import decay, erub, erub_dyn, erub_dyn_min, erub_uni, noise_to_gap
from lethe_experiments.risk.mini_batches import batch_term, printed_batch_size
from lethe_experiments.risk.noise_schedules import exp_schedule, uniform_schedule
from lethe_experiments.risk.true_risk import repetitions, ter_expectation, ter_high_probability, uniform_stability

KAPPAS = st.floats(1.0, 1e4)
ALPHAS = st.floats(1e-8, 10.0)


@given(kappa=st.floats(1.01, 1e4), alpha=ALPHAS, budget=st.floats(1e-3, 10.0), steps=st.integers(1, 60))
def test_the_closed_forms_are_the_sum(kappa: float, alpha: float, budget: float, steps: int) -> None:
    uniform = erub(kappa=kappa, alpha=alpha, budget=budget, variances=uniform_schedule(steps, budget))
    assert erub_uni(steps, kappa, alpha) == pytest.approx(uniform, rel=1e-10)
    falling = erub(kappa=kappa, alpha=alpha, budget=budget, variances=exp_schedule(1.0 - 1.0 / kappa, steps, budget))
    assert erub_dyn(steps, kappa, alpha) == pytest.approx(falling, rel=1e-9)


@given(kappa=KAPPAS, alpha=ALPHAS, steps=st.integers(1, 400), excess=st.floats(0.0, 5.0))
def test_the_order_of_the_bounds(kappa: float, alpha: float, steps: int, excess: float) -> None:
    """The best schedule is never worse than the uniform one; the minimum over T is below both; b lies where the docstring says."""
    least = erub_dyn_min(kappa, alpha)
    assert least * (1 - 1e-9) <= erub_dyn(steps, kappa, alpha) <= erub_uni(steps, kappa, alpha) * (1 + 1e-9)
    assert kappa**2 * alpha * (1 - 1e-9) <= least / (1 - least) <= 4 * kappa**2 * alpha * (1 + 1e-9) or least > 1 - 1e-6
    much = (1.0 + excess) / kappa  # for alpha >= 1/kappa neither schedule beats no step at all: the advantage printed there is none
    assert min(erub_uni(steps, kappa, much), erub_dyn(steps, kappa, much)) >= 1.0 - 1e-9


def test_one_step_ends_the_descent_at_kappa_1() -> None:
    assert erub_uni(1, 1.0, 0.2) == erub_dyn(1, 1.0, 0.2) == 0.2
    assert erub_uni(7, 1.0, 0.2) == pytest.approx(7 * 0.2)  # seven steps with a seventh of the budget each, the last one counts
    assert erub_dyn(7, 1.0, 0.2) == 0.2
    assert erub(kappa=1.0, alpha=0.2, budget=2.0, variances=[9.0, 0.5]) == 0.2
    assert erub_uni(0, 1.0, 0.2) == erub_dyn(0, 1.0, 0.2) == 1.0
    assert math.isinf(decay(1.0))
    assert best_steps_dynamic(1.0, 0.01).steps == best_steps_uniform(1.0, 0.01).steps == 1
    assert best_steps_dynamic(1.0, 0.01).value == best_steps_uniform(1.0, 0.01).value == 0.01
    assert best_steps_dynamic(1.0, 1.0).steps == best_steps_uniform(1.0, 2.0).steps == 0
    alpha = noise_to_gap(dimension=1, gradient_bound=1.0, budget=1.0, smoothness=1.0, records=10, initial_gap=0.5)
    happens = exact_risk([1.0], [1.0], [1.0], [0.1]) / 0.5  # the noise part is met
    assert erub(kappa=1.0, alpha=alpha, budget=1.0, variances=[1.0]) == pytest.approx(happens, rel=1e-12)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_it_dominates_what_happens_on_random_quadratics(data: st.DataObject) -> None:
    modes = data.draw(st.integers(1, 6))
    eigenvalues = np.array(data.draw(st.lists(st.floats(0.01, 1.0), min_size=modes, max_size=modes)))
    start = np.array(data.draw(st.lists(st.floats(-3.0, 3.0), min_size=modes, max_size=modes)))
    gap = exact_risk(eigenvalues, start, [], [])
    if gap < 1e-6:
        start, gap = start + 1.0, exact_risk(eigenvalues, start + 1.0, [], [])
    smoothness, budget, records = float(eigenvalues.max()), data.draw(st.floats(0.1, 5.0)), data.draw(st.integers(1, 300))
    kappa = smoothness / float(eigenvalues.min())
    steps = data.draw(st.integers(1, 40))
    variances = np.array(data.draw(st.lists(st.floats(0.0, 50.0), min_size=steps, max_size=steps)))
    alpha = noise_to_gap(dimension=modes, gradient_bound=1.0, budget=budget, smoothness=smoothness, records=records, initial_gap=gap)
    bound = erub(kappa=kappa, alpha=alpha, budget=budget, variances=variances)
    happens = exact_risk(eigenvalues, start, np.full(steps, 1 / smoothness), np.sqrt(variances) / (records * smoothness)) / gap
    assert happens <= bound * (1 + 1e-9) + 1e-30  # 1 - lam / M is a rounding away from 0 where it should be 0, squared


@given(kappa=st.floats(1.001, 300.0), exponent=st.floats(-6.0, 1.0), far=st.floats(1.0, 3000.0))
def test_the_whole_minimiser_is_the_one_brute_force_finds_and_the_real_one_is_a_minimum(kappa: float, exponent: float, far: float) -> None:
    alpha = 10.0**exponent
    for best, bound in ((best_steps_uniform(kappa, alpha), erub_uni), (best_steps_dynamic(kappa, alpha), erub_dyn)):
        horizon = 3 * best.steps + 40
        found = min(range(horizon), key=lambda steps, bound=bound: bound(steps, kappa, alpha))
        assert best.value == bound(best.steps, kappa, alpha) <= bound(found, kappa, alpha)
        assert best.steps == found or bound(found, kappa, alpha) == best.value
    kappa, alpha = kappa * far, alpha / far**2
    for time, bound in ((t_uni_exact(kappa, alpha), erub_uni), (t_dyn_exact(kappa, alpha), erub_dyn)):
        least = bound(time, kappa, alpha)
        assert all(least <= bound(time * factor, kappa, alpha) * (1 + 1e-9) for factor in (0.9, 0.99, 1.01, 1.1))
    assert erub_dyn(t_dyn_exact(kappa, alpha), kappa, alpha) == pytest.approx(erub_dyn_min(kappa, alpha), rel=1e-7)


@pytest.mark.parametrize(
    ("best", "printed", "bound", "kappa", "alpha", "steps", "said", "value", "said_value"),
    [
        (best_steps_uniform, t_uni_printed, erub_uni, 10.0, 1e-4, 44, 66.1, 0.0533, 0.0678),
        (best_steps_uniform, t_uni_printed, erub_uni, 100.0, 1e-6, 455, 917, 0.0554, 0.0918),
        (best_steps_uniform, t_uni_printed, erub_uni, 10.0, 1e-2, 4, 23.2, 0.794, 2.29),
        (best_steps_dynamic, t_dyn_stated, erub_dyn, 10.0, 1e-4, 63, 139, 0.0366, 0.0379),
        (best_steps_dynamic, t_dyn_stated, erub_dyn, 10.0, 1e-2, 4, 48, 0.793, 3.22),
        (best_steps_dynamic, t_dyn_stated, erub_dyn, 100.0, 1e-2, 0, 139, 1.0, 100.8),
    ],
)
def test_how_far_the_printed_and_the_stated_steps_are(
    best: Any, printed: Any, bound: Any, kappa: float, alpha: float, steps: int, said: float, value: float, said_value: float
) -> None:
    """A run takes whole steps, so the printed number is rounded up."""
    found = best(kappa, alpha)
    assert found.steps == steps
    assert found.value == pytest.approx(value, rel=2e-3)
    assert printed(kappa, alpha) == pytest.approx(said, rel=2e-3)
    assert bound(math.ceil(printed(kappa, alpha)), kappa, alpha) == pytest.approx(said_value, rel=2e-3)
    if best is best_steps_uniform:  # Eq. (25): (1 + kappa ln(1 + x)) / (1 + x), x = g / alpha
        x = decay(kappa) / alpha
        assert erub_uni(t_uni_printed(kappa, alpha), kappa, alpha) == pytest.approx((1 + kappa * math.log1p(x)) / (1 + x), rel=1e-12)
    if best is best_steps_dynamic:
        assert abs(t_dyn_exact(kappa, alpha) - steps) < 1.0  # the formula of the proof is the minimiser
        assert t_uni_stated(kappa, alpha) == math.ceil(kappa * math.log1p(1 / (kappa * alpha)))


@given(
    convexity=st.floats(0.05, 1.0), spread=st.floats(0.0, 5.0), batch=st.integers(1, 20), extra=st.integers(0, 30), steps=st.integers(1, 80)
)
def test_the_term_covers_batches_of_shifted_quadratics(convexity: float, spread: float, batch: int, extra: int, steps: int) -> None:
    """f_i = lam (theta - x_i)^2 / 2 in each of two modes: the batch noise has one variance everywhere, (N - b) / (N - 1) / b of it."""
    records = batch + extra + 1
    eigenvalues, start = np.array([convexity, 1.0]), np.array([2.0, -1.0])
    gap = exact_risk(eigenvalues, start, [], [])
    remaining = (records - batch) / (records - 1) / batch
    # One coordinate at a time: the noise of mode i is lam_i times that of the records.
    risk = sum(
        exact_risk([lam], [x], np.ones(steps), np.full(steps, lam * spread * math.sqrt(remaining)))
        for lam, x in zip(eigenvalues, start, strict=True)
    )
    variance = float(np.sum(eigenvalues**2)) * spread**2
    added = batch_term(gradient_variance=variance, pl_constant=convexity, batch_size=batch, initial_gap=gap)
    assert risk / gap <= math.exp(-decay(1.0 / convexity) * steps) + added + 1e-9


LIKELY = {"excess": 0.02, "gradient_bound": 2.0, "strong_convexity": 0.5, "records": 1000, "failure": 0.1}
STABLE = {"gradient_bound": 1.0, "step_size": 0.5, "smoothness": 2.0, "steps": 10, "records": 100}


def test_the_terms_at_a_worked_point() -> None:
    """sqrt(2 * 4 / .5) sqrt(.02) + 16 / (.1 * .5 * 1000); 2 * .5 * 10 / 100."""
    assert ter_high_probability(**LIKELY) == pytest.approx(4 * math.sqrt(0.02) + 0.32, rel=1e-12)
    assert uniform_stability(**STABLE) == pytest.approx(0.1, rel=1e-12)
    assert uniform_stability(**{**STABLE, "step_size": 1.0}) == pytest.approx(0.2)
    assert ter_expectation(excess=0.25, stability=0.1) == 0.35
    # strongly convex: 2 * .5 / 100 * (1 + .75 + .75^2 + ...), ten terms.
    assert uniform_stability(**STABLE, strong_convexity=0.5) == pytest.approx(0.01 * (1 - 0.75**10) / 0.25, rel=1e-12)
    assert uniform_stability(**STABLE, strong_convexity=2.0) == pytest.approx(0.01, rel=1e-12)  # each step forgets the last
    assert batch_term(gradient_variance=3.0, pl_constant=0.5, batch_size=20, initial_gap=2.0) == pytest.approx(0.075)
    sizes = [printed_batch_size(records=records, budget=budget) for records, budget in ((1000, 0.392704), (1000, 4.0), (1, 1e-9))]
    assert sizes == [627, 2000, 1]  # most of the data, and more than there are


@given(seed=st.integers(0, 10_000), steps=st.integers(1, 20), noise=st.floats(0.0, 0.3))
def test_two_runs_that_differ_in_one_record_stay_as_close_as_it_says(seed: int, steps: int, noise: float) -> None:
    """Means of sqrt(1 + |theta - x|^2) losses: 1-Lipschitz, 1-smooth, convex. Full-batch descent, the same noise in both runs."""
    source = np.random.default_rng(seed)
    records = source.normal(0.0, 2.0, (6, 2))
    neighbour = records.copy()
    neighbour[0] = source.normal(0.0, 2.0, 2)
    step = float(source.uniform(0.1, 2.0))

    def descend(data: np.ndarray, noises: np.ndarray) -> np.ndarray:
        theta = np.zeros(2)
        for push in noises:
            away = theta - data
            theta = theta - step * np.mean(away / np.sqrt(1 + np.sum(away**2, axis=1, keepdims=True)), axis=0) + push
        return theta

    noises = source.normal(0.0, noise, (steps, 2))
    difference = np.linalg.norm(descend(records, noises) - descend(neighbour, noises))  # times the Lipschitz constant 1
    assert difference <= uniform_stability(gradient_bound=1.0, step_size=step, smoothness=1.0, steps=steps, records=6) * (1 + 1e-9)


def test_the_stability_is_met_by_linear_losses() -> None:
    """Losses +theta and -theta: replacing one of 10 records moves theta by 2 eta / 10 a step, and its loss by as much."""
    theta, other = -0.3 * 7 * np.mean([1.0] * 10), -0.3 * 7 * np.mean([-1.0] + [1.0] * 9)
    stability = uniform_stability(gradient_bound=1.0, step_size=0.3, smoothness=1e-9, steps=7, records=10)
    assert abs(theta - other) == pytest.approx(stability, rel=1e-12)


def test_the_likely_bound_covers_every_drawing_of_two_points() -> None:
    """f = (theta - x)^2 / 2, x = +-1 with equal chance, theta in [-1, 1]: every data set of 12 records, every theta on a grid, exactly."""
    records, failure, lipschitz = 12, 0.2, 2.0
    outside = 0.0
    for ones in range(records + 1):
        mean = (2 * ones - records) / records
        for theta in np.linspace(-1.0, 1.0, 41):
            true, empirical = theta**2 / 2, (theta - mean) ** 2 / 2
            bound = ter_high_probability(excess=empirical, gradient_bound=lipschitz, strong_convexity=1.0, records=records, failure=failure)
            if true > bound:
                outside += math.comb(records, ones) / 2**records
                break
    assert outside <= failure


def test_the_repetitions_make_the_failure_rare_enough() -> None:
    assert repetitions(failure=0.1, budget=2.0).runs == 4
    assert repetitions(failure=0.1, budget=2.0).budget_each == 0.5
    assert repetitions(failure=0.9, budget=2.0).runs == 1
    for failure in (0.5, 0.3, 0.01, 1e-9):
        assert 0.5 ** repetitions(failure=failure, budget=1.0).runs <= failure
