"""The joint optimum against the shift engine, linear programming, and every noise that chance could find."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles import exact_shift
from scipy.optimize import linprog

from lethe.errors import InputError
from lethe.noise_allocation.joint.position import JointSchedule, joint_schedule
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
    found = joint_schedule(0.9 ** np.arange(49, -1, -1.0), 1, 1, diameter=diameter)  # schedules.md 12.14 and section 11
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
    reset = joint_schedule(weights, touches, factors, budget, diameter=diameters)
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
    found = joint_schedule(*run) if diameters is None else joint_schedule(*run, diameter=diameters)
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
