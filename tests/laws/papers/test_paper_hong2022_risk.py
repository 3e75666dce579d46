"""Hong, Wang, Zhou 2022 (FAccT): what its risk bounds say, where they are false, and what is left of the comparisons.

Every counter-example is exact: second moments on quadratics, or all cases counted.
"""

import dataclasses
import math

import numpy as np
import pytest
from noisy_quadratics import exact_momentum, exact_risk

from lethe_experiments.rates.hong_orders import uniform_order
from lethe_experiments.risk.best_steps import best_steps_dynamic, best_steps_uniform, t_uni_printed
from lethe_experiments.risk.gradient_descent import erub_uni
from lethe_experiments.risk.mini_batches import batch_term, printed_batch_size, printed_batch_term
from lethe_experiments.risk.momentum_risk import (
    erub_momentum,
    largest_relative_step,
    momentum_rate,
    momentum_slack,
    printed_momentum_bound,
    printed_momentum_slack,
)
from lethe_experiments.risk.true_risk import (
    printed_ter_high_probability,
    printed_uniform_stability,
    ter_high_probability,
    uniform_stability,
)


def _longest_printed(kappa: float, beta: float) -> float:
    """The largest eta_0 that the printed condition allows with beta < gamma, by bisection."""
    low, high = 0.0, kappa * (1 - beta)
    for _ in range(100):
        middle = (low + high) / 2
        allowed = 1 - middle / kappa > beta and printed_momentum_slack(kappa=kappa, beta=beta, relative_step=middle) >= 0
        low, high = (middle, high) if allowed else (low, middle)
    return low


# The number of steps (E6).


def test_the_printed_number_of_steps_can_be_worse_than_none() -> None:
    """kappa = 1000, alpha = .01: 87.6 times the initial gap, where no step at all has 1. So its order 1/alpha is no minimum."""
    steps = t_uni_printed(1000.0, 0.01)
    assert erub_uni(steps, 1000.0, 0.01) == pytest.approx(87.6, rel=1e-3)
    assert uniform_order(1000.0, 0.01).value == pytest.approx(86.6, rel=1e-3)
    assert best_steps_uniform(1000.0, 0.01).steps == best_steps_dynamic(1000.0, 0.01).steps == 0
    assert best_steps_uniform(1000.0, 0.01).value == 1.0


# Momentum (E7).


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
    """f = mu x^2 / 2 with M = 1, start 1, no noise."""

    kappa: float
    beta: float
    steps: int
    share: float

    @property
    def step(self) -> float:
        return self.share * _longest_printed(self.kappa, self.beta)

    def risk_and_claim(self) -> tuple[float, float]:
        """The exact risk and the whole printed right side, loss units."""
        gap, gamma = 0.5 / self.kappa, 1 - self.step / self.kappa
        path = exact_momentum([1 / self.kappa], [1.0], step=self.step / 2, beta=self.beta, gradient_stds=np.zeros(self.steps))
        velocity = float(np.sum(gamma ** np.arange(self.steps - 1, -1, -1) * path.velocities)) / gap
        claim = printed_momentum_bound(
            kappa=self.kappa,
            beta=self.beta,
            relative_step=self.step,
            alpha=0.0,
            budget=1.0,
            variances=np.zeros(self.steps),
            velocity=velocity,
        )
        assert claim.standing.kind == "refuted"
        return float(path.risks[-1]), claim.value * gap


def test_theorem_4_6_is_false_at_the_longest_step_it_allows() -> None:
    risk, claim = _Case(kappa=1.5, beta=0.1, steps=5, share=1.0).risk_and_claim()
    assert risk == pytest.approx(5.08e-3, rel=1e-3)
    assert claim == pytest.approx(1.65e-3, rel=2e-3)


def test_theorem_4_6_is_false_at_half_that_step_where_its_right_side_is_negative() -> None:
    risk, claim = _Case(kappa=2.0, beta=0.5, steps=40, share=0.5).risk_and_claim()
    assert claim == pytest.approx(-2.06e-2, rel=1e-3)
    assert risk > 0 > claim


