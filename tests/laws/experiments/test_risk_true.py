"""From empirical to true risk: the terms, exact gaps that stay below, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import HypothesisError, InputError
from lethe_experiments.risk.true_risk import repetitions, ter_expectation, ter_high_probability, uniform_stability

LIKELY = {"excess": 0.02, "gradient_bound": 2.0, "strong_convexity": 0.5, "records": 1000, "failure": 0.1}
STABLE = {"gradient_bound": 1.0, "step_size": 0.5, "smoothness": 2.0, "steps": 10, "records": 100}


def test_the_terms_at_a_worked_point() -> None:
    """sqrt(2 * 4 / .5) sqrt(.02) + 16 / (.1 * .5 * 1000); 2 * .5 * 10 / 100."""
    assert ter_high_probability(**LIKELY) == pytest.approx(4 * math.sqrt(0.02) + 0.32, rel=1e-12)
    assert uniform_stability(**STABLE) == pytest.approx(0.1, rel=1e-12)
    assert ter_expectation(excess=0.25, stability=0.1) == 0.35
    # strongly convex: 2 * .5 / 100 * (1 + .75 + .75^2 + ...), ten terms.
    assert uniform_stability(**STABLE, strong_convexity=0.5) == pytest.approx(0.01 * (1 - 0.75**10) / 0.25, rel=1e-12)
    assert uniform_stability(**STABLE, strong_convexity=2.0) == pytest.approx(0.01, rel=1e-12)  # each step forgets the last


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), steps=st.integers(1, 20), noise=st.floats(0.0, 0.3))
def test_two_runs_that_differ_in_one_record_stay_as_close_as_it_says(seed: int, steps: int, noise: float) -> None:
    """Means of sqrt(1 + |theta - x|^2) losses: 1-Lipschitz, 1-smooth, convex. Full-batch descent, the same noise in both runs."""
    source = np.random.default_rng(seed)
    records = source.normal(0.0, 2.0, (6, 2))
    neighbour = records.copy()
    neighbour[0] = source.normal(0.0, 2.0, 2)
    step = float(source.uniform(0.1, 2.0))

    def descend(data: np.ndarray, noises: np.ndarray) -> np.ndarray:
        theta = np.zeros(2)
        for push in noises:
            away = theta - data
            theta = theta - step * np.mean(away / np.sqrt(1 + np.sum(away**2, axis=1, keepdims=True)), axis=0) + push
        return theta

    noises = source.normal(0.0, noise, (steps, 2))
    difference = np.linalg.norm(descend(records, noises) - descend(neighbour, noises))  # times the Lipschitz constant 1
    assert difference <= uniform_stability(gradient_bound=1.0, step_size=step, smoothness=1.0, steps=steps, records=6) * (1 + 1e-9)


def test_the_stability_is_met_by_linear_losses() -> None:
    """Losses +theta and -theta: replacing one of 10 records moves theta by 2 eta / 10 a step, and its loss by as much."""
    theta, other = -0.3 * 7 * np.mean([1.0] * 10), -0.3 * 7 * np.mean([-1.0] + [1.0] * 9)
    stability = uniform_stability(gradient_bound=1.0, step_size=0.3, smoothness=1e-9, steps=7, records=10)
    assert abs(theta - other) == pytest.approx(stability, rel=1e-12)


@given(steps=st.integers(1, 10**6), convexity=st.floats(1e-6, 1.0))
def test_strong_convexity_bounds_it_however_long_the_run(steps: int, convexity: float) -> None:
    longest = 2.0 / (1.0 + convexity)
    stability = uniform_stability(
        gradient_bound=1.0, step_size=longest, smoothness=1.0, steps=steps, records=50, strong_convexity=convexity
    )
    assert stability <= 2.0 / (convexity * 50) * (1 + 1e-6)
    plain = uniform_stability(gradient_bound=1.0, step_size=longest, smoothness=1.0, steps=steps, records=50)
    assert stability <= plain * (1 + 1e-9)


def test_the_likely_bound_covers_every_drawing_of_two_points() -> None:
    """f = (theta - x)^2 / 2, x = +-1 with equal chance, theta in [-1, 1]: every data set of 12 records, every theta on a grid, exactly."""
    records, failure, lipschitz = 12, 0.2, 2.0
    outside = 0.0
    for ones in range(records + 1):
        mean = (2 * ones - records) / records
        for theta in np.linspace(-1.0, 1.0, 41):
            true, empirical = theta**2 / 2, (theta - mean) ** 2 / 2
            bound = ter_high_probability(excess=empirical, gradient_bound=lipschitz, strong_convexity=1.0, records=records, failure=failure)
            if true > bound:
                outside += math.comb(records, ones) / 2**records
                break
    assert outside <= failure


def test_the_repetitions_make_the_failure_rare_enough() -> None:
    assert repetitions(failure=0.1, budget=2.0).runs == 4
    assert repetitions(failure=0.1, budget=2.0).budget_each == 0.5
    assert repetitions(failure=0.9, budget=2.0).runs == 1
    for failure in (0.5, 0.3, 0.01, 1e-9):
        assert 0.5 ** repetitions(failure=failure, budget=1.0).runs <= failure


def test_steps_that_may_expand_are_refused() -> None:
    assert uniform_stability(**{**STABLE, "step_size": 1.0}) == pytest.approx(0.2)
    with pytest.raises(HypothesisError, match="may expand"):
        uniform_stability(**{**STABLE, "step_size": 1.0 + 1e-9})
    with pytest.raises(InputError, match="cannot exceed smoothness"):
        uniform_stability(**STABLE, strong_convexity=2.1)
