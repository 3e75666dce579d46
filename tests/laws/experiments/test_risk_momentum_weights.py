"""Weights of momentum against the recursions they summarise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.schedules.allocation import optimal_schedule
from lethe_experiments.risk.momentum_weights import coherent_weights, debiased_weights, mom_weights, theorem_4_8_weights, turning_step

BETAS = st.floats(0.0, 0.99)


def averages(beta: float, gradients: np.ndarray) -> np.ndarray:
    """m_1..m_T by the algorithm: v <- beta v + (1 - beta) g, divided by 1 - beta^t."""
    velocity, result = np.zeros(gradients.shape[1]), []
    for t, gradient in enumerate(gradients, start=1):
        velocity = beta * velocity + (1 - beta) * gradient
        result.append(velocity / (1 - beta**t))
    return np.array(result)


def test_debiased_momentum() -> None:
    expected = [1, 1.526316, 2.070111, 2.631288]  # schedules.md 12.6, six decimals
    assert averages(0.9, np.array([[1.0], [2.0], [3.0], [4.0]]))[:, 0] == pytest.approx(expected, abs=5e-7)
    for step in range(1, 5):
        assert debiased_weights(0.9, step) @ np.arange(1.0, step + 1) == pytest.approx(expected[step - 1], abs=5e-7)


@pytest.mark.parametrize("beta", [0.0, 1e-3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("steps", [1, 2, 7, 50])
def test_weights_are_what_the_algorithm_does_to_unit_noise(beta: float, steps: int) -> None:
    outputs = averages(beta, np.eye(steps))  # row t: the weights of g_1..g_T in m_t
    for t in range(1, steps + 1):
        # 1 - beta^t of the oracle loses three digits at beta = .999.
        assert debiased_weights(beta, t) == pytest.approx(outputs[t - 1, :t], rel=1e-12)
    assert coherent_weights(beta, steps) == pytest.approx(outputs.sum(axis=0), rel=1e-12)
    gamma = 0.93
    squares = (gamma ** np.arange(steps - 1, -1, -1.0)) @ outputs**2
    assert mom_weights(gamma, beta, steps) == pytest.approx(squares, rel=1e-12)


@given(BETAS, st.integers(1, 300))
def test_an_average_has_weights_that_add_up_to_one(beta: float, step: int) -> None:
    assert debiased_weights(beta, step).sum() == pytest.approx(1.0, rel=1e-12)  # 300 roundings
    assert coherent_weights(beta, step).sum() == pytest.approx(step, rel=1e-12)  # T averages


def test_without_momentum_all_is_gradient_descent() -> None:
    assert debiased_weights(0.0, 4).tolist() == [0.0, 0.0, 0.0, 1.0]
    assert coherent_weights(0.0, 4).tolist() == [1.0] * 4
    assert mom_weights(0.5, 0.0, 4).tolist() == [0.125, 0.25, 0.5, 1.0]
    assert turning_step(0.9, 0.0) == 1


def test_exact_weights_and_their_schedule() -> None:
    # schedules.md 12.7, six decimals
    weights = mom_weights(0.95, 0.5, 5)
    assert weights == pytest.approx([0.933451, 0.475780, 0.378899, 0.336820, 0.266389], abs=5e-7)
    assert optimal_schedule(weights, 1).variances == pytest.approx([3.485949, 4.882740, 5.471485, 5.803209, 6.525421], abs=5e-7)


@pytest.mark.parametrize(("gamma", "beta", "step"), [(0.95, 0.5, 14), (0.99, 0.9, 230), (0.8, 0.3, 2), (0.7, 0.3, 1)])
def test_the_turning_step(gamma: float, beta: float, step: int) -> None:
    assert turning_step(gamma, beta) == step  # schedules.md 12.7


@given(st.floats(0.05, 0.995), BETAS)
def test_the_turning_step_is_the_last_that_qualifies(gamma: float, beta: float) -> None:
    steps = np.arange(1.0, 4000.0)
    gaps = (steps - 1) * math.log(gamma) + np.log1p(-(beta**steps)) - math.log1p(-beta)
    assume(np.abs(gaps[1:]).min() > 1e-11)  # not a tie that rounding may turn
    gaps[0] = 0.0  # by definition; it is not always what rounding leaves
    assert turning_step(gamma, beta) == np.flatnonzero(gaps >= 0)[-1] + 1


@pytest.mark.slow
@given(st.floats(0.3, 0.999), st.floats(0.0, 0.999), st.integers(1, 200))
def test_the_corrected_weights_of_theorem_4_8_are_an_upper_bound(gamma: float, beta: float, steps: int) -> None:
    assume(beta < gamma)
    assume(gamma**steps > 1e-140)
    assert np.all(theorem_4_8_weights(gamma, beta, steps) >= mom_weights(gamma, beta, steps) * (1 - 1e-12))  # roundings


@pytest.mark.slow
def test_no_cancellation_where_gamma_is_near_beta_squared() -> None:
    gamma, beta, steps = 0.99, 0.99 - 1e-9, 2000  # gamma - beta^2 = .01, and the turn comes at step 1
    turn = turning_step(gamma, beta)
    assert turn < steps
    exact = [gamma ** (2 * turn - 3 + n) * math.fsum((beta * beta / gamma) ** k for k in range(n)) for n in range(steps - turn, 0, -1)]
    assert theorem_4_8_weights(gamma, beta, steps)[turn:] == pytest.approx(exact, rel=1e-11)  # powers of up to 3000


def test_what_doubles_cannot_hold_is_refused() -> None:
    for call in (mom_weights, theorem_4_8_weights):
        with pytest.raises(InputError, match="the weight of step 1"):
            call(0.5, 0.3, 2000)
    assert mom_weights(1.0, 0.5, 2000).min() > 0.0


def test_theorem_4_8_has_conditions() -> None:
    with pytest.raises(InputError, match=r"\[0, gamma\) = \[0, 0.5\)"):
        theorem_4_8_weights(0.5, 0.5, 3)
    with pytest.raises(InputError, match="corrected or printed"):
        theorem_4_8_weights(0.5, 0.1, 3, form="paper")  # pyright: ignore[reportArgumentType]
