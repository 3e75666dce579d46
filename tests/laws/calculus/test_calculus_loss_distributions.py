"""Convolutions of discrete privacy losses: exact laws, what rounding loses, and where there is no answer."""

import math

import numpy as np
import pytest
from how_many import by_night
from scipy import stats

import lethe
from lethe.calculus.privacy_losses.distributions import MOST_STEPS, Factor, Losses, compose_losses
from lethe.calculus.privacy_losses.dominating import dominating_factor


def factor(losses: Losses, count: int, width: float = 0.1) -> Factor:
    return Factor(width=lambda _: width, deviation=width / 8, count=count, losses=lambda _, __: (losses,))


def binomial_losses(chance: float, interval: float) -> tuple[Losses, ...]:
    """Two losses, -h and 2 h."""
    return (Losses(-1, np.array([1 - chance, 0.0, 0.0, chance]), 0.0),)


@pytest.mark.parametrize(("chance", "count"), [(0.3, 50), (1e-3, 10**4), (1e-6, 10**7), (0.5, MOST_STEPS), (1e-9, MOST_STEPS)])
def test_two_points_become_the_binomial_law(chance: float, count: int) -> None:
    used = list[float]()

    def losses(interval: float, _: float) -> tuple[Losses, ...]:
        used.append(interval)
        return binomial_losses(chance, interval)

    deviation = 3e-4 * math.sqrt(chance * (1 - chance))
    profile = compose_losses([Factor(width=lambda _: 3e-4, deviation=deviation, count=count, losses=losses)])
    assert profile is not None
    profile.delta(0.0)
    interval = used[0]
    assert used == [interval] * len(used)
    middle, spread = count * chance, math.sqrt(count * chance * (1 - chance))
    for hits in {max(round(middle + away * spread), 0) for away in (-1, 0.5, 2, 4, 6, 8, 11)}:
        epsilon = (3 * hits - count) * interval
        if epsilon < 0.0:
            continue
        above = np.arange(hits + 1, hits + 40 + int(20 * spread))
        above = above[above <= count]
        exact = float(stats.binom.pmf(above, count, chance) @ -np.expm1((hits - above) * 3 * interval))
        # Relative, down to 1e-28. The first is what scipy's pmf is off; the second what the allowance is, for as small losses as these.
        assert exact * (1 - 1e-9) <= profile.delta(epsilon) <= exact * (1 + 1e-3 + 5e-9 * count) + 1e-63


def test_infinite_mass_is_infinite_in_every_step() -> None:
    alone = compose_losses([factor(Losses(0, np.array([0.5, 0.5 - 1e-6]), 1e-6), 10**5)])
    assert alone is not None
    assert alone.delta(math.inf) == pytest.approx(1 - math.exp(-0.1), rel=1e-5)
    composed = compose_losses([factor(Losses(0, np.array([0.5, 0.4]), 0.1), 3), factor(Losses(0, np.array([0.8]), 0.2), 1)])
    assert composed is not None
    assert composed.delta(math.inf) == composed.delta(1e200) == pytest.approx(1 - 0.9**3 * 0.8, rel=1e-11)


@pytest.mark.parametrize(
    ("losses", "count"),
    [
        (Losses(0, np.array([0.0]), 1.0), 2),
        (Losses(0, np.array([0.0, 0.0]), 0.0), 2),
        (Losses(0, np.array([math.nan, 0.5]), 0.0), 2),
        (Losses(0, np.array([math.inf, 0.5]), 0.0), 2),
    ],
)
def test_what_is_no_number_or_all_infinite_says_nothing(losses: Losses, count: int) -> None:
    profile = compose_losses([factor(losses, count)])
    assert profile is not None
    assert profile.delta(0.0) == profile.delta(1e300) == 1.0
    assert profile.epsilon(1e-5) == profile.epsilon(0.5) == math.inf


@pytest.mark.parametrize("count", [MOST_STEPS + 1, 10**400])
def test_too_many_steps_have_no_profile(count: int) -> None:
    assert compose_losses([factor(Losses(0, np.array([1.0]), 0.0), count)]) is None


def test_delta_never_rises_and_is_the_inverse_of_epsilon_across_all_tilts() -> None:
    profile = compose_losses([dominating_factor(lethe.guarantees.GDP(0.05), 400)])
    assert profile is not None
    deltas = [profile.delta(epsilon) for epsilon in np.linspace(0.0, 18.0, 300)]
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[0] > 0.3
    assert deltas[-1] < 1e-65
    targets = np.geomspace(0.5, 1e-60, 400)
    epsilons = [profile.epsilon(target) for target in targets]
    assert epsilons == sorted(epsilons)
    for target, epsilon in zip(targets.tolist(), epsilons, strict=True):
        assert profile.delta(epsilon) <= target
        exact = lethe.guarantees.GDP(1.0).epsilon(target)
        assert exact * (1 - 1e-9) <= epsilon <= exact * (1 + 3e-4) + 1e-4


@pytest.mark.parametrize("count", [10**3, 10**5, 10**6, MOST_STEPS])
def test_randomised_responses_are_never_below_the_binomial_sum(count: int) -> None:
    # Its loss is +-h, on the grid, so that nothing but the transforms is between the two.
    used = list[float]()

    def losses(interval: float, _: float) -> tuple[Losses, ...]:
        used.append(interval)
        return (Losses(-1, np.array([1.0, 0.0, math.exp(interval)]) / (1.0 + math.exp(interval)), 0.0),)

    profile = compose_losses([Factor(width=lambda _: 0.1, deviation=0.01 / math.sqrt(count), count=count, losses=losses)])
    assert profile is not None
    profile.delta(0.0)
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
        for tilt in (tilt for index in (0, 1, 2) for tilt in profile._at(index)):
            found, allowed = tilt.delta(epsilon), tilt.chernoff(epsilon) * tilt.allowance
            assert exact * (1 - 1e-12) <= found <= exact * (1 + 3e-13 * count) + 2 * allowed
            missed.append((float(exact - found) + allowed) / allowed)
    # Without the allowance twenty million steps would be below, by no more than a fifth of it.
    assert max(missed) <= 1 / 5


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [1, 10**4, 10**6, MOST_STEPS])
def test_gaussians_are_never_below_the_exact_composition(count: int) -> None:
    total = compose_losses([dominating_factor(lethe.guarantees.GDP(1.0 / math.sqrt(count)), count)])
    assert total is not None
    for epsilon in np.linspace(0.0, 10.0, 51):
        exact = lethe.guarantees.GDP(1.0).delta(epsilon)
        # A thousandth of the value, 3e-15 a step; and twenty million steps are discretised to 1e-4 of an epsilon.
        assert (
            exact * (1 - 1e-9)
            <= total.delta(epsilon)
            <= lethe.guarantees.GDP(1.0).delta(max(epsilon - 2e-4, 0.0)) * 1.001 + 3e-15 * (count + 100)
        )
