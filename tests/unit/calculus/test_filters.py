"""Budget filter, odometer and Gaussian covers, against adversaries who choose costs along the way and stop when they like.

The loss of Gaussian steps of zCDP cost c is N(c, 2c), exactly.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers import make_run
from how_many import by_night
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import norm

import lethe
from lethe.calculus.conversions import gdp_delta, zcdp_epsilon_simple
from lethe.calculus.filters import TOLERANCE, BudgetFilter, Odometer, covering_mu, gaussian_cost, pure_mu
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, RDPCurve, WithSlack
from lethe.errors import BudgetExceededError, LetheError


@given(st.floats(1e-150, 1e150))
def test_the_cost_is_rounded_up_and_never_vanishes(ratio: float) -> None:
    exact = 1 / (2 * Fraction(ratio) ** 2)
    assert exact <= Fraction(gaussian_cost(ratio)) <= exact * (1 + Fraction(2, 10**15))
    assert (gaussian_cost(0.0), gaussian_cost(math.inf)) == (math.inf, 0.0)


def test_a_budget_that_is_spent_exactly_runs_to_its_last_step() -> None:
    """schedules.md section 12, test 14: sigma^2 = 2, R = 1 runs 2 steps; the strict rule of the paper refuses the second."""
    budget, cost = BudgetFilter(0.5), gaussian_cost(math.sqrt(2.0))
    for _ in range(2):
        budget.spend(cost)
    assert 2 * cost > 0.5
    assert not budget.allows(cost)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=60), st.floats(1e-3, 1e4))
def test_the_sum_is_exact_and_the_limit_holds(costs: list[float], rho: float) -> None:
    budget, exact = BudgetFilter(rho), Fraction(0)
    for cost in costs:
        fits = exact + Fraction(cost) <= Fraction(rho) * (1 + Fraction(TOLERANCE))
        near = abs(exact + Fraction(cost) - Fraction(rho) * (1 + Fraction(TOLERANCE))) < Fraction(rho) * Fraction(1, 10**15)
        assert budget.allows(cost) == fits or near
        if budget.allows(cost):
            budget.spend(cost)
            exact += Fraction(cost)
        else:
            with pytest.raises(BudgetExceededError, match="is left"):
                budget.spend(cost)
        assert exact <= Fraction(budget.spent()) <= exact * (1 + Fraction(1, 10**15)) + Fraction(5e-324)
        assert 0 <= budget.remaining() <= max(rho - float(exact), 0) * (1 + 1e-15)
    assert Fraction(budget.guarantee().rho) >= exact


def test_disjoint_batches_pay_apart() -> None:
    budget = BudgetFilter(1.0, slots=3)
    for slot in (0, 1, 2, 0):
        budget.spend(0.5, slot)
    assert [budget.spent(slot) for slot in range(3)] == [pytest.approx(value, rel=1e-15) for value in (1.0, 0.5, 0.5)]
    assert budget.spent() == budget.spent(0)
    assert budget.remaining() == budget.remaining(0) == 0.0
    assert budget.remaining(1) == pytest.approx(0.5)
    assert not budget.allows(0.5, 0)
    assert budget.allows(0.5, 1)
    with pytest.raises(BudgetExceededError, match="slot 0"):
        budget.spend(0.1, 0)


def test_infinite_costs_are_refused_even_by_the_largest_budget() -> None:
    budget = BudgetFilter(1e300)
    assert not budget.allows(math.inf)
    budget.spend(1e300)
    assert not budget.allows(1.7e308)
    assert not budget.allows(1e299)
    with pytest.raises(LetheError):
        budget.spend(math.inf)


def test_an_adversary_who_chooses_costs_by_the_loss_stays_within_the_budget() -> None:
    """The privacy loss of Gaussian steps of cost rho is N(rho, 2 rho). The adversary spends the rest at once whenever the loss is above
    its mean and saves otherwise; the mean of exp((a-1) loss) is then still at most exp((a-1) a rho): exact up to Monte Carlo, and the
    bound is met with equality (every path ends with the budget spent), so a filter that let through 3 % more would be seen."""
    random = np.random.default_rng(0)
    paths, rho, order = 400_000 if by_night() else 200_000, 0.2, 2.0
    loss, spent = np.zeros(paths), np.zeros(paths)
    for step in range(30):
        cost = np.where((loss > spent) | (step == 29), rho - spent, 0.1 * (rho - spent))
        loss += cost + np.sqrt(2 * cost) * random.normal(size=paths)
        spent += cost
    moments = np.exp((order - 1) * loss)
    allowed = math.exp((order - 1) * order * rho)
    error = stats.norm.isf(1e-9) * moments.std() / math.sqrt(paths)
    assert moments.mean() - error <= allowed
    assert error < 0.01 * allowed


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


def test_a_run_stopped_at_its_worst_moment_keeps_the_odometer_s_bound_and_not_that_of_what_was_spent() -> None:
    """The guarantee of each fixed moment, though loose there, is violated at some moment four times as often as it may be."""
    hits = violations(Odometer.up_to(1.0, levels=20), GEOMETRIC)
    assert stats.binomtest(hits, PATHS, DELTA, alternative="greater").pvalue > ALARM
    assert hits > 0.1 * DELTA * PATHS  # the adversary is a real one
    above = losses(GEOMETRIC) > np.array([zcdp_epsilon_simple(total, DELTA) for total in GEOMETRIC.tolist()])
    assert above.mean(axis=0).max() < DELTA  # at every fixed moment it holds
    assert stats.binomtest(int(above.any(axis=1).sum()), PATHS, 3 * DELTA, alternative="greater").pvalue < ALARM


def test_one_level_is_tight() -> None:
    """A Brownian motion crosses a line with probability exactly exp(-2 a b): with small steps, delta is nearly used up."""
    totals = np.concatenate([GEOMETRIC[GEOMETRIC < 0.01], np.linspace(0.01, 8.0, 1500)])
    odometer = Odometer(levels=(1.0,), weights=(1.0,))
    hits = violations(odometer, totals)
    assert stats.binomtest(hits, PATHS, DELTA, alternative="greater").pvalue > ALARM
    assert hits > 0.8 * DELTA * PATHS


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


def pure_delta(epsilon: float, level: float) -> float:
    """The exact profile of randomised response with this epsilon, which has the largest of all epsilon-DP mechanisms."""
    return max(0.0, (math.exp(epsilon) - math.exp(level)) / (1.0 + math.exp(epsilon)))


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.1, 1.0, 3.0, 10.0, 40.0])
def test_pure_dp_is_covered_and_by_no_smaller_mu(epsilon) -> None:
    mu = pure_mu(epsilon)
    levels = [epsilon * share for share in np.linspace(0.0, 1.2, 200)]
    assert all(gdp_delta(mu, level) >= pure_delta(epsilon, level) * (1 - 1e-9) for level in levels)
    assert epsilon > 10.0 or any(gdp_delta(mu * 0.99, level) < pure_delta(epsilon, level) for level in levels)
    assert (pure_mu(0.0), pure_mu(math.inf)) == (0.0, math.inf)


SAMPLED = lethe.certify(
    make_run(records=6000, batches=lethe.batches.Poisson(60), noise_multiplier=1.0, release="all", neighbours="add_or_remove"), delta=1e-6
).guarantee
COVERED = {
    "gaussian": (GDP(1.0), 1e-8),
    "zcdp": (ZCDP(0.05), 1e-9),
    "mixture": (GDPMixture((0.1, 3.0), (0.99, 0.01)), 1e-7),
    "renyi": (RDPCurve((2.0, 8.0, 32.0, 128.0), (0.02, 0.08, 0.4, 2.0)), 1e-8),
    "with slack": (WithSlack(GDP(0.3), 1e-9), 1e-8),
    "sampled": (SAMPLED, 1e-8),
}
# The profile of sampled steps is dear, and a profile like any other.
BY_DAY = [pytest.param(name, marks=pytest.mark.nightly if name == "sampled" else []) for name in COVERED]


@pytest.mark.parametrize("name", BY_DAY)
def test_a_cover_is_nowhere_below_and_close_to_the_smallest(name) -> None:
    """Covers are up to 1.5 % larger than they must be; at 0.94 of epsilon that of the mixture is off by less than 0.5 %."""
    guarantee, slack = COVERED[name]
    mu, end, generator = covering_mu(guarantee, slack), guarantee.epsilon(slack), np.random.default_rng(3)

    def covered(mu: float, level: float) -> bool:
        return guarantee.delta(level) <= (slack + (1 - slack) * gdp_delta(mu, level)) * (1 + 1e-9)

    assert all(covered(mu, level) for level in [0.0, 0.94 * end, *generator.uniform(0.0, 1.3 * end, 120 if by_night() else 5).tolist()])
    assert not all(covered(0.97 * mu, level) for level in generator.permutation(np.linspace(0.0, end, 400)).tolist())  # one is soon found


def test_covers_at_their_ends() -> None:
    assert covering_mu(GDP(1.0), 1.0) == 0.0
    assert covering_mu(GDP(0.0), 1e-9) == 0.0
    assert covering_mu(GDP(1.0), 0.0) == math.inf
    assert covering_mu(ApproxDP(1.0, 1e-6), 1e-7) == math.inf


def hockey_stick(mu: float, level: np.ndarray) -> np.ndarray:
    r"""$E_P(1 - e^{\epsilon - L})_+$ of a Gaussian pair at any real epsilon."""
    if mu == 0.0:
        return np.maximum(0.0, -np.expm1(level))
    return norm.cdf(mu / 2 - level / mu) - np.exp(level) * norm.cdf(-mu / 2 - level / mu)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("first", "second", "slack"), [(0.5, 0.5, 0.02), (0.2, 0.8, 0.1), (1.0, 1.0, 0.001)])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.5])
def test_choosing_along_the_way_gains_nothing_on_the_bound(first, second, slack, epsilon) -> None:
    """A first Gaussian release, and then what is worst for it: the second, open failing, one after the other, or nothing.

    The worst case is integrated (with kinks: to about 1e-4). The bound holds for limits on mu^2 and on the slack that are fixed
    beforehand; where the two may be exchanged along the way, each as bad as the other, the worst case is above that of either.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(181)
    loss = first * first / 2 + first * points  # the law of the privacy loss under P
    level, weights = epsilon - loss, weights / weights.sum()
    stop, more = np.maximum(0.0, -np.expm1(level)), hockey_stick(second, level)
    best = float(weights @ np.max([stop, more, slack + (1 - slack) * stop, slack + (1 - slack) * more], axis=0))
    bound = slack + (1 - slack) * gdp_delta(math.hypot(first, second), epsilon)
    assert best <= bound * (1 + 1e-6)
    assert best > 0.999 * bound
    # Either the second release or twice the slack, whichever is worse: more than the larger of the two alone.
    exchange = max(float(weights @ more) - float(weights @ stop), 1e-9)
    either = float(weights @ np.maximum(more, exchange + (1 - exchange) * stop))
    assert either > max(float(weights @ more), float(weights @ (exchange + (1 - exchange) * stop)))
