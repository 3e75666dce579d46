"""The noise part under momentum, against its double sum, and the printed upper bounds of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.schedules.allocation import optimal_schedule
from lethe_experiments.risk.momentum import best_u3, u3, u3_short_bound, u3_uniform, u3_uniform_bound
from lethe_experiments.risk.momentum_weights import mom_weights, turning_step

GAMMAS = st.floats(0.3, 0.999)
BETAS = st.floats(0.01, 0.99)


def _double_sum(gamma: float, beta: float, variances: np.ndarray) -> float:
    total = 0.0
    for t in range(1, variances.size + 1):
        inner = sum(beta ** (2 * (t - i)) * variances[i - 1] for i in range(1, t + 1))
        total += gamma ** (variances.size - t) * ((1 - beta) / (1 - beta**t)) ** 2 * inner
    return total


@pytest.mark.slow
@given(gamma=GAMMAS, beta=BETAS, variances=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=25))
def test_it_is_the_double_sum(gamma: float, beta: float, variances: list[float]) -> None:
    array = np.array(variances)
    assert u3(gamma=gamma, beta=beta, variances=variances) == pytest.approx(_double_sum(gamma, beta, array), rel=1e-10)
    uniform = _double_sum(gamma, beta, np.ones(array.size))
    assert u3_uniform(gamma=gamma, beta=beta, steps=array.size) == pytest.approx(uniform, rel=1e-10)


@pytest.mark.parametrize(("steps", "exact", "bound"), [(10, 3.375870, 6.302494), (20, 4.696778, 8.002720), (60, 6.413512, 9.975875)])
def test_theorem_4_7_at_worked_points(steps: int, exact: float, bound: float) -> None:
    assert u3_uniform(gamma=0.95, beta=0.5, steps=steps) == pytest.approx(exact, abs=5e-7)
    assert u3_uniform_bound(gamma=0.95, beta=0.5, steps=steps) == pytest.approx(bound, abs=5e-7)


@given(gamma=GAMMAS, beta=BETAS, steps=st.integers(1, 300))
def test_theorem_4_7_holds(gamma: float, beta: float, steps: int) -> None:
    exact = u3_uniform(gamma=gamma, beta=beta, steps=steps)
    assert exact <= u3_uniform_bound(gamma=gamma, beta=beta, steps=steps) * (1 + 1e-9)


@pytest.mark.slow
@given(gamma=st.floats(0.8, 0.999), beta=BETAS, steps=st.integers(1, 200))
def test_the_best_schedule_is_best_and_the_short_bound_is_one(gamma: float, beta: float, steps: int) -> None:
    least = best_u3(gamma=gamma, beta=beta, steps=steps)
    chosen = optimal_schedule(mom_weights(gamma, beta, steps), 1.0).variances
    assert u3(gamma=gamma, beta=beta, variances=chosen) == pytest.approx(least, rel=1e-9)
    assert least <= steps * u3_uniform(gamma=gamma, beta=beta, steps=steps) * (1 + 1e-9)
    if steps <= turning_step(gamma, beta):
        assert least <= u3_short_bound(gamma=gamma, beta=beta, steps=steps) * (1 + 1e-9)
        # Its own schedule, sigma_t^2 proportional to gamma^(-t/2), stays below it too.
        rising = optimal_schedule(gamma ** np.arange(1.0, steps + 1.0), 1.0).variances
        assert u3(gamma=gamma, beta=beta, variances=rising) <= u3_short_bound(gamma=gamma, beta=beta, steps=steps) * (1 + 1e-9)


def test_the_short_bound_is_refused_beyond_its_range() -> None:
    turn = turning_step(0.95, 0.5)
    u3_short_bound(gamma=0.95, beta=0.5, steps=turn)
    with pytest.raises(InputError, match="up to 14 steps"):
        u3_short_bound(gamma=0.95, beta=0.5, steps=turn + 1)
