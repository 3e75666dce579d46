"""Momentum: its weights against the recursions, its noise part against the double sum, its corrected bound against exact quadratics."""

import math

import numpy as np
import pytest
import torch
from how_many import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from noisy_quadratics import exact_momentum

import lethe
from lethe.run.schedules.allocation import optimal_schedule
from lethe.run.schedules.momentum import momentum_weights
from lethe.train import DebiasedMomentum
from lethe_experiments.risk.gradient_descent import noise_to_gap
from lethe_experiments.risk.momentum import best_u3, u3, u3_short_bound, u3_uniform, u3_uniform_bound
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
from lethe_experiments.risk.momentum_weights import coherent_weights, debiased_weights, theorem_4_8_weights, turning_step
from lethe_experiments.risk.noise_schedules import uniform_schedule

BETAS = st.floats(0.0, 0.99)


def averages(beta: float, gradients: np.ndarray) -> np.ndarray:
    """m_1..m_T by the algorithm: v <- beta v + (1 - beta) g, divided by 1 - beta^t."""
    velocity, result = np.zeros(gradients.shape[1]), []
    for t, gradient in enumerate(gradients, start=1):
        velocity = beta * velocity + (1 - beta) * gradient
        result.append(velocity / (1 - beta**t))
    return np.array(result)


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
    assert momentum_weights(gamma, beta, steps) == pytest.approx(squares, rel=1e-12)


@given(st.floats(0.05, 0.995), BETAS)
def test_the_turning_step_is_the_last_that_qualifies(gamma: float, beta: float) -> None:
    steps = np.arange(1.0, 4000.0)
    gaps = (steps - 1) * math.log(gamma) + np.log1p(-(beta**steps)) - math.log1p(-beta)
    assume(np.abs(gaps[1:]).min() > 1e-11)  # not a tie that rounding may turn
    gaps[0] = 0.0  # by definition; it is not always what rounding leaves
    assert turning_step(gamma, beta) == np.flatnonzero(gaps >= 0)[-1] + 1


@given(st.floats(0.3, 0.999), st.floats(0.0, 0.999), st.integers(1, 200))
def test_the_corrected_weights_of_theorem_4_8_are_an_upper_bound(gamma: float, beta: float, steps: int) -> None:
    assume(beta < gamma)
    assume(gamma**steps > 1e-140)
    assert np.all(theorem_4_8_weights(gamma, beta, steps) >= momentum_weights(gamma, beta, steps) * (1 - 1e-12))  # roundings


def test_no_cancellation_where_gamma_is_near_beta_squared() -> None:
    gamma, beta, steps = 0.99, 0.99 - 1e-9, 2000  # gamma - beta^2 = .01, and the turn comes at step 1
    turn = turning_step(gamma, beta)
    assert turn < steps
    exact = [gamma ** (2 * turn - 3 + n) * math.fsum((beta * beta / gamma) ** k for k in range(n)) for n in range(steps - turn, 0, -1)]
    assert theorem_4_8_weights(gamma, beta, steps)[turn:] == pytest.approx(exact, rel=1e-11)  # powers of up to 3000


GAMMAS = st.floats(0.3, 0.999)
SUM_BETAS = st.floats(0.01, 0.99)


def _double_sum(gamma: float, beta: float, variances: np.ndarray) -> float:
    total = 0.0
    for t in range(1, variances.size + 1):
        inner = sum(beta ** (2 * (t - i)) * variances[i - 1] for i in range(1, t + 1))
        total += gamma ** (variances.size - t) * ((1 - beta) / (1 - beta**t)) ** 2 * inner
    return total


@given(gamma=GAMMAS, beta=SUM_BETAS, variances=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=25))
def test_it_is_the_double_sum(gamma: float, beta: float, variances: list[float]) -> None:
    array = np.array(variances)
    assert u3(gamma=gamma, beta=beta, variances=variances) == pytest.approx(_double_sum(gamma, beta, array), rel=1e-10)
    uniform = _double_sum(gamma, beta, np.ones(array.size))
    assert u3_uniform(gamma=gamma, beta=beta, steps=array.size) == pytest.approx(uniform, rel=1e-10)


@given(gamma=GAMMAS, beta=SUM_BETAS, steps=st.integers(1, 300))
def test_theorem_4_7_holds(gamma: float, beta: float, steps: int) -> None:
    exact = u3_uniform(gamma=gamma, beta=beta, steps=steps)
    assert exact <= u3_uniform_bound(gamma=gamma, beta=beta, steps=steps) * (1 + 1e-9)
    for worked, value, bound in ((10, 3.375870, 6.302494), (60, 6.413512, 9.975875)):
        assert u3_uniform(gamma=0.95, beta=0.5, steps=worked) == pytest.approx(value, abs=5e-7)
        assert u3_uniform_bound(gamma=0.95, beta=0.5, steps=worked) == pytest.approx(bound, abs=5e-7)


