"""Sums of lognormal terms against closed forms, and mean excesses against many digits."""

import itertools
import math

import numpy as np
import pytest
from exact_numbers import Exact
from mpmath import mp, mpf

from lethe.calculus.balls_in_bins.lognormal_sums import Term, grid_for, log_mean_excess, mean_excess


def _exact_mean_excess(term: Term, level: float) -> Exact:
    """To many digits, because the root of the quadratic loses some."""
    mu, up, down, k = (mpf(value) for value in (term.mu, term.up, term.down, level))
    root = (k + mp.sqrt(k * k + 4 * up * down * mp.exp(-mu * mu))) / (2 * up) if up > 0 else -down * mp.exp(-mu * mu) / k
    g = (mp.log(root) + mu * mu / 2) / mu

    def normal(x: Exact) -> Exact:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    return up * normal(mu - g) - down * normal(-mu - g) - k * normal(-g)


@pytest.mark.slow
def test_a_mean_excess_is_off_by_less_than_half_of_what_it_says() -> None:
    generator, seen = np.random.default_rng(1), 0
    with mp.workdps(120):
        for case in range(150):
            mu, epsilon, g = 10 ** generator.uniform(-4, 1.39), 10 ** generator.uniform(-4, 1.8), generator.uniform(-9, 36)
            up, down = ((math.exp(-epsilon), 0.0), (0.0, 1.0), (math.exp(-epsilon), 1.0))[case % 3]
            level = up * math.exp(mu * g - mu * mu / 2) - down * math.exp(-mu * g - mu * mu / 2)
            exact = _exact_mean_excess(Term(mu, 1, up, down), level)
            if exact < 1e-290:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                found, error = mean_excess(Term(mu, 1, up, down), np.array([level]), abs(level))
            assert abs(mpf(float(found[0])) - exact) <= mpf(float(error[0])) / 2
            seen += 1
    assert seen > 100


@pytest.mark.parametrize("intervals", [2**8, 2**10, 2**13])
@pytest.mark.parametrize(
    ("mu", "up", "down", "threshold"), [(1.0, 0.5, 0.0, 2.0), (0.2, 1.0, 0.0, 1.3), (1.5, 0.0, 1.0, -0.1), (1.0, 0.5, 1.0, 0.3)]
)
def test_one_term_is_its_mean_excess(mu: float, up: float, down: float, threshold: float, intervals: int) -> None:
    term = Term(mu, 1, up, down)
    exact = float(_exact_mean_excess(term, threshold))
    found = math.exp(log_mean_excess((term,), threshold, intervals))
    assert exact <= found <= exact * (1 + 40 / intervals)


def test_fewer_intervals_are_larger_and_cost_by_their_square() -> None:
    terms, threshold = (Term(0.5, 30, 0.8, 0.0),), 30.0
    finest = math.exp(log_mean_excess(terms, threshold, 2**17))
    costs = [math.exp(log_mean_excess(terms, threshold, 2**power)) / finest - 1 for power in (8, 9, 10, 11)]
    for coarse, fine in itertools.pairwise(costs):
        assert 3.5 * fine < coarse < 4.5 * fine


@pytest.mark.parametrize("threshold", [math.inf, -math.inf, math.nan, 1e308])
def test_what_floating_point_cannot_carry_is_no_small_number(threshold: float) -> None:
    for term in (Term(1.0, 10, 0.5, 0.0), Term(1.0, 10, 0.0, 1.0), Term(1.0, 10, 0.5, 1.0)):
        found = log_mean_excess((term,), threshold, 2**10)
        assert not math.isnan(found)
        if not threshold > 0.0:
            assert found == math.inf


def test_a_sum_that_cannot_reach_the_threshold_exceeds_it_by_next_to_nothing() -> None:
    assert log_mean_excess((Term(1.0, 10, 0.0, 1.0),), 0.5, 2**10) < -600  # every term is below 0


def test_grids_reach_above_the_threshold() -> None:
    for term, threshold in ((Term(1.0, 10, 0.5, 0.0), 10.0), (Term(1.0, 10, 0.0, 1.0), -3.0), (Term(1.0, 10, 0.5, 1.0), 0.0)):
        grid = grid_for((term,), threshold, 2**10, 1.0)
        assert grid is not None
        assert 0.0 < grid.reach <= 10 * grid.ceilings[0] - threshold
        assert grid.interval * 2**10 > grid.reach
