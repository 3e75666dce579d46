"""Hong, Wang, Zhou 2022 (FAccT): what its risk bounds say, where they are false, and what is left of the comparisons.

Every counter-example is exact: second moments on quadratics, or all cases counted.
"""

import dataclasses
import math

import numpy as np
import pytest
from noisy_quadratics import exact_momentum, exact_risk

from lethe_experiments.rates.hong_orders import uniform_order
from lethe_experiments.rates.tables import Setting, row
from lethe_experiments.risk.best_steps import best_steps_dynamic, best_steps_uniform, t_uni_printed
from lethe_experiments.risk.gradient_descent import decay, erub_dyn, erub_uni
from lethe_experiments.risk.mini_batches import batch_term, printed_batch_size, printed_batch_term
from lethe_experiments.risk.momentum import u3_uniform
from lethe_experiments.risk.momentum_risk import (
    erub_momentum,
    largest_relative_step,
    momentum_rate,
    momentum_slack,
    printed_momentum_bound,
    printed_momentum_slack,
)
from lethe_experiments.risk.momentum_weights import mom_weights
from lethe_experiments.risk.true_risk import (
    printed_ter_high_probability,
    printed_uniform_stability,
    ter_high_probability,
    uniform_stability,
)

SETTING = Setting(dimension=60, records=10_000, budget=0.392704, epsilon=4.0, delta=1e-8)


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


@pytest.mark.parametrize("kappa", [1e2, 1e4, 1e6])
def test_it_is_too_long_by_about_kappa_log_kappa(kappa: float) -> None:
    """For little noise, alpha kappa^2 << 1."""
    best, printed = best_steps_uniform(kappa, 1e-30), t_uni_printed(kappa, 1e-30)
    assert 0.7 < (printed - best.steps) / (kappa * math.log(kappa)) < 1.8


def test_sharp_losses_are_no_case_for_dynamic_noise() -> None:
    """Both optima tend to 1 as kappa grows at fixed alpha; the printed comparison, 1/alpha against 1, is one of printed steps."""
    for kappa in (10.0, 100.0, 1000.0, 1e6):
        uniform, dynamic = best_steps_uniform(kappa, 0.05).value, best_steps_dynamic(kappa, 0.05).value
        assert dynamic <= uniform <= 1.0
    assert uniform == dynamic == 1.0
    assert erub_dyn(best_steps_dynamic(10.0, 0.05).steps, 10.0, 0.05) < 1.0


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


def test_the_paper_s_example_step_is_300_times_too_long() -> None:
    """beta = .9, gamma = .99: it says eta_0 <= .98; its own formula gives .0030, which no kappa >= 1 makes gamma = .99 with."""
    drift = 0.9 * 0.99 / (0.09**2 * 0.1**3)
    longest = 8 / (1 + math.sqrt(1 + 64 * drift))
    assert longest == pytest.approx(0.0030, abs=5e-5)
    assert longest / (1 - 0.99) < 1.0  # kappa = eta_0 / (1 - gamma)


def test_momentum_is_not_shown_to_help() -> None:
    """As beta falls to 0 the noise part is 4 / eta_0 (as printed 8 / eta_0) times that of descent with the same step eta_0 / (2M)."""
    kappa, step, steps = 20.0, 0.5, 30
    gamma = momentum_rate(kappa=kappa, relative_step=step)
    assert u3_uniform(gamma=gamma, beta=1e-9, steps=steps) == pytest.approx((1 - gamma**steps) / (1 - gamma), rel=1e-6)
    assert np.allclose(mom_weights(gamma, 1e-9, steps), gamma ** np.arange(steps - 1, -1, -1))
    # Units G / N = M = 1: alpha R f_1 = D / 2; descent adds (M/2) step^2 D a step, momentum eta_0 alpha R f_1.
    descent, momentum, printed = 0.5 * (step / 2) ** 2, step * 0.5, 2 * step * 0.5
    assert momentum / descent == pytest.approx(4 / step)
    assert printed / descent == pytest.approx(8 / step)


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


def test_the_printed_batch_is_no_small_one() -> None:
    assert printed_batch_size(records=10_000, budget=0.392704) / 10_000 == pytest.approx(0.63, abs=0.005)
    assert printed_batch_size(records=10_000, budget=1.1) > 10_000


def test_the_printed_geometric_sum_of_momentum_is_short() -> None:
    """Theorem 4.10's proof puts 1 / (1 - gamma) = kappa; with gamma = 1 - eta_0 / kappa it is kappa / eta_0."""
    kappa, step = 10.0, 0.2
    gamma = 1 - step / kappa
    assert u3_uniform(gamma=gamma, beta=0.01, steps=4000) > kappa
    assert u3_uniform(gamma=gamma, beta=0.01, steps=4000) <= kappa / step


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


@pytest.mark.parametrize("records", [10_000, 1_000_000])
def test_the_dropped_term_is_the_larger_one(records: int) -> None:
    """kappa = 10, D = 60, paper's budget, M = G = 1: G^2 eta T / N against D / (N^2 R), once N exceeds D / R = 153."""
    setting = dataclasses.replace(SETTING, records=records)
    steps = math.ceil(setting.steps / decay(10.0))
    dropped = uniform_stability(gradient_bound=1.0, step_size=1.0, smoothness=1.0, steps=steps, records=records)
    assert dropped > 10 * row("stable-gd-static").bound(setting).value
    assert "leaves out" in row("stable-gd-static").remark


# The tables (E14).


def test_the_non_private_row_is_the_gap_after_a_number_of_steps_chosen_for_it() -> None:
    steps = SETTING.steps / decay(10.0)
    assert 0.9**steps == pytest.approx(row("gd-non-private").bound(SETTING).value, rel=1e-9)
    assert 0.9 ** (2 * steps) < 1e-3 * row("gd-non-private").bound(SETTING).value  # so it bounds nothing from below
    assert row("gd-non-private").bound(SETTING).value == row("gd-dynamic").bound(SETTING).value
    assert "only the gap left" in row("gd-non-private").remark


@pytest.mark.parametrize(("key", "falls"), [("gd-ma-adjusted", 16.0), ("adam-ma", 4.0)])
def test_two_rows_take_the_budget_where_epsilon_seems_meant(key: str, falls: float) -> None:
    """When epsilon doubles, D ln N / (N eps)^2 falls by 4 and sqrt(D) / (N eps) by 2; these fall by the squares, but for a logarithm."""
    setting = dataclasses.replace(SETTING, epsilon=0.5, dimension=4)
    twice = dataclasses.replace(setting, epsilon=1.0)
    assert row(key).bound(setting).value / row(key).bound(twice).value == pytest.approx(falls, rel=0.1)
    assert "epsilon is meant" in row(key).remark


def test_the_row_of_2014_looks_like_a_sum_of_losses() -> None:
    """Against the same method with the moments accountant it is N ln N times larger, where the accountants differ by logarithms."""
    ratio = row("gd-adv").bound(SETTING).value / row("gd-ma").bound(SETTING).value
    assert ratio == pytest.approx(SETTING.records * math.log(SETTING.records), rel=1e-12)
    assert "sum of losses" in row("gd-adv").remark