@pytest.mark.parametrize(("kappa", "beta", "steps", "share"), [(1.5, 0.1, 5, 1.0), (2.0, 0.5, 40, 0.5)])
def test_the_corrected_theorem_covers_both_counter_examples(kappa: float, beta: float, steps: int, share: float) -> None:
    """At their own steps, which it allows, and at the longest that it allows; with the term in the velocities."""
    case = _Case(kappa=kappa, beta=beta, steps=steps, share=share)
    for step in (case.step, largest_relative_step(kappa=kappa, beta=beta)):
        gamma = momentum_rate(kappa=kappa, relative_step=step)
        path = exact_momentum([1 / kappa], [1.0], step=step / 2, beta=beta, gradient_stds=np.zeros(steps))
        bound = erub_momentum(kappa=kappa, beta=beta, relative_step=step, alpha=0.0, budget=1.0, variances=np.zeros(steps))
        assert bound == pytest.approx(gamma**steps, rel=1e-12)
        moved = float(np.sum(gamma ** np.arange(steps - 1, -1, -1) * path.velocities))
        slack = momentum_slack(kappa=kappa, beta=beta, relative_step=step)
        assert path.risks[-1] <= bound * 0.5 / kappa - slack * step / 4 * moved


# Batches (E11).


def test_the_printed_term_of_batches_falls_too_fast() -> None:
    """f_i = (theta - x_i)^2 / 2, x_i of variance 1, kappa = 1: the batch noise alone, exactly; sigma_g such that it is met at N = 100."""
    budget, gap, ratios = 0.25, 0.5, []
    for records in (100, 10_000, 1_000_000):
        batch = printed_batch_size(records=records, budget=budget)
        assert batch == records // 2
        variance = (records - batch) / (records - 1) / batch
        risk = exact_risk([1.0], [1.0], [1.0], [math.sqrt(variance)]) / gap
        constant = math.sqrt((100 - 50) / 99 / 50) * 50  # sigma_g sqrt(D) / n is the standard deviation at N = 100
        printed = printed_batch_term(dimension=1, noise_constant=constant, pl_constant=1.0, records=records, budget=budget, initial_gap=gap)
        assert printed.standing.kind == "refuted"
        ratios.append(risk / printed.value)
        assert risk <= batch_term(gradient_variance=1.0, pl_constant=1.0, batch_size=batch, initial_gap=gap)
    assert ratios[0] == pytest.approx(1.0, rel=0.02)
    assert ratios[1] == pytest.approx(100, rel=0.02)
    assert ratios[2] == pytest.approx(10_000, rel=0.02)


# True risk (E12, E13).


def test_theorem_4_11_has_one_n_too_many() -> None:
    """f = (theta - x)^2 / 2 half a unit from the minimiser, a million records whose mean is the true one: true excess risk .125."""
    numbers = {"excess": 0.125, "gradient_bound": 2.0, "strong_convexity": 1.0, "records": 1_000_000, "failure": 0.1}
    printed = printed_ter_high_probability(**numbers)
    assert printed.value == pytest.approx(0.00116, abs=5e-6)
    assert printed.standing.kind == "refuted"
    assert printed.value < 0.125 < ter_high_probability(**numbers)


def test_theorem_4_14_is_for_averages_of_iterates() -> None:
    """Losses +theta and -theta, one of two records replaced: the last iterate's loss changes by twice the printed stability."""
    step, steps = 0.5, 8
    theta, other = 0.0, 0.0
    for _ in range(steps):
        theta, other = theta - step * np.mean([1.0, 1.0]), other - step * np.mean([-1.0, 1.0])
    printed = printed_uniform_stability(gradient_bound=1.0, step_size=step, steps=steps, records=2)
    assert abs(theta - other) == pytest.approx(2 * printed.value, rel=1e-12)
    assert printed.standing.kind == "refuted"
    assert abs(theta - other) <= uniform_stability(gradient_bound=1.0, step_size=step, smoothness=1.0, steps=steps, records=2) * (1 + 1e-12)


def test_the_mean_gap_itself_can_exceed_the_printed_stability() -> None:
    """One record, one step of 2/M from 0, 20 equally likely losses: Huber's norm around -3 e_k, 1-Lipschitz, 1-smooth and convex.

    The record's own loss falls by 2, each of the 19 others rises by sqrt(13) - 3.
    """

    def loss(distance: float) -> float:
        return distance - 0.5 if distance >= 1 else distance**2 / 2

    centres = -3.0 * np.eye(20)
    step_taken = -2.0 * np.eye(20)[0]
    losses = [loss(float(np.linalg.norm(step_taken - centre))) for centre in centres]
    gap = float(np.mean(losses)) - losses[0]
    assert gap == pytest.approx(19 / 20 * (math.sqrt(13.0) - 1.0), rel=1e-12)
    common = {"gradient_bound": 1.0, "step_size": 2.0, "steps": 1, "records": 1}
    assert printed_uniform_stability(**common).value < gap <= uniform_stability(**common, smoothness=1.0)
