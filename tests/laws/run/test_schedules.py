"""Schedules and the influence of noise: values, documents, and budgets that are shared among steps and never exceeded."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import SCHEDULES, make_run
from hypothesis import given
from hypothesis import strategies as st

import lethe
from lethe.calculus.conversions import zcdp_rho_simple
from lethe.run.run import Run
from lethe.run.schedules import Constant, Explicit, Exponential, Influence, Repeated, as_schedule, parse_schedule, schedule_document
from lethe.run.schedules.allocation import optimal_schedule
from lethe_experiments.risk.noise_schedules import exp_schedule, uniform_schedule

# schedules.md section 12.10: the methods of Yu et al. 2019 from 10, at t = 0, 10, 25.
PUBLISHED = [
    (lethe.schedules.TimeDecay(first=10, rate=0.05), [10, 6.666667, 4.444444]),
    (lethe.schedules.Exponential(first=10, ratio=float(np.exp(-0.01))), [10, 9.048374, 7.788008]),
    (lethe.schedules.Step(first=10, factor=0.6, period=10), [10, 6, 3.6]),
    (lethe.schedules.Polynomial(first=10, last=2, power=3, period=100), [10, 7.832, 5.375]),
]


@pytest.mark.parametrize(("schedule", "values"), PUBLISHED)
def test_published_values(schedule: lethe.schedules.Constant, values: list[float]) -> None:
    assert schedule.values(26)[[0, 10, 25]] == pytest.approx(values, abs=5e-7)  # six digits are printed


INNER = (
    [0.3, 0.2, 0.1],
    0.5,
    {"schedule": "exponential", "first": 1.0, "ratio": 0.5},
    {"schedule": "repeated", "every": 2, "of": [3.0, 4.0]},
)
REPEATED = [{"schedule": "repeated", "every": 3, "of": inner} for inner in INNER]


@pytest.mark.parametrize("document", [*SCHEDULES, *REPEATED])
def test_documents_round_trip_and_scaling_scales_every_value(document: object) -> None:
    written = schedule_document(parse_schedule(document))
    assert parse_schedule(written) == parse_schedule(document)
    assert document not in REPEATED or written == document
    schedule = as_schedule(parse_schedule(document))
    assert schedule.scaled(3.0).values(50) == pytest.approx(3.0 * schedule.values(50), rel=1e-14)


@pytest.mark.parametrize("document", REPEATED)
def test_the_first_values_come_back_every_period(document: dict[str, Any]) -> None:
    own, repeated = as_schedule(parse_schedule(document["of"])).values(3), as_schedule(parse_schedule(document))
    for count in (1, 2, 3, 4, 10):
        assert repeated.values(count).tolist() == [own[t % 3] for t in range(count)]


def test_in_python_it_takes_a_schedule_a_number_or_a_list() -> None:
    assert Repeated(every=2, of=Exponential(first=1, ratio=0.5)).of == Exponential(first=1, ratio=0.5)
    assert Repeated(every=2, of=2).of == Constant(value=2.0)
    assert Repeated(every=2, of=np.float32(0.5)).of == Constant(value=0.5)
    assert Repeated(every=2, of=[1.0, 2.0]).of == Repeated(every=2, of=np.array([1.0, 2.0])).of == Explicit(listed=(1.0, 2.0))
    assert Repeated(every=10**15, of=Exponential(first=1, ratio=0.5)).values(3).tolist() == [1.0, 0.5, 0.25]
    assert lethe.schedules.Polynomial(first=4, last=1, power=2, period=3).values(6).tolist()[3:] == [1, 1, 1]  # it stays at its last value


def test_a_run_whose_steps_decay_inside_each_pass() -> None:
    run = make_run(step_size={"schedule": "repeated", "every": 10, "of": {"schedule": "time_decay", "first": 0.5, "rate": 0.1}})
    passes = run.step_sizes.reshape(5, 10)
    assert np.all(passes == passes[0])
    assert passes[0] == pytest.approx(0.5 / (1 + 0.1 * np.arange(10)), rel=1e-15)
    assert Run.from_document(run.to_document()) == run


LISTED = Influence(weights=(1.0, 4.0, 2.0), basis="public", detail="digits")


def test_a_rate_counts_from_the_end_and_weights_are_scaled_to_their_largest() -> None:
    assert Influence(rate=0.5, basis="assumed").values(4).tolist() == [0.125, 0.25, 0.5, 1.0]
    assert Influence(rate=2.0, basis="assumed").values(4).tolist() == [1.0, 0.5, 0.25, 0.125]
    assert Influence(rate=1, basis="assumed").values(3).tolist() == [1.0, 1.0, 1.0]
    assert LISTED.values(3).tolist() == [0.25, 1.0, 0.5]
    assert Influence(weights=np.array([1e300, 1e-5]), basis="synthetic").values(2) == pytest.approx([1.0, 1e-305], rel=1e-14)
    assert Influence(weights=[5e-324, 5e-324], basis="synthetic").values(2).tolist() == [1.0, 1.0]


@given(st.floats(0.9, 1.1), st.integers(1, 3000))
def test_ratios_are_those_of_the_rate_and_nothing_underflows(rate: float, steps: int) -> None:
    values = Influence(rate=rate, basis="assumed").values(steps)
    assert values.shape == (steps,)
    assert values.max() == 1.0
    assert values.min() > 1e-300
    assert values[:-1] / values[1:] == pytest.approx(np.full(steps - 1, rate), rel=1e-12)  # two powers and a quotient, each to an ulp


@pytest.mark.parametrize("influence", [Influence(rate=0.98, basis="curvature", detail="1 - mu/M with kappa = 50"), LISTED])
def test_influence_documents_round_trip(influence: Influence, tmp_path: Path) -> None:
    influence.save(tmp_path / "influence.yaml")
    assert Influence.load(tmp_path / "influence.yaml") == influence


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
