"""The odometer against adversaries who stop when they like; the loss of Gaussian steps of zCDP cost c is N(c, 2c), exactly."""

import math

import numpy as np
import pytest
from how_many import by_night
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lethe.calculus.conversions import zcdp_epsilon_simple
from lethe.calculus.filters import Odometer

DELTA, PATHS = 0.05, 20_000 if by_night() else 4_000
ALARM = 1e-9

positive = st.floats(1e-6, 1e3)


def losses(totals: np.ndarray, seed: int = 0) -> np.ndarray:
    """Privacy losses at the given sums of costs, shape (paths, times)."""
    costs = np.diff(totals, prepend=0.0)
    random = np.random.default_rng(seed)
    return np.cumsum(costs + np.sqrt(2 * costs) * random.normal(size=(PATHS, len(costs))), axis=1)


def violations(odometer: Odometer, totals: np.ndarray) -> int:
    bounds = np.array([odometer.epsilon(total, DELTA) for total in totals.tolist()])
    return int((losses(totals) > bounds).any(axis=1).sum())


GEOMETRIC = 1e-6 * 1.035 ** np.arange(403)  # up to 1


@pytest.mark.slow
def test_a_run_stopped_at_its_worst_moment_keeps_the_odometer_s_bound() -> None:
    hits = violations(Odometer.up_to(1.0, levels=20), GEOMETRIC)
    assert stats.binomtest(hits, PATHS, DELTA, alternative="greater").pvalue > ALARM
    assert hits > 0.1 * DELTA * PATHS  # the adversary is a real one


@pytest.mark.slow
def test_what_was_spent_may_not_be_claimed_at_such_a_moment() -> None:
    """The guarantee of each fixed moment, though loose there, is violated at some moment four times as often as it may be."""
    naive = np.array([zcdp_epsilon_simple(total, DELTA) for total in GEOMETRIC.tolist()])
    above = losses(GEOMETRIC) > naive
    assert above.mean(axis=0).max() < DELTA  # at every fixed moment it holds
    assert stats.binomtest(int(above.any(axis=1).sum()), PATHS, 3 * DELTA, alternative="greater").pvalue < ALARM


@pytest.mark.slow
def test_one_level_is_tight() -> None:
    """A Brownian motion crosses a line with probability exactly exp(-2 a b): with small steps, delta is nearly used up."""
    totals = np.concatenate([GEOMETRIC[GEOMETRIC < 0.01], np.linspace(0.01, 8.0, 1500)])
    odometer = Odometer(levels=(1.0,), weights=(1.0,))
    hits = violations(odometer, totals)
    assert stats.binomtest(hits, PATHS, DELTA, alternative="greater").pvalue > ALARM
    assert hits > 0.8 * DELTA * PATHS


@pytest.mark.slow
def test_a_step_chosen_by_the_loss_does_not_help() -> None:
    """Small steps while the loss is above its mean, large ones otherwise; stop at the first violation."""
    random = np.random.default_rng(1)
    odometer = Odometer.up_to(1.0, levels=6)
    loss, spent, caught = np.zeros(PATHS), np.zeros(PATHS), np.zeros(PATHS, dtype=bool)
    grid = np.linspace(0.0, 1.0, 4001)
    bounds = np.array([odometer.epsilon(total, DELTA) for total in grid.tolist()])
    for _ in range(300):
        cost = np.minimum(np.where(loss > spent, 0.003, 0.03), 1.0 - spent)
        loss += cost + np.sqrt(2 * cost) * random.normal(size=PATHS)
        spent += cost
        caught |= loss > np.interp(spent, grid, bounds)  # a minimum of lines is concave, so interpolating makes it stricter
    assert stats.binomtest(int(caught.sum()), PATHS, DELTA, alternative="greater").pvalue > ALARM


@pytest.mark.slow
@given(st.lists(positive, min_size=1, max_size=6), positive, st.floats(1e-12, 0.5))
def test_it_is_the_quoted_form_at_a_level_and_never_above_that_of_the_next(levels: list[float], spent: float, delta: float) -> None:
    odometer = Odometer(levels=tuple(levels), weights=(1 / len(levels),) * len(levels))
    epsilon = odometer.epsilon(spent, delta)
    for level in levels:
        quoted = level + 2 * math.sqrt(level * math.log(len(levels) / delta))
        assert odometer.epsilon(level, delta) <= quoted * (1 + 1e-14)  # roundings of both
        if level >= spent:
            assert epsilon <= quoted * (1 + 1e-14)
    lone = Odometer(levels=(spent,), weights=(1.0,))
    assert lone.epsilon(spent, delta) == pytest.approx(spent + 2 * math.sqrt(spent * math.log(1 / delta)), rel=1e-14)
    assert lone.epsilon(spent, delta) >= zcdp_epsilon_simple(spent, delta) * (1 - 1e-14)
    assert epsilon >= lone.epsilon(spent, delta) * (1 - 1e-14)  # a union is never free


@pytest.mark.slow
@given(positive, st.floats(1.0, 2.0), st.floats(1e-12, 0.5))
def test_it_grows_with_what_is_spent_and_falls_with_delta(spent: float, factor: float, delta: float) -> None:
    odometer = Odometer.up_to(10.0)
    assert odometer.epsilon(spent * factor, delta) >= odometer.epsilon(spent, delta)
    assert odometer.epsilon(spent, delta) >= odometer.epsilon(spent, min(delta * factor, 0.9))


def test_edges() -> None:
    odometer = Odometer.up_to(1.0)
    assert odometer.levels == tuple(0.5**k for k in range(10))
    assert math.fsum(odometer.weights) == pytest.approx(1.0, rel=1e-15)
    assert odometer.epsilon(0.0, 0.0) == odometer.epsilon(0.0, 1e-5) == 0.0
    assert odometer.epsilon(0.1, 0.0) == odometer.epsilon(math.inf, 0.1) == math.inf
    assert odometer.epsilon(100.0, 1e-5) < math.inf  # beyond the last level it still holds
    assert math.fsum(Odometer(levels=(1.0, 2.0), weights=(0.5, 0.5 + 5e-10)).weights) <= 1.0
