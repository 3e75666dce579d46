"""Connected dots, sums on a grid and discrete dominating losses: never below what they stand for, in 45 digits and by brute force."""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from exact_losses import DIGITS, profile_on_grid
from exact_numbers import Exact
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import lethe
from lethe.calculus.guarantees import Tightest, WithSlack
from lethe.calculus.privacy_losses.convolution import Law, steepness, sum_ends, summed, tilted
from lethe.calculus.privacy_losses.distributions import Losses
from lethe.calculus.privacy_losses.dominating import connected_losses as connected_dots
from lethe.calculus.privacy_losses.dominating import dominating_factor, even_dots


def connected_losses(above: np.ndarray, below: np.ndarray, interval: float) -> tuple[Losses, Losses]:
    """Bounds at every place of the grid."""
    return connected_dots(even_dots(above), even_dots(below), interval)


def random_pair(seed: int, size: int) -> tuple[list[Exact], list[Exact]]:
    """Two laws on a few points, of mass exactly 1 each; one point is impossible under the second, one under the first."""
    generator = np.random.default_rng(seed)
    laws = []
    for missing in (0, size - 1):
        weights = [mpmath.mpf(weight) for weight in generator.uniform(0.1, 1.0, size).tolist()]
        weights[missing] = mpmath.mpf(0)
        laws.append([weight / mpmath.fsum(weights) for weight in weights])
    return laws[0], laws[1]


def hockey(one: list[Exact], other: list[Exact], epsilon: Exact) -> Exact:
    order = mpmath.exp(epsilon)
    return mpmath.fsum(max(a - order * b, mpmath.mpf(0)) for a, b in zip(one, other, strict=True))


def rounded_up(value: Exact) -> float:
    nearest = float(value)
    return nearest if mpmath.mpf(nearest) >= value else math.nextafter(nearest, math.inf)


@pytest.mark.parametrize(
    ("seed", "interval", "above", "below", "noise"),
    [
        *((1, 0.05, 60, 60, 0.0), (2, 0.3, 4, 9, 0.0), (3, 1e-4, 150, 100, 0.0), (4, 1e-9, 80, 80, 0.0)),
        *((seed, 0.03, 24, 24, noise) for seed in range(6) for noise in (1e-15, 1e-6, 1e-2)),
    ],
)
def test_no_chord_is_below_the_profile_at_any_order_in_either_direction(
    seed: int, interval: float, above: int, below: int, noise: float
) -> None:
    """With noise the bounds are above the profile by chance: rising at their ends, concave, and unequal at order 1, as no profile is."""
    with mpmath.workdps(DIGITS):
        one, other = random_pair(seed, 12)
        h, generator = mpmath.mpf(interval), np.random.default_rng(seed)
        ways = (one, other), (other, one)
        bounds = [
            np.array([rounded_up(hockey(*laws, h * place)) for place in range(count + 1)]) + generator.uniform(0.0, noise, count + 1)
            for laws, count in zip(ways, (above, below), strict=True)
        ]
        if noise > 0.0:
            for side in bounds:
                side[-1] = side[-2] + noise
        for laws, way in zip(ways, connected_losses(bounds[0], bounds[1], interval), strict=True):
            assert np.all(way.masses >= 0.0)
            assert float(mpmath.fsum(way.masses.tolist())) + way.infinite >= 1.0
            for place, value in profile_on_grid(way, interval).items():
                exact = hockey(*laws, h * place)
                assert exact <= value
                # Between its few kinks this profile is straight, where rounding costs most: a chord that it made steep is continued.
                if noise == 0.0 and way.lowest <= place < way.lowest + way.masses.size:
                    assert value <= exact + mpmath.mpf("1e-12")


def test_masses_are_those_of_connect_the_dots() -> None:
    interval = 0.05
    with mpmath.workdps(DIGITS):
        one, other = random_pair(5, 12)
        exact = [float(hockey(one, other, mpmath.mpf(interval) * place)) for place in range(-30, 31)]
        opposite = [float(hockey(other, one, mpmath.mpf(interval) * place)) for place in range(31)]
    places = np.arange(-30, 31)
    theirs = pld_pmf.create_pmf_pessimistic_connect_dots(interval, places, np.array(exact)).to_dense_pmf()
    ours, mirrored = connected_losses(np.array(exact[30:]), np.array(opposite), interval)
    assert ours.lowest == mirrored.lowest == -30
    # Chords below the lowest place differ: what is left there is at infinity in the other direction.
    assert ours.masses == pytest.approx(theirs._probs, abs=1e-13)
    assert ours.infinite == pytest.approx(theirs._infinity_mass, rel=1e-12)
    assert mirrored.masses[::-1] == pytest.approx(ours.masses * np.exp(-interval * places), rel=1e-12)


