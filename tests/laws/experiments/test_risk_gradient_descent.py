"""The relative bound of private gradient descent: values, domination of what happens, and refusals."""

import math

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_quadratics import exact_risk

from lethe.run.schedules.allocation import optimal_schedule
from lethe_experiments.risk.gradient_descent import decay, erub, erub_dyn, erub_dyn_min, erub_uni, noise_to_gap
from lethe_experiments.risk.noise_schedules import exp_schedule, uniform_schedule

KAPPAS = st.floats(1.0, 1e4)
ALPHAS = st.floats(1e-8, 10.0)


def test_alpha_at_a_worked_point() -> None:
    """60 * 16 / (2 R 10 10^6 2.3), R twice the rho of (4, 1e-8) by the simple conversion."""
    log = math.log(1e8)
    budget = 2.0 * (math.sqrt(4.0 + log) - math.sqrt(log)) ** 2
    alpha = noise_to_gap(dimension=60, gradient_bound=4.0, budget=budget, smoothness=10.0, records=1000, initial_gap=2.3)
    assert alpha == pytest.approx(60 * 16 / (2 * budget * 10 * 1e6 * 2.3), rel=1e-12)
    assert alpha == pytest.approx(5.314329e-05, rel=1e-6)


def test_the_closed_forms_at_a_worked_point() -> None:
    assert erub_uni(20, 10.0, 1e-3) == pytest.approx(0.297261, abs=5e-7)
    assert erub_dyn(20, 10.0, 1e-3) == pytest.approx(0.282668, abs=5e-7)
    assert erub_dyn_min(10.0, 1e-3) == pytest.approx(0.275224, abs=5e-7)


@pytest.mark.slow
@given(kappa=st.floats(1.01, 1e4), alpha=ALPHAS, budget=st.floats(1e-3, 10.0), steps=st.integers(1, 60))
def test_the_closed_forms_are_the_sum(kappa: float, alpha: float, budget: float, steps: int) -> None:
    uniform = erub(kappa=kappa, alpha=alpha, budget=budget, variances=uniform_schedule(steps, budget))
    assert erub_uni(steps, kappa, alpha) == pytest.approx(uniform, rel=1e-10)
    falling = erub(kappa=kappa, alpha=alpha, budget=budget, variances=exp_schedule(1.0 - 1.0 / kappa, steps, budget))
    assert erub_dyn(steps, kappa, alpha) == pytest.approx(falling, rel=1e-9)


@given(kappa=KAPPAS, alpha=ALPHAS, steps=st.integers(0, 400))
def test_the_order_of_the_bounds(kappa: float, alpha: float, steps: int) -> None:
    """The best schedule is never worse than the uniform one; the minimum over T is below both; b lies where the docstring says."""
    least = erub_dyn_min(kappa, alpha)
    assert least * (1 - 1e-9) <= erub_dyn(steps, kappa, alpha) <= erub_uni(steps, kappa, alpha) * (1 + 1e-9)
    assert kappa**2 * alpha * (1 - 1e-9) <= least / (1 - least) <= 4 * kappa**2 * alpha * (1 + 1e-9) or least > 1 - 1e-6


@given(steps=st.integers(1, 500), excess=st.floats(0.0, 5.0), kappa=KAPPAS)
def test_with_much_noise_no_training_is_best(steps: int, excess: float, kappa: float) -> None:
    """For alpha >= 1/kappa neither schedule beats no step at all, at any whole number of steps: the advantage printed there is none."""
    alpha = (1.0 + excess) / kappa
    assert erub_uni(steps, kappa, alpha) >= 1.0 - 1e-9
    assert erub_dyn(steps, kappa, alpha) >= 1.0 - 1e-9


def test_one_step_ends_the_descent_at_kappa_1() -> None:
    assert erub_uni(1, 1.0, 0.2) == erub_dyn(1, 1.0, 0.2) == 0.2
    assert erub_uni(7, 1.0, 0.2) == pytest.approx(7 * 0.2)  # seven steps with a seventh of the budget each, the last one counts
    assert erub_dyn(7, 1.0, 0.2) == 0.2
    assert erub(kappa=1.0, alpha=0.2, budget=2.0, variances=[9.0, 0.5]) == 0.2
    assert erub_uni(0, 1.0, 0.2) == erub_dyn(0, 1.0, 0.2) == 1.0
    assert math.isinf(decay(1.0))


@pytest.mark.slow
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


def test_the_noise_part_is_met_where_one_step_ends_the_descent() -> None:
    alpha = noise_to_gap(dimension=1, gradient_bound=1.0, budget=1.0, smoothness=1.0, records=10, initial_gap=0.5)
    happens = exact_risk([1.0], [1.0], [1.0], [0.1]) / 0.5
    assert erub(kappa=1.0, alpha=alpha, budget=1.0, variances=[1.0]) == pytest.approx(happens, rel=1e-12)


def test_the_worked_quadratic() -> None:
    """lam = (.1, .5, 1), start (1, 1, 1), G = 1, N = 100, R = .4, T = 30, step 1: alpha, the exact risk of three schedules, the bound."""
    eigenvalues, start, budget, steps = np.array([0.1, 0.5, 1.0]), np.ones(3), 0.4, 30
    gap = exact_risk(eigenvalues, start, [], [])
    alpha = noise_to_gap(dimension=3, gradient_bound=1.0, budget=budget, smoothness=1.0, records=100, initial_gap=gap)
    left = np.arange(steps - 1, -1, -1)
    influence = 0.5 * np.sum(eigenvalues[:, None] * (1 - eigenvalues[:, None]) ** (2.0 * left), axis=0)
    falling = exp_schedule(0.9, steps, budget)
    schedules = (uniform_schedule(steps, budget), falling, optimal_schedule(influence, budget).variances)
    risks = [exact_risk(eigenvalues, start, np.ones(steps), np.sqrt(variances) / 100) / gap for variances in schedules]
    assert alpha == pytest.approx(4.6875e-04, rel=1e-12)
    assert risks == pytest.approx([1.038748e-02, 5.811348e-03, 2.900257e-03], rel=5e-7)
    assert erub(kappa=10.0, alpha=alpha, budget=budget, variances=falling) == pytest.approx(1.546405e-01, rel=5e-7)
