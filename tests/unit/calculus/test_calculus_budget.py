"""The budget filter: exact sums, the stop rule at its edge, and the guarantee it gives for adaptively chosen costs."""

import math
from fractions import Fraction

import numpy as np
import pytest
from how_many import by_night
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lethe.calculus.filters import TOLERANCE, BudgetFilter, gaussian_cost
from lethe.calculus.guarantees import ZCDP
from lethe.errors import BudgetExceededError, LetheError


def steps_taken(budget: BudgetFilter, costs: list[float]) -> int:
    for taken, cost in enumerate(costs):
        if not budget.allows(cost):
            return taken
        budget.spend(cost)
    return len(costs)


def test_the_cost_of_a_gaussian_step() -> None:
    assert gaussian_cost(1.0) == pytest.approx(0.5, rel=2e-15)  # rounded up
    assert gaussian_cost(4.0) == pytest.approx(1 / 32, rel=2e-15)
    assert (gaussian_cost(0.0), gaussian_cost(math.inf)) == (math.inf, 0.0)


@given(st.floats(1e-150, 1e150))
def test_the_cost_is_rounded_up_and_never_vanishes(ratio: float) -> None:
    exact = 1 / (2 * Fraction(ratio) ** 2)
    assert exact <= Fraction(gaussian_cost(ratio)) <= exact * (1 + Fraction(2, 10**15))


def test_a_budget_that_is_spent_exactly_runs_to_its_last_step() -> None:
    """schedules.md section 12, test 14: sigma^2 = 2, R = 1 runs 2 steps; the strict rule of the paper refuses the second."""
    cost = gaussian_cost(math.sqrt(2.0))
    assert steps_taken(BudgetFilter(0.5), [cost] * 5) == 2
    left, strict = 0.5, 0
    while cost < left:
        left, strict = left - cost, strict + 1
    assert strict == 1


@pytest.mark.slow
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


def test_the_tolerance_is_in_the_guarantee() -> None:
    budget = BudgetFilter(2.0)
    budget.spend(2.0 * (1 + 0.9e-12))
    assert budget.remaining() == 0.0
    assert budget.guarantee().rho >= 2.0 * (1 + 1e-12)
    assert isinstance(budget.guarantee(), ZCDP)
    assert budget.guarantee().rho == pytest.approx(2.0, rel=2e-12)
    with pytest.raises(BudgetExceededError):
        budget.spend(0.2e-11)
    budget.spend(0.0)  # what costs nothing is always allowed


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


@pytest.mark.slow
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