def test_a_profile_that_is_not_convex_is_raised_and_nothing_else() -> None:
    bounds, interval = np.array([0.5, 0.4, 0.39, 0.2, 0.1]), 0.1
    for way in connected_losses(bounds, np.array([0.45, 0.3, 0.2]), interval):
        assert np.all(way.masses >= 0.0)
    first, _ = connected_losses(bounds, np.array([0.45, 0.3, 0.2]), interval)
    with mpmath.workdps(DIGITS):
        values = profile_on_grid(first, interval)
        # Between 0.4 and 0.2 the profile would have turned; the chord of the steep part is continued to the left.
        assert [float(values[place]) for place in (2, 3, 4)] == pytest.approx([0.39, 0.2, 0.1], rel=1e-12)
        assert float(values[1]) == pytest.approx(0.39 + 0.19 * math.exp(-0.1), rel=1e-12)
        assert float(values[0]) >= 0.5


WEIGHTS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).filter(lambda one: sum(one) > 1e-3)


def brute_force(laws: list[Law]) -> np.ndarray:
    found = np.ones(1)
    for law in laws:
        for _ in range(law.copies):
            found = np.convolve(found, law.masses)
    return found


@settings(max_examples=examples(60))
@given(WEIGHTS, WEIGHTS, st.integers(1, 25), st.integers(1, 25), st.floats(1e-12, 0.5))
def test_beside_the_ends_there_is_no_more_than_the_tail(one: list[float], other: list[float], count: int, times: int, tail: float) -> None:
    laws = [Law(0, np.array(one) / math.fsum(one), count), Law(-3, np.array(other) / math.fsum(other), times)]
    first, last = sum_ends(tilted(laws, 0.0), tail)
    whole = brute_force(laws)
    assert 0 <= first <= last <= whole.size - 1
    assert whole[:first].sum() <= tail / 2 + 1e-13
    assert whole[last + 1 :].sum() <= tail / 2 + 1e-13
    assert summed(laws, 0, whole.size) == pytest.approx(whole, abs=1e-14)


def test_ends_of_heavy_tails_are_where_the_law_ends_at_the_latest() -> None:
    # One in a million is a thousand times as large as all else: the best order is far below that of a normal law.
    masses = np.zeros(100_001)
    masses[[0, -1]] = 1 - 1e-6, 1e-6
    _, last = sum_ends(tilted([Law(0, masses, 1000)], 0.0), 1e-15)
    assert 100_000 * 3 <= last <= 100_000 * 8  # the third hit has probability 2e-10, the sixth 1e-21


@pytest.mark.parametrize(("chance", "count", "exponent"), [(0.3, 50, 5.0), (0.3, 50, 30.0), (1e-3, 10**4, 72.0), (1e-6, 10**7, 200.0)])
def test_tails_keep_their_digits(chance: float, count: int, exponent: float) -> None:
    laws = [Law(-1, np.array([1.0 - chance, 0.0, 0.0, chance]), count)]
    slope = steepness(laws, exponent)
    parts = tilted(laws, slope)
    first, last = sum_ends(parts, 1e-13)
    masses = summed(parts.laws, first, last - first + 1)
    middle = int(np.argmax(masses))
    with mpmath.workdps(60):
        yes, rest = mpmath.mpf(chance), 1 - mpmath.mpf(1.0 - chance)
        assert rest == pytest.approx(chance)
        for place in range(middle - 6, middle + 7):
            hits, odd = divmod(place + first, 3)
            exact = mpmath.binomial(count, hits) * yes**hits * mpmath.mpf(1.0 - chance) ** (count - hits) if odd == 0 else mpmath.mpf(0)
            # Tilted back: what is lost is a share of the whole tilted law.
            back = mpmath.exp(mpmath.mpf(parts.log_scale) - mpmath.mpf(slope) * (place + first - count))
            off = float(mpmath.mpf(float(masses[place])) - exact / back)
            assert -1e-13 - 2e-15 * count <= off <= 2e-13 * count * masses[place] + 1e-13 + 2e-15 * count
        # And the middle is about as rare as was wanted.
        tail = -float(mpmath.log(mpmath.exp(mpmath.mpf(parts.log_scale) - mpmath.mpf(slope) * (middle + first - count))))
        assert tail == pytest.approx(exponent, rel=0.15)