@given(gamma=st.floats(0.8, 0.999), beta=SUM_BETAS, steps=st.integers(1, 200))
def test_the_best_schedule_is_best_and_the_short_bound_is_one(gamma: float, beta: float, steps: int) -> None:
    least = best_u3(gamma=gamma, beta=beta, steps=steps)
    chosen = optimal_schedule(momentum_weights(gamma, beta, steps), 1.0).variances
    assert u3(gamma=gamma, beta=beta, variances=chosen) == pytest.approx(least, rel=1e-9)
    assert least <= steps * u3_uniform(gamma=gamma, beta=beta, steps=steps) * (1 + 1e-9)
    if steps <= turning_step(gamma, beta):
        assert least <= u3_short_bound(gamma=gamma, beta=beta, steps=steps) * (1 + 1e-9)
        # Its own schedule, sigma_t^2 proportional to gamma^(-t/2), stays below it too.
        rising = optimal_schedule(gamma ** np.arange(1.0, steps + 1.0), 1.0).variances
        assert u3(gamma=gamma, beta=beta, variances=rising) <= u3_short_bound(gamma=gamma, beta=beta, steps=steps) * (1 + 1e-9)


KAPPAS = st.floats(1.0, 500.0)
RISK_BETAS = st.floats(0.01, 0.95)


@given(kappa=KAPPAS, beta=RISK_BETAS)
def test_the_largest_step_is_where_the_slack_ends(kappa: float, beta: float) -> None:
    largest = largest_relative_step(kappa=kappa, beta=beta)
    assert 0 < largest < 2
    assert momentum_slack(kappa=kappa, beta=beta, relative_step=largest) >= 0
    assert momentum_slack(kappa=kappa, beta=beta, relative_step=largest * (1 + 1e-9)) < 0
    gamma = momentum_rate(kappa=kappa, relative_step=largest)
    drift = beta * gamma / ((gamma - beta) ** 2 * (1 - beta) ** 3)
    assert beta < gamma
    assert largest == pytest.approx(4 / (1 + math.sqrt(1 + 16 * drift)), rel=1e-6)


@given(kappa=KAPPAS, beta=RISK_BETAS, share=st.floats(0.01, 1.0), alpha=st.floats(0.0, 1.0), steps=st.integers(1, 60))
def test_the_closed_forms_are_the_bound_at_their_schedules(kappa: float, beta: float, share: float, alpha: float, steps: int) -> None:
    step = share * largest_relative_step(kappa=kappa, beta=beta)
    gamma = momentum_rate(kappa=kappa, relative_step=step)
    common = {"kappa": kappa, "beta": beta, "relative_step": step, "alpha": alpha}
    uniform = erub_momentum(**common, budget=0.3, variances=uniform_schedule(steps, 0.3))
    assert erub_momentum_uni(steps, **common) == pytest.approx(uniform, rel=1e-9)
    chosen = optimal_schedule(momentum_weights(gamma, beta, steps), 0.3).variances
    dynamic = erub_momentum_dyn(steps, **common)
    assert dynamic == pytest.approx(erub_momentum(**common, budget=0.3, variances=chosen), rel=1e-9)
    assert dynamic <= uniform * (1 + 1e-9)
    assert dynamic <= erub_momentum_4_8(steps, **common) * (1 + 1e-9)
    if steps <= turning_step(gamma, beta):
        assert dynamic <= erub_momentum_short(steps, **common) * (1 + 1e-9)


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


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999])
def test_debiased_momentum_averages_as_stated(beta: float) -> None:
    gradients = np.random.default_rng(1).standard_normal((30, 5))
    point = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = DebiasedMomentum([point], lr=0.3, beta=beta)
    expected = np.zeros(5)
    for step, gradient in enumerate(gradients, start=1):
        point.grad = torch.tensor(gradient)
        optimizer.step()
        expected -= 0.3 * debiased_weights(beta, step) @ gradients[:step]
        np.testing.assert_allclose(point.detach().numpy(), expected, rtol=0, atol=1e-12)
        assert torch.equal(point.grad, torch.tensor(gradient))


def test_the_influence_of_momentum_places_the_noise_that_is_best_under_its_bound() -> None:
    """Published digits (gamma = .95, beta = .5, T = 5, R = 1), and no other noise of the same privacy has a smaller noise part."""
    influence = lethe.schedules.Influence.of_momentum(0.95, 0.5, 5)
    weights = np.array([0.933451, 0.475780, 0.378899, 0.336820, 0.266389])
    assert influence.values(5) == pytest.approx(weights / weights[0], rel=2e-6)
    run = lethe.Run(records=400, batches=lethe.batches.Full(), steps=5, step_size=1.0, clip_norm=1.0, release="all", neighbours="zero_out")
    target = lethe.guarantees.GDP(1.0)
    best = np.square(lethe.allocate(run, target=target, schedule="influence", influence=influence).run.noise_multipliers)
    assert best == pytest.approx([3.485949, 4.882740, 5.471485, 5.803209, 6.525421], rel=1e-6)
    random = np.random.default_rng(0)
    least = u3(gamma=0.95, beta=0.5, variances=best)
    for other in np.exp(random.normal(scale=0.3, size=(200, 5))):
        assert least <= u3(gamma=0.95, beta=0.5, variances=other * np.sum(1.0 / other)) * (1 + 1e-6)
