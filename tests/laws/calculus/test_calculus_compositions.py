"""Convolutions of privacy losses, and guarantees of several kinds together: exact laws, closed forms, and where there is no answer."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interop_cases import DELTAS, MIXTURE
from scipy import stats

import lethe
from lethe.calculus.any_guarantee import convolved, together
from lethe.calculus.guarantees import Tightest, WithSlack, stored_fields
from lethe.calculus.privacy_losses.distributions import MOST_STEPS, Factor, Losses, compose_losses
from lethe.calculus.privacy_losses.dominating import dominating_factor
from lethe.calculus.sampled.gaussian import SampledGaussian


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


@pytest.mark.parametrize("count", [3, 10**15])
def test_what_is_of_one_kind_stays_of_it(count: int) -> None:
    gaussian, concentrated = (
        together([(lethe.guarantees.GDP(0.1), count), (lethe.guarantees.GDP(0.2), 1)]),
        together([(lethe.guarantees.ZCDP(0.1), count)]),
    )
    assert isinstance(gaussian, lethe.guarantees.GDP)
    assert isinstance(concentrated, lethe.guarantees.ZCDP)
    mu, rho = math.sqrt(count * 0.1**2 + 0.2**2), count * 0.1
    assert mu * (1 - 1e-15) <= gaussian.mu <= mu * (1 + 1e-14)
    assert rho <= concentrated.rho <= rho * (1 + 1e-14)


def test_a_mixture_with_a_gaussian_is_the_shifted_mixture() -> None:
    exact = lethe.guarantees.GDPMixture(tuple(math.hypot(mu, 0.7) for mu in MIXTURE.mus), MIXTURE.weights)
    both = together([(MIXTURE, 1), (lethe.guarantees.GDP(0.7), 1)])
    for delta in (0.1, 1e-2, 1e-5, 1e-9):
        assert exact.epsilon(delta) <= both.epsilon(delta) <= exact.epsilon(delta) * (1 + 1e-4)


def test_weight_left_out_of_a_mixture_reveals_nothing() -> None:
    part = lethe.guarantees.GDPMixture((2.0,), (0.1,))
    exact = lethe.guarantees.GDPMixture((math.sqrt(8.0), 2.0), (0.01, 0.18))
    for delta in (1e-2, 1e-5):
        assert exact.epsilon(delta) <= together([(part, 2)]).epsilon(delta) <= exact.epsilon(delta) * (1 + 1e-4)


def test_deep_deltas_are_answered_by_renyi_curves() -> None:
    twice = together([(MIXTURE, 2)])
    assert twice.epsilon(1e-40) < math.inf
    assert twice.epsilon(1e-40) >= lethe.guarantees.GDP(math.sqrt(8.0)).epsilon(1e-40 / 0.01)  # of the component of weight 0.01 alone


def test_slack_is_paid_by_each_part() -> None:
    part = WithSlack(lethe.guarantees.GDP(1.0), 1e-6)
    paid, exact = -math.expm1(2 * math.log1p(-1e-6)), lethe.guarantees.GDP(math.sqrt(2.0))
    both = together([(part, 2)])
    for epsilon in (1.0, 3.0, 5.0, 12.0):  # at 12 only the slack is left
        assert (
            (exact.delta(epsilon) * (1 - 1e-6) ** 2 + paid) * (1 - 1e-13)
            <= both.delta(epsilon)
            <= (exact.delta(epsilon) + 2e-6) * (1 + 1e-4)
        )


def test_the_tightest_of_two_composes_no_worse_than_each_and_no_better_than_the_truth() -> None:
    # Both hold for a Gaussian mechanism at distance 1, so its own composition lies below.
    both = Tightest((lethe.guarantees.GDP(1.2), lethe.guarantees.ApproxDP(2.0, lethe.guarantees.GDP(1.0).delta(2.0))))
    truth, looser = lethe.guarantees.GDP(math.sqrt(2.0)), lethe.guarantees.GDP(1.2 * math.sqrt(2.0))
    for delta in (1e-2, 1e-5):
        assert truth.epsilon(delta) <= together([(both, 2)]).epsilon(delta) <= looser.epsilon(delta) * (1 + 1e-4)


@pytest.mark.parametrize(
    "other", [lethe.guarantees.ZCDP(0.125), lethe.guarantees.RDPCurve((1.5, 2.0, 4.0, 8.0, 16.0, 32.0), (0.1875, 0.25, 0.5, 1.0, 2.0, 4.0))]
)
def test_renyi_guarantees_add_up(other: Any) -> None:
    total = together([(lethe.guarantees.GDP(0.5), 1), (other, 1)])
    for delta in DELTAS:
        assert total.epsilon(delta) >= lethe.guarantees.GDP(math.sqrt(0.5)).epsilon(delta)  # the Gaussian with that very curve
        assert total.epsilon(delta) >= max(lethe.guarantees.GDP(0.5).epsilon(delta), other.epsilon(delta))
    if isinstance(other, lethe.guarantees.ZCDP):
        assert total.epsilon(1e-5) <= lethe.guarantees.ZCDP(0.25).epsilon(1e-5) * (1 + 1e-3)  # orders are a grid


def test_every_field_of_a_sampled_gaussian_is_known_where_they_are_merged_and_split() -> None:
    known = {"sampling_probability", "noise", "counts", "relation", "design", "levels_before_rounding", "gaussian_mu"}
    assert set(stored_fields(SampledGaussian)) == known


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", ["poisson", "without_replacement"])
def test_a_gaussian_beside_sampled_steps_is_paid_on_every_way(design: Any) -> None:
    steps = SampledGaussian(sampling_probability=0.1, noise=(1.5, 2.0), counts=(4, 3), relation="zero_out", design=design)
    beside = replace(steps, gaussian_mu=0.8)
    assert together([(steps, 1), (lethe.guarantees.GDP(0.8), 1)]) == beside
    assert together([(beside, 1), (lethe.guarantees.GDP(0.6), 1)]).gaussian_mu == pytest.approx(1.0, rel=1e-12)  # pyright: ignore[reportAttributeAccessIssue]
    split, whole = convolved({beside: 2}), together([(beside, 2)])
    assert split is not None
    for delta in (1e-3, 1e-6):
        assert split.epsilon(delta) == pytest.approx(whole.epsilon(delta), rel=1e-4)


def test_more_levels_than_a_curve_is_worth_are_rounded_down_with_all_their_steps() -> None:
    noise = np.linspace(2.0, 3.0, 1500)
    parts = [
        SampledGaussian(sampling_probability=0.1, noise=tuple(part), counts=(2,) * part.size, relation="zero_out", design="poisson")
        for part in (noise[:800], noise[700:])
    ]
    total = together([(parts[0], 1), (parts[1], 10**15)])
    assert isinstance(total, SampledGaussian)
    assert len(total.noise) <= 1000 < total.levels_before_rounding == 1500
    assert sum(total.counts) == 1600 + 1600 * 10**15
    # With so many steps of the second part, only its own lowest noise tells whether a level was rounded up.
    below = np.array(sorted(total.noise))
    kept = below[np.searchsorted(below, noise, side="right") - 1]
    assert min(total.noise) == 2.0
    assert np.all((kept <= noise) & (kept >= noise * (1 - 1e-3)))
    steps = dict(zip(total.noise, total.counts, strict=True))
    each = np.where(np.arange(1500) < 800, 2, 0) + np.where(np.arange(1500) >= 700, 2 * 10**15, 0)
    for level in total.noise:
        assert steps[level] == each[kept == level].sum()
    assert math.isfinite(total.epsilon(1e-5))
