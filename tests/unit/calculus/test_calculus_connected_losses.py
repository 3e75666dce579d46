"""Connected dots against the profiles they connect, in 45 digits: no rounding may lose anything, nor add up."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from exact_losses import DIGITS, profile_on_grid
from exact_numbers import Exact

from lethe.calculus.privacy_losses.connected import connected_losses as connected_dots
from lethe.calculus.privacy_losses.connected import even_dots
from lethe.calculus.privacy_losses.distributions import Losses


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
    ("seed", "interval", "above", "below"), [(1, 0.05, 60, 60), (2, 0.3, 4, 9), (3, 1e-4, 150, 100), (4, 1e-9, 80, 80)]
)
def test_no_chord_is_below_the_profile_at_any_order_in_either_direction(seed: int, interval: float, above: int, below: int) -> None:
    with mpmath.workdps(DIGITS):
        one, other = random_pair(seed, 12)
        h = mpmath.mpf(interval)
        bounds = [
            np.array([rounded_up(hockey(*laws, h * place)) for place in range(count + 1)])
            for laws, count in (((one, other), above), ((other, one), below))
        ]
        losses = connected_losses(bounds[0], bounds[1], interval)
        for laws, way in zip(((one, other), (other, one)), losses, strict=True):
            for place, value in profile_on_grid(way, interval).items():
                exact = hockey(*laws, h * place)
                assert exact <= value
                # Between its few kinks this profile is straight, where rounding costs most: a chord that it made steep is continued.
                if way.lowest <= place < way.lowest + way.masses.size:
                    assert value <= exact + mpmath.mpf("1e-12")
            assert float(mpmath.fsum(way.masses.tolist())) + way.infinite >= 1.0


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


@pytest.mark.parametrize("size", [1_000, 300_000])
def test_noise_in_a_profile_does_not_add_up_twice(size: int) -> None:
    interval = 12.0 / size
    levels = interval * np.arange(size + 1)
    # In the tail, nothing but a unit of rounding of the whole is left.
    noisy = 0.1 * np.exp(-3.0 * levels) + np.random.default_rng(1).uniform(0.0, 1e-16, size + 1)
    losses, _ = connected_losses(noisy, noisy, interval)
    reached = losses.infinite + float(losses.masses[size + 1 :] @ -np.expm1(-levels[1:]))
    # A unit a chord; were negative masses set to 0 instead, twice that for a thousand of them, and a thousand times for 300 000.
    assert 0.1 <= reached <= 0.1 + 1e-16 * size
    assert 1.0 <= losses.masses.sum() + losses.infinite <= 1.0 + 2e-16 * size


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


@pytest.mark.parametrize("noise", [1e-15, 1e-6, 1e-2])
@pytest.mark.parametrize("seed", range(6))
def test_bounds_of_any_shape_are_never_undercut(seed: int, noise: float) -> None:
    """Above the profile by chance: rising at their ends, concave, and unequal at order 1, as only one number could be."""
    interval, generator = 0.03, np.random.default_rng(seed)
    with mpmath.workdps(DIGITS):
        one, other = random_pair(seed, 12)
        pairs = ((one, other), (other, one))
        bounds = [
            np.array([rounded_up(hockey(*laws, mpmath.mpf(interval) * place)) for place in range(25)]) + generator.uniform(0.0, noise, 25)
            for laws in pairs
        ]
        for side in bounds:
            side[-1] = side[-2] + noise
        for laws, way in zip(pairs, connected_losses(bounds[0], bounds[1], interval), strict=True):
            assert np.all(way.masses >= 0.0)
            for place, value in profile_on_grid(way, interval).items():
                assert hockey(*laws, mpmath.mpf(interval) * place) <= value
