"""Sharing a budget among steps: printed values, exact budgets, and no share that does less harm."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.conversions import zcdp_rho_simple
from lethe.run.schedules.allocation import optimal_schedule
from lethe_experiments.risk.noise_schedules import exp_schedule, uniform_schedule

POSITIVE = st.floats(1e-6, 1e6)


def spent(variances: np.ndarray, costs: np.ndarray | None = None) -> Fraction:
    """The sum of a^2 / sigma^2, exactly."""
    paid = np.ones(variances.size) if costs is None else costs
    return sum((Fraction(a) ** 2 / Fraction(v) for a, v in zip(paid.tolist(), variances.tolist(), strict=True) if a > 0), Fraction(0))


def test_exponential_schedules() -> None:
    # schedules.md 12.3, six decimals; its second line lists standard deviations.
    assert exp_schedule(0.9, 5, 1) == pytest.approx([5.570986, 5.285101, 5.013887, 4.756591, 4.512498], abs=5e-7)
    budget = 2 * zcdp_rho_simple(4, 1e-8)  # .392704 as printed
    long = np.sqrt(exp_schedule(0.98, 100, budget))
    assert long[[0, -1]] == pytest.approx([20.926605, 12.692412], abs=5e-7)
    assert math.sqrt(uniform_schedule(100, budget)[0]) == pytest.approx(15.957597, abs=5e-7)


@pytest.mark.parametrize("gamma", [1e-300, 0.2, 0.9, 0.999, 1 - 2**-53])
def test_the_exponential_schedule_is_the_optimal_one_for_its_weights(gamma: float) -> None:
    steps = 2 if gamma < 0.1 else 60
    best = optimal_schedule(gamma ** np.arange(steps - 1, -1, -1.0), 3.0)
    assert exp_schedule(gamma, steps, 3.0) == pytest.approx(best.variances, rel=1e-12)  # a few roundings of exponents up to 345


def test_ends_of_the_range() -> None:
    assert exp_schedule(1.0, 7, 2.0).tolist() == uniform_schedule(7, 2.0).tolist() == [3.5] * 7
    assert exp_schedule(0, 1, 4).tolist() == [0.25]


@pytest.mark.slow
@given(st.lists(st.tuples(POSITIVE, POSITIVE | st.just(0.0)), min_size=1, max_size=40), POSITIVE)
def test_the_budget_is_spent_and_never_exceeded(steps: list[tuple[float, float]], budget: float) -> None:
    weights, costs = np.array(steps).T
    best = optimal_schedule(weights, budget, costs)
    total = spent(best.variances, costs)
    assert total <= Fraction(budget)
    assert np.all(best.variances[costs == 0] == 0)
    if costs.any():
        assert total >= Fraction(budget) * (1 - Fraction(1, 10**14))  # the documented rounding up is a few 1e-15
        assert budget * (weights @ best.variances) == pytest.approx(best.value, rel=1e-12)  # at most 40 roundings
        assert best.value == pytest.approx(np.sum(costs * np.sqrt(weights)) ** 2, rel=1e-12)  # the same
    else:
        assert best.value == 0.0


@given(st.integers(1, 10**4), st.floats(1e-8, 1e8), st.floats(0.995, 1.0))
def test_closed_forms_never_exceed_the_budget(steps: int, budget: float, gamma: float) -> None:
    uniform = uniform_schedule(steps, budget)
    assert steps / Fraction(uniform[0]) <= Fraction(budget) < steps / Fraction(math.nextafter(uniform[0], 0.0))
    short = min(steps, 50)
    assert spent(exp_schedule(gamma, short, budget)) <= Fraction(budget)


def test_the_value_is_the_convex_optimum() -> None:
    """Against a general solver, which knows nothing of the closed form: in x = log variance the problem has one stationary point."""
    from scipy.optimize import minimize

    generator = np.random.default_rng(5)
    for _ in range(5):
        weights, costs = generator.lognormal(0, 1, 6), generator.lognormal(0, 1, 6)
        found = minimize(lambda x, w=weights, a=costs: np.log((w @ np.exp(x)) * np.sum(a**2 * np.exp(-x))), np.zeros(6), method="BFGS")
        assert math.exp(found.fun) == pytest.approx(optimal_schedule(weights, 1.0, costs).value, rel=1e-8)  # the solver's accuracy