def test_a_law_that_is_nowhere_that_rare_is_tilted_as_far_as_it_goes() -> None:
    assert steepness([Law(0, np.array([0.5, 0.5]), 1)], 13.0) == 30.0
    assert steepness([Law(0, np.array([1.0]), 7)], 13.0) == 30.0


INTERVAL = 1e-3
LEVELS = (0.0, 1e-4, 0.3, 0.3005, 0.99, 1.7, 3.0, 6.0, 40.0)


def profile(guarantee: lethe.guarantees.Guarantee, epsilon: float) -> float:
    """Delta by its definition, and the same in the other direction, which the mirror image must agree with."""
    (losses,) = dominating_factor(guarantee, 1).losses(INTERVAL, 1e-16)
    assert isinstance(losses, Losses)
    places = (losses.lowest + np.arange(losses.masses.size)) * INTERVAL
    ahead = losses.infinite + float(losses.masses @ np.maximum(-np.expm1(epsilon - places), 0.0))
    back = losses.infinite + float(losses.masses @ np.maximum(np.exp(-places) - math.exp(epsilon), 0.0))
    assert back == pytest.approx(ahead, rel=1e-9, abs=1e-12)
    assert losses.masses.sum() + losses.infinite == pytest.approx(1.0, abs=1e-11)
    return ahead


GAUSSIAN = lethe.guarantees.GDP
MET: list[tuple[lethe.guarantees.Guarantee, Callable[[float], float]]] = [
    *((GAUSSIAN(mu), GAUSSIAN(mu).delta) for mu in (0.1, 1.0, 4.0)),
    # Weight that is missing reveals nothing.
    (
        lethe.guarantees.GDPMixture((0.3, 2.0), (0.6, 0.1)),
        lambda level: 0.6 * GAUSSIAN(0.3).delta(level) + 0.1 * GAUSSIAN(2.0).delta(level),
    ),
    # Fails with this probability, and says all.
    (WithSlack(GAUSSIAN(1.0), 1e-3), lambda level: (1 - 1e-3) * GAUSSIAN(1.0).delta(level) + 1e-3),
]


@pytest.mark.parametrize(("guarantee", "exact"), MET)
def test_profiles_are_met(guarantee: lethe.guarantees.Guarantee, exact: Callable[[float], float]) -> None:
    room = 1 + (4e-3 if isinstance(guarantee, WithSlack) else 1e-3)
    for epsilon in LEVELS:
        assert exact(epsilon) * (1 - 1e-9) - 1e-15 <= profile(guarantee, epsilon) <= exact(epsilon) * room + 1e-15


@pytest.mark.parametrize(("epsilon_bound", "delta_bound"), [(1.0, 0.1), (1.0, 0.0), (3.0, 1e-6), (0.0, 0.2)])
def test_a_single_point_is_its_extreme_mechanism(epsilon_bound: float, delta_bound: float) -> None:
    # Randomised response that tells the truth aloud with probability delta: Kairouz, Oh, Viswanath 2015, arXiv:1311.0776.
    for epsilon in LEVELS:
        honest = max(math.exp(epsilon_bound) - math.exp(epsilon), 0.0) / (math.exp(epsilon_bound) + 1.0)
        exact = delta_bound + (1.0 - delta_bound) * honest
        # Its kink may lie within a grid interval of a thousandth.
        assert exact * (1 - 1e-12) <= profile(lethe.guarantees.ApproxDP(epsilon_bound, delta_bound), epsilon) <= exact * (1 + 1e-12) + 1e-3


def test_of_several_bounds_the_convex_hull_counts() -> None:
    both = Tightest((lethe.guarantees.GDP(2.0), WithSlack(lethe.guarantees.GDP(1.0), 1e-3)))
    for epsilon in LEVELS:
        least = lethe.guarantees.GDP(1.0).delta(epsilon)  # has both guarantees
        most = min(part.delta(epsilon) for part in both.parts)
        assert least * (1 - 1e-9) - 1e-15 <= profile(both, epsilon) <= most * (1 + 1e-3) + 1e-15
    # The Gaussian at distance 2 has less than the slack from 6 on.
    assert profile(both, 40.0) < 1e-15


def test_losses_beyond_all_use_count_as_infinite() -> None:
    assert profile(lethe.guarantees.GDP(60.0), 40.0) >= lethe.guarantees.GDP(60.0).delta(40.0) * (1 - 1e-9)
    (losses,) = dominating_factor(lethe.guarantees.GDP(60.0), 1).losses(0.01, 1e-16)
    assert losses.infinite >= lethe.guarantees.GDP(60.0).delta(500.0)
