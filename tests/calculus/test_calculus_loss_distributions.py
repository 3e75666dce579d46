"""Convolutions of discrete privacy losses: exact laws, what rounding loses, and where there is no answer."""

import math

import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import SparsePLDPmf
from how_many import by_night
from scipy import stats

import lethe
from lethe.calculus.privacy_losses.distributions import MOST_STEPS, Factor, Losses, compose_losses, self_composed
from lethe.calculus.privacy_losses.dominating import dominating_factor


def factor(losses: Losses, count: int, width: float = 0.1) -> Factor:
    return Factor(width=width, deviation=width / 8, count=count, losses=lambda _: (losses,))


@pytest.mark.parametrize(("chance", "count"), [(0.3, 50), (1e-3, 10**4), (1e-6, 10**7), (0.5, MOST_STEPS), (1e-9, MOST_STEPS)])
def test_two_points_become_the_binomial_law(chance: float, count: int) -> None:
    power = self_composed(Losses(-1, np.array([1 - chance, 0.0, 0.0, chance]), 0.0), count)
    assert power is not None
    places = power.lowest + np.arange(power.masses.size)
    hits, rest = np.divmod(places + count, 3)  # -1 and 2 are the losses
    exact = np.where(rest == 0, stats.binom.pmf(hits, count, chance), 0.0)
    tails = np.cumsum((power.masses - exact)[::-1])
    # The allowance of a profile covers what every tail has lost; ten times it what scipy's pmf is off.
    assert tails.min() >= -2e-15 * (count + 100)
    assert np.abs(tails).max() <= 2e-14 * (count + 100)
    assert 1e-15 <= power.infinite <= 1.1e-15


def test_sparse_masses_compose_as_dp_accounting_composes_them() -> None:
    sparse = {-7: 0.2, 0: 0.5, 3: 0.1, 11: 0.15}
    masses = np.zeros(19)
    masses[[key + 7 for key in sparse]] = list(sparse.values())
    for count in (1, 2, 3, 4, 9):
        theirs = SparsePLDPmf(sparse, 0.1, 0.05, True).self_compose(count)
        ours = self_composed(Losses(-7, masses, 0.05), count)
        assert ours is not None
        places = (ours.lowest + np.arange(ours.masses.size)) * 0.1
        for epsilon in (0.0, 0.25, 1.0, 3.0):
            delta = ours.infinite + float(ours.masses @ np.maximum(-np.expm1(epsilon - places), 0.0))
            assert delta == pytest.approx(float(theirs.get_delta_for_epsilon(epsilon)), rel=1e-12)


def test_infinite_and_missing_mass_is_infinite_in_every_step() -> None:
    power = self_composed(Losses(0, np.array([0.5, 0.5 - 1e-6]), 1e-6), 10**5)
    assert power is not None
    assert power.infinite == pytest.approx(1 - math.exp(-0.1), rel=1e-5)
    lost = self_composed(Losses(0, np.array([0.5, 0.4]), 0.05), 3)
    assert lost is not None
    assert lost.infinite == pytest.approx(1 - 0.9**3, rel=1e-12)
    once = self_composed(Losses(0, np.array([0.5, 0.4]), 0.05), 1)
    assert once is not None
    assert once.infinite == pytest.approx(0.1, rel=1e-12)
    composed = compose_losses([factor(Losses(0, np.array([0.5, 0.4]), 0.1), 3), factor(Losses(0, np.array([0.8]), 0.2), 1)])
    assert composed is not None
    assert composed.delta(math.inf) == composed.delta(1e200) == pytest.approx(1 - 0.9**3 * 0.8, rel=1e-11)


@pytest.mark.parametrize(
    ("losses", "count"),
    [
        (Losses(0, np.array([0.0]), 1.0), 2),
        (Losses(0, np.array([0.0, 0.0]), 0.0), 2),
        (Losses(0, np.array([0.5, 0.5 + 1e-6]), 0.0), 10**7),  # rounding noise would have multiplied all mass by 20 000
        (Losses(0, np.array([0.5, *np.zeros(10**5), 0.5]), 0.0), 10**5),  # three hundred million points
        (Losses(0, np.array([1.0]), 0.0), MOST_STEPS + 1),
        (Losses(0, np.array([1.0]), 0.0), 10**400),
    ],
)
def test_there_is_no_answer_where_it_would_say_nothing(losses: Losses, count: int) -> None:
    assert compose_losses([factor(losses, count)]) is None


@pytest.mark.slow
@pytest.mark.parametrize("count", [10**3, 10**5, 10**6, MOST_STEPS])
def test_randomised_responses_are_never_below_the_binomial_sum(count: int) -> None:
    # Its loss is +-h, on the grid, so that nothing but the transforms is between the two.
    used = list[float]()

    def losses(interval: float) -> tuple[Losses, ...]:
        used.append(interval)
        return (Losses(-1, np.array([1.0, 0.0, math.exp(interval)]) / (1.0 + math.exp(interval)), 0.0),)

    profile = compose_losses([Factor(width=0.1, deviation=0.01 / math.sqrt(count), count=count, losses=losses)])
    assert profile is not None
    interval, spread = used[0], math.sqrt(count)
    yes = np.longdouble(1.0) / (1.0 + np.exp(np.longdouble(-interval)))
    hits = np.arange(max(0, int(count / 2 - 10 * spread)), min(count, int(count / 2 + 10 * spread)) + 1, dtype=np.longdouble)
    # Ratios of neighbouring binomial masses, in extended precision.
    logs = np.concatenate(([0], np.cumsum(np.log((count - hits[:-1]) / (hits[:-1] + 1) * yes / (1 - yes)))))
    masses = np.exp(logs - logs.max())
    masses /= masses.sum()
    sums = (2 * hits - count) * interval
    missed = []
    for epsilon in np.linspace(0.0, 9 * spread * interval, 200 if by_night() else 30):
        exact = masses @ np.maximum(-np.expm1(np.longdouble(epsilon) - sums), 0.0)
        assert exact * (1 - 1e-15) <= profile.delta(epsilon) <= exact + 2 * profile.allowance
        missed.append(float(exact - profile.delta(epsilon)) + profile.allowance)
    # Without the allowance twenty million steps would be below, by no more than a fifth of it.
    assert max(missed) <= profile.allowance / 5


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 10**4, 10**6, MOST_STEPS])
def test_gaussians_are_never_below_the_exact_composition(count: int) -> None:
    total = compose_losses([dominating_factor(lethe.GDP(1.0 / math.sqrt(count)), count)])
    assert total is not None
    for epsilon in np.linspace(0.0, 10.0, 51):
        exact = lethe.GDP(1.0).delta(epsilon)
        # A thousandth of the value, 3e-15 a step; and twenty million steps are discretised to 1e-4 of an epsilon.
        assert exact * (1 - 1e-9) <= total.delta(epsilon) <= lethe.GDP(1.0).delta(max(epsilon - 2e-4, 0.0)) * 1.001 + 3e-15 * (count + 100)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, None])
def test_epsilons_out_of_range_are_refused(epsilon: float) -> None:
    profile = compose_losses([factor(Losses(0, np.array([1.0]), 0.0), 1)])
    assert profile is not None
    with pytest.raises(lethe.InputError):
        profile.delta(epsilon)
    assert "losses" in profile.describe()
