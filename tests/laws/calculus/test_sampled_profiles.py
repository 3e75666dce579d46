"""Profiles of one step on a Poisson batch and on one of fixed size, and the losses made of them, in 45 digits and against dp_accounting."""

import math

import mpmath
import numpy as np
import pytest
from exact_losses import DIGITS, Way, exact_delta, loss_at, profile_on_grid

from lethe.calculus.sampled.profiles import SampledStep, added_delta, fixed_size_delta, removed_delta, replaced_delta, step_losses
from lethe.calculus.sampled.renyi import Design, Relation


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("probability", "noise"), [(0.001, 0.5), (0.02, 1.0), (0.1, 4.0), (0.5, 2.0), (0.9, 0.8), (0.999, 3.0)])
def test_zero_out_is_its_worst_pair_and_no_other_pair_is_worse(probability: float, noise: float) -> None:
    """By integration on a line: the record at 1, another at -1, nothing at 0; and other places, in both directions."""
    line = np.linspace(-1 - 12 * noise, 1 + 12 * noise, 100_001)
    width = float(line[1] - line[0])

    def at(centre: float) -> np.ndarray:
        return np.exp(-0.5 * ((line - centre) / noise) ** 2) * width / noise / math.sqrt(2 * math.pi)

    def hockey(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
        return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())

    generator = np.random.default_rng(1)
    for epsilon in (0.0, 0.01, 0.1, 0.5, 2.0):
        accounted = float(fixed_size_delta(probability, noise, epsilon, "zero_out"))
        exact = hockey((1 - probability) * at(-1) + probability * at(1), (1 - probability) * at(-1) + probability * at(0), epsilon)
        # The grid costs the integral 2e-7 of itself; 1 % too small would be seen.
        assert exact * (1 - 2e-6) <= accounted <= exact * (1 + 2e-6) + 1e-13
        assert accounted <= float(fixed_size_delta(probability, noise, epsilon)) * (1 + 1e-12)
        for record, other in generator.uniform(-1, 1, (6, 2)):
            worlds = [(1 - probability) * at(other) + probability * at(place) for place in (record, 0.0)]
            assert max(hockey(worlds[0], worlds[1], epsilon), hockey(worlds[1], worlds[0], epsilon)) <= accounted + 1e-9


PROFILES = {"removed": removed_delta, "added": added_delta, "replaced": replaced_delta}
WAYS: tuple[Way, ...] = ("removed", "added", "replaced")
PROBABILITIES = (1e-6, 1e-3, 0.03, 0.4, 0.9, 0.999, 1 - 1e-9)
NOISES = (0.3, 0.8, 2.0, 10.0, 50.0, 1e4)
PLACES = np.array([-7.0, -3.0, -1.0, -0.2, 0.0, 0.3, 1.0, 2.5, 5.0, 7.0, 9.5])


def epsilons(way: Way, q: float, z: float) -> np.ndarray:
    """Order 1, orders at its side, and the losses at so many standard deviations."""
    losses = [loss_at(way, q, z, x + (1 / z if x > 0 else 0.0)) for x in PLACES.tolist()]
    return np.array([0.0, 1e-300, 1e-12 * max(losses), *(loss for loss in losses if loss > 0)])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("z", NOISES)
@pytest.mark.parametrize("q", PROBABILITIES)
def test_profiles_are_just_above_the_exact_ones(q: float, z: float, way: Way) -> None:
    levels = epsilons(way, q, z)
    if way == "removed":  # at negative epsilons, of a batch of fixed size, the same in both directions
        mirrored = fixed_size_delta(q, 2 * z, -levels)
        assert mirrored == pytest.approx(1 - np.exp(-levels) * (1 - fixed_size_delta(q, 2 * z, levels)), abs=1e-14)
    with mpmath.workdps(DIGITS):
        for level, value in zip(levels.tolist(), PROFILES[way](q, z, levels).tolist(), strict=True):
            # A grid point may lie half a unit lower than the float that stands for it.
            exact = exact_delta(way, q, z, mpmath.mpf(level) * (1 - mpmath.mpf(2) ** -53))
            assert exact <= value
            assert value <= exact * (1 + mpmath.mpf("2e-15")) + mpmath.mpf("2e-13") * q


@pytest.mark.sampled(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("q", "z"), [(1e-170, 0.05), (1e-30, 0.08), (0.5, 0.05), (1 - 2**-53, 0.1), (1 - 2**-53, 3.0), (1e-300, 0.031)])
def test_profiles_hold_at_the_ends_of_floating_point(q: float, z: float, way: Way) -> None:
    levels = epsilons(way, q, z)
    values = PROFILES[way](q, z, levels)
    with mpmath.workdps(400):
        for level, value in zip(levels.tolist(), values.tolist(), strict=True):
            assert exact_delta(way, q, z, mpmath.mpf(level)) <= value <= q


GRIDS: list[tuple[float, float, float]] = [
    (0.01, 1.0, 0.02),
    (1e-3, 0.8, 0.05),
    (0.4, 0.3, 0.2),
    (0.9, 3.0, 0.02),
    (0.999, 0.8, 0.06),
    (0.1, 50.0, 5e-4),
    (1e-6, 1.0, 1e-4),
    (1e-6, 4.0, 3e-8),
    (0.5, 1e4, 3e-6),
    (0.03, 2.0, 1.0),  # coarser than the losses are wide
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("relation", "design", "ways"),
    [
        ("zero_out", "poisson", ("removed", "added")),
        ("replace_one", "poisson", ("replaced",)),
        ("replace_one", "without_replacement", ("removed",)),  # with half the noise, and the same in both directions
    ],
)
@pytest.mark.parametrize(("q", "z", "interval"), GRIDS)
def test_losses_dominate_the_step_at_every_order_in_both_directions(
    q: float, z: float, interval: float, relation: Relation, design: Design, ways: tuple[Way, ...]
) -> None:
    losses = step_losses([SampledStep(q, z if design == "poisson" else 2.0 * z, relation, design)], interval, 1e-23)
    with mpmath.workdps(DIGITS):
        h = mpmath.mpf(interval)
        for way, one in zip(ways, losses, strict=True):
            for place, value in profile_on_grid(one, interval).items():
                exact = exact_delta(way, q, z, h * abs(place) if design == "without_replacement" else h * place)
                if design == "without_replacement" and place < 0:  # its own mirror image
                    exact = 1 - mpmath.exp(h * place) * (1 - exact)
                # The chords meet the profile at the places where there are any.
                assert exact <= value
                if one.lowest <= place < one.lowest + one.masses.size:
                    assert value <= exact + mpmath.mpf("3e-13") * q + mpmath.mpf("5e-15")
            # Nothing that the last place leaves is forgotten, and nothing is left that was not there.
            last = exact_delta(way, q, z, h * (one.lowest + one.masses.size - 1))
            assert last <= one.infinite <= last + mpmath.mpf("1e-14") * q
            assert mpmath.fsum(one.masses.tolist()) + mpmath.mpf(one.infinite) >= 1
