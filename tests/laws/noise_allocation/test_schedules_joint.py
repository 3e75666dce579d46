"""The joint optimum against the shift engine, linear programming, and every noise that chance could find."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import exact_shift
from scipy.optimize import linprog

from lethe.errors import InputError
from lethe.noise_allocation.joint.position import JointSchedule, joint_schedule, joint_schedule_reset
from lethe.run.schedules.allocation import optimal_schedule
from lethe.theorems.shift import engine as shift

Instance = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def instance(seed: int, longest: int = 9) -> Instance:
    """q, s, L, D: steps that expand, contract or forget, untouched ones, diameters that bind or do not."""
    generator = np.random.default_rng(seed)
    steps = int(generator.integers(1, longest + 1))
    weights = generator.lognormal(0, 1, steps)
    touches = generator.lognormal(0, 1, steps) * (generator.random(steps) < 0.7)
    factors = generator.uniform(0.4, 1.6, steps) * (generator.random(steps) < 0.9)
    diameters = np.where(generator.random(steps) < 0.7, generator.lognormal(0, 1, steps), np.inf)
    return weights, touches, factors, diameters


def squared_mu(variances: np.ndarray, touches: np.ndarray, factors: np.ndarray, diameters: np.ndarray | None = None) -> float:
    return shift.solve(factors, touches, np.sqrt(variances), diameters).mu ** 2


def cheapest_payments(roots: np.ndarray, touches: np.ndarray, factors: np.ndarray, start: float = 0.0) -> float:
    """The least sum of a sqrt(q), by linear programming over payments and shifts (a_1..a_T, z_1..z_{T-1})."""
    steps = roots.size
    balance, right = np.zeros((steps, 2 * steps - 1)), np.array(touches)
    for t in range(steps):
        balance[t, t] = 1.0
        if t < steps - 1:
            balance[t, steps + t] = 1.0
        if t > 0:
            balance[t, steps + t - 1] = -factors[t]
    right[0] += factors[0] * start
    found = linprog(np.concatenate((roots, np.zeros(steps - 1))), A_eq=balance, b_eq=right, method="highs")
    assert found.success
    return float(found.fun)


def check_feasible(found: JointSchedule, run: Instance, budget: float, diameters: np.ndarray | None) -> None:
    weights, touches, factors, _ = run
    assert squared_mu(found.variances, touches, factors, diameters) <= budget * (1 + 1e-13)  # the engine rounds up by 16 (T + 8) / 2^53
    assert found.value == pytest.approx(budget * (weights @ found.variances), rel=1e-12, abs=0.0)  # roundings of a dozen steps
    assert found.value == pytest.approx((found.payments @ np.sqrt(weights)) ** 2, rel=1e-12, abs=0.0)


@pytest.mark.parametrize(("diameter", "value", "window"), [(5, 36.0, 49), (20, 327.171, 0), (1e9, 327.171, 0), (math.inf, 327.171, 0)])
def test_printed_values_on_a_bounded_domain(diameter: float, value: float, window: int) -> None:
    found = joint_schedule_reset(0.9 ** np.arange(49, -1, -1.0), 1, 1, diameter)  # schedules.md 12.14 and section 11
    assert found.value == pytest.approx(value, abs=5e-4)
    assert found.window == window


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(80))
def test_the_optimum_is_feasible_and_the_linear_programme_s(seed: int) -> None:
    run = weights, touches, factors, diameters = instance(seed)
    budget = 10.0 ** (seed % 5 - 2)
    found = joint_schedule(weights, touches, factors, budget)
    check_feasible(found, run, budget, None)
    assert math.sqrt(found.value) == pytest.approx(cheapest_payments(np.sqrt(weights), touches, factors), rel=1e-9, abs=1e-12)
    reset = joint_schedule_reset(weights, touches, factors, diameters, budget)
    check_feasible(reset, run, budget, diameters)
    tracked, best = 0.0, math.inf
    for t in range(weights.size):
        if t:
            tracked = min(diameters[t - 1], factors[t - 1] * tracked + touches[t - 1])
        best = min(best, cheapest_payments(np.sqrt(weights[t:]), touches[t:], factors[t:], tracked))
    assert math.sqrt(reset.value) == pytest.approx(best, rel=1e-9, abs=1e-12)  # what the solver promises
    assert np.all(reset.variances[: reset.window] == 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(60))
def test_the_budget_is_never_exceeded_in_exact_arithmetic(seed: int) -> None:
    weights, touches, factors, _ = instance(seed + 500, longest=30)
    touches[-1] += 0.1  # the oracle needs noise at the last step
    found = joint_schedule(weights, touches, factors)
    exact = exact_shift(factors, touches, np.sqrt(found.variances))
    assert 1 - Fraction(1, 10**13) <= exact <= 1  # the documented rounding up, over 30 steps


@given(st.integers(0, 10**6), st.lists(st.floats(-2, 2), min_size=9, max_size=9), st.floats(1e-3, 1e3))
def test_units_do_not_matter(seed: int, powers: list[float], budget: float) -> None:
    """Measure the iterate after step t in other units g_t: s_t g_t, L_t g_t / g_{t-1}, q_t / g_t^2 describe the same problem."""
    weights, touches, factors, _ = instance(seed)
    units = 10.0 ** np.array(powers[: weights.size])
    before = np.concatenate(([1.0], units[:-1]))
    found = joint_schedule(weights, touches, factors, budget)
    other = joint_schedule(weights / units**2, touches * units, factors * units / before, budget)
    assert other.value == pytest.approx(found.value, rel=1e-11)
    assert other.value == pytest.approx(joint_schedule(weights, touches, factors).value, rel=1e-11)  # and the budget does not either


@given(st.integers(0, 10**6))
def test_laws(seed: int) -> None:
    weights, touches, factors, diameters = instance(seed, longest=30)
    found = joint_schedule(weights, touches, factors)
    # Payments at once are feasible, so composition is never better; nor is going without the diameter.
    assert found.value <= optimal_schedule(weights, 1.0, touches).value * (1 + 1e-11)
    assert joint_schedule_reset(weights, touches, factors, diameters).value <= found.value * (1 + 1e-11)
    assert joint_schedule(weights, touches, 1.1 * factors).value >= found.value * (1 - 1e-11)
    assert joint_schedule(weights, 2 * touches, factors).value == pytest.approx(4 * found.value, rel=1e-11)
    assert joint_schedule(2 * weights, touches, factors).value == pytest.approx(2 * found.value, rel=1e-11)


@given(st.integers(0, 10**6))
def test_payments_bring_the_shift_to_zero(seed: int) -> None:
    weights, touches, factors, _ = instance(seed, longest=40)
    found = joint_schedule(weights, touches, factors)
    left = Fraction(0)
    for paid, touch, factor in zip(found.payments.tolist(), touches.tolist(), factors.tolist(), strict=True):
        arriving = Fraction(factor) * left + Fraction(touch)
        if paid > 0.0:
            assert arriving <= paid <= arriving * (1 + Fraction(1, 10**13))  # rounded up, over 40 steps
        left = Fraction(0) if paid > 0.0 else arriving
    assert left == 0
    assert np.array_equal(found.payments > 0, found.variances > 0)


@pytest.mark.parametrize(
    ("touches", "factors", "diameters", "payments", "window"),
    [
        ([5.0, 1.0, 0.0], [1.0, 0.0, 1.0], None, [0.0, 1.0, 0.0], 0),  # the second step forgets
        ([5.0, 0.0], [1.0, 0.0], None, [0.0, 0.0], 0),
        (0.0, 1.0, None, [0.0, 0.0], 0),
        ([1e308, 1e308, 1.0], [1.0, 1.0, 0.0], math.inf, [0.0, 0.0, 1.0], 0),  # an infinite distance that is forgotten costs nothing
        (1.0, 1.0, 0.0, [0.0, 0.0, 1.0], 2),  # nothing can be apart after step 2
        (1.0, 1.0, [9.0, 0.5, 9.0, 9.0], [0.0, 0.0, 1.5, 1.0], 2),  # .5 left after step 2, and two touches
    ],
)
def test_what_is_forgotten_is_not_paid(touches: Any, factors: Any, diameters: Any, payments: list[float], window: int) -> None:
    run = np.ones(len(payments)), touches, factors
    found = joint_schedule(*run) if diameters is None else joint_schedule_reset(*run, diameters)
    assert found.payments == pytest.approx(payments, rel=1e-14, abs=0)
    assert found.window == window
    assert np.array_equal(found.payments > 0, found.variances > 0)


@pytest.mark.parametrize("lipschitz", [0.9, 0.99999, 1.0, 1.01])
def test_long_runs(lipschitz: float) -> None:
    steps = 20_000
    weights = 0.9999 ** np.arange(steps - 1, -1, -1.0)
    found = joint_schedule(weights, 1, lipschitz, 0.5)
    assert squared_mu(found.variances, np.ones(steps), np.full(steps, lipschitz)) <= 0.5 * (1 + 1e-9)
    expected = ((1 - lipschitz**steps) / (1 - lipschitz)) ** 2 if lipschitz == 0.9 else optimal_schedule(weights, 1.0).value
    assert found.value == pytest.approx(expected, rel=1e-11)


def test_what_doubles_cannot_hold_is_refused() -> None:
    one_touch = np.eye(1, 2000)[0]
    with pytest.raises(InputError, match="the shift to be paid at step 2000"):
        joint_schedule(np.ones(2000), one_touch, 0.5)  # 2^-1999
    with pytest.raises(InputError, match="the shift to be paid at step 2 would be inf"):
        joint_schedule([1.0, 1e-300], 1e308, 1.0)
    with pytest.raises(InputError, match="the squared sum of costs"):
        joint_schedule([1.0, 1.0], 1e200, 1.0)
    # Where it does not matter, what was forgotten almost completely is no obstacle.
    found = joint_schedule(np.ones(2000), one_touch + one_touch[::-1], 0.5)
    assert found.value == pytest.approx(1.0, rel=1e-12)
