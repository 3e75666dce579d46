"""The corrected bound of momentum, against exact noisy quadratics; its condition; its closed forms."""

import math

import numpy as np
import pytest
from how_many import examples
from hypothesis import given
from hypothesis import strategies as st
from noisy_quadratics import exact_momentum

from lethe.errors import HypothesisError
from lethe.run.schedules.allocation import optimal_schedule
from lethe_experiments.risk.gradient_descent import noise_to_gap
from lethe_experiments.risk.momentum_risk import (
    erub_momentum,
    erub_momentum_4_8,
    erub_momentum_dyn,
    erub_momentum_short,
    erub_momentum_uni,
    largest_relative_step,
    momentum_rate,
    momentum_slack,
)
from lethe_experiments.risk.momentum_weights import mom_weights, turning_step
from lethe_experiments.risk.noise_schedules import uniform_schedule

KAPPAS = st.floats(1.0, 500.0)
BETAS = st.floats(0.01, 0.95)


@pytest.mark.slow
@given(kappa=KAPPAS, beta=BETAS)
def test_the_largest_step_is_where_the_slack_ends(kappa: float, beta: float) -> None:
    largest = largest_relative_step(kappa=kappa, beta=beta)
    assert 0 < largest < 2
    assert momentum_slack(kappa=kappa, beta=beta, relative_step=largest) >= 0
    assert momentum_slack(kappa=kappa, beta=beta, relative_step=largest * (1 + 1e-9)) < 0
    gamma = momentum_rate(kappa=kappa, relative_step=largest)
    drift = beta * gamma / ((gamma - beta) ** 2 * (1 - beta) ** 3)
    assert beta < gamma
    assert largest == pytest.approx(4 / (1 + math.sqrt(1 + 16 * drift)), rel=1e-6)


@pytest.mark.slow
@given(kappa=KAPPAS, beta=BETAS, share=st.floats(0.01, 1.0), alpha=st.floats(0.0, 1.0), steps=st.integers(1, 60))
def test_the_closed_forms_are_the_bound_at_their_schedules(kappa: float, beta: float, share: float, alpha: float, steps: int) -> None:
    step = share * largest_relative_step(kappa=kappa, beta=beta)
    gamma = momentum_rate(kappa=kappa, relative_step=step)
    common = {"kappa": kappa, "beta": beta, "relative_step": step, "alpha": alpha}
    uniform = erub_momentum(**common, budget=0.3, variances=uniform_schedule(steps, 0.3))
    assert erub_momentum_uni(steps, **common) == pytest.approx(uniform, rel=1e-9)
    chosen = optimal_schedule(mom_weights(gamma, beta, steps), 0.3).variances
    dynamic = erub_momentum_dyn(steps, **common)
    assert dynamic == pytest.approx(erub_momentum(**common, budget=0.3, variances=chosen), rel=1e-9)
    assert dynamic <= uniform * (1 + 1e-9)
    assert dynamic <= erub_momentum_4_8(steps, **common) * (1 + 1e-9)
    if steps <= turning_step(gamma, beta):
        assert dynamic <= erub_momentum_short(steps, **common) * (1 + 1e-9)


def test_a_step_too_long_is_refused_with_the_longest_allowed() -> None:
    largest = largest_relative_step(kappa=10.0, beta=0.5)
    with pytest.raises(HypothesisError, match=f"at most {largest:.6g}"):
        erub_momentum_uni(5, kappa=10.0, beta=0.5, relative_step=1.01 * largest, alpha=0.1)
    assert momentum_slack(kappa=1.0, beta=0.9, relative_step=1.0) == -math.inf  # beta above the decay of the gap
    with pytest.raises(HypothesisError, match="shorter steps or less momentum"):
        erub_momentum(kappa=1.0, beta=0.9, relative_step=1.0, alpha=0.1, budget=1.0, variances=[1.0])


@pytest.mark.slow
def test_random_noisy_quadratics_stay_below_the_corrected_bound() -> None:
    """The whole right side, the term in the velocities included, which makes it smallest."""
    source = np.random.default_rng(4_6)
    tightest = math.inf
    for _ in range(examples(400)):
        modes, steps, records = int(source.integers(1, 5)), int(source.integers(1, 60)), int(source.integers(5, 500))
        eigenvalues = np.exp(source.uniform(math.log(0.01), 0.0, modes))
        start, budget, beta = source.normal(0.0, 2.0, modes), float(source.uniform(0.05, 3.0)), float(source.uniform(0.02, 0.9))
        smoothness = float(eigenvalues.max()) * float(source.choice([1.0, source.uniform(1.0, 3.0)]))
        kappa = smoothness / float(eigenvalues.min())
        step = largest_relative_step(kappa=kappa, beta=beta) * float(source.choice([1.0, source.uniform(0.05, 1.0)]))
        variances = 1.0 / (budget * source.dirichlet(np.ones(steps)) + 1e-9)
        gap = float(np.sum(eigenvalues * start**2)) / 2.0
        alpha = noise_to_gap(dimension=modes, gradient_bound=1.0, budget=budget, smoothness=smoothness, records=records, initial_gap=gap)
        path = exact_momentum(eigenvalues, start, step=step / (2.0 * smoothness), beta=beta, gradient_stds=np.sqrt(variances) / records)
        gamma = momentum_rate(kappa=kappa, relative_step=step)
        bound = erub_momentum(kappa=kappa, beta=beta, relative_step=step, alpha=alpha, budget=budget, variances=variances) * gap
        slack = momentum_slack(kappa=kappa, beta=beta, relative_step=step)
        moved = float(np.sum(gamma ** np.arange(steps - 1, -1, -1) * path.velocities))
        right_side = bound - slack * step / (4.0 * smoothness) * moved
        assert path.risks[-1] <= right_side * (1 + 1e-9)
        tightest = min(tightest, right_side / path.risks[-1])
    assert tightest < 2.0  # the comparison is not empty
