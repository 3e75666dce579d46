"""The profile of one step on a batch of fixed size, and what its discretisation may not do."""

import math

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.calculus.conversions import gdp_delta
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.calculus.sampled.profiles import fixed_size_delta, fixed_size_losses

CASES = [(0.025, 3.0), (0.01, 1.0), (0.5, 2.0), (0.9, 5.0), (0.1, 40.0), (1e-4, 0.8)]


def log_densities(q: float, mu: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    normal = -(x**2) / 2 - math.log(math.sqrt(2 * math.pi))
    return np.logaddexp(math.log1p(-q) + normal, math.log(q) + normal + mu * x - mu * mu / 2), normal


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("q", "z"), CASES)
def test_profile_is_the_worse_direction_of_an_integral_and_its_mirror(q: float, z: float) -> None:
    mu = 2 / z
    x = np.linspace(-12, 12 + mu, 400_001)
    width = x[1] - x[0]
    mixture, normal = log_densities(q, mu, x)
    for epsilon in (0.0, 1e-3, 0.05, 0.3, 1.0, 2.5):
        exact = [float(np.maximum(np.exp(a) - np.exp(epsilon + b), 0.0).sum() * width) for a, b in ((mixture, normal), (normal, mixture))]
        value = float(fixed_size_delta(q, z, epsilon))
        assert exact[0] >= exact[1] - 1e-9
        assert value == pytest.approx(exact[0], rel=1e-7, abs=1e-9 * q)  # second order in a step of 7e-5 at the kink
        mirror = float(fixed_size_delta(q, z, -epsilon))
        assert mirror == pytest.approx(1 - math.exp(-epsilon) * (1 - value), abs=1e-14)
        # The pair itself, at negative epsilon, is below the symmetric profile in both directions.
        below = [float(np.maximum(np.exp(a) - np.exp(-epsilon + b), 0.0).sum() * width) for a, b in ((mixture, normal), (normal, mixture))]
        assert mirror >= max(below) - 1e-9


@pytest.mark.parametrize("z", [0.5, 2.0, 30.0])
def test_profile_of_full_batches_is_the_gaussian_at_distance_two(z: float) -> None:
    for epsilon in (0.0, 0.1, 1.0, 3.0):
        assert float(fixed_size_delta(1 - 1e-15, z, epsilon)) == pytest.approx(gdp_delta(2 / z, epsilon), rel=1e-9, abs=1e-13)
    assert float(fixed_size_delta(0.3, z, 0.0)) == pytest.approx(0.3 * gdp_delta(2 / z, 0.0), rel=1e-10)


def profile_of(masses: np.ndarray, unbounded: float, interval: float, epsilon: float) -> float:
    losses = (np.arange(masses.size) - masses.size // 2) * interval
    above = losses > epsilon
    return unbounded + float((masses[above] * -np.expm1(epsilon - losses[above])).sum())


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize(("q", "z"), CASES)
@pytest.mark.parametrize("interval", [1e-4, 1e-3, 0.02])
def test_discretised_profile_is_never_below_the_exact_one(q: float, z: float, interval: float) -> None:
    (losses,) = fixed_size_losses(q, z, "replace_one", interval, 1e-23)
    masses, unbounded = losses.masses, losses.infinite
    reach = (masses.size // 2) * interval
    rng = np.random.default_rng(7)
    levels = np.concatenate((rng.uniform(-1.2 * reach, 1.2 * reach, 30), np.round(rng.uniform(-reach, reach, 20) / interval) * interval))
    for epsilon in (*levels.tolist(), 0.0, interval, -interval, reach, -reach):
        # Against the profile before its own rounding up; exact in the last digits of a number near 1 it cannot be.
        exact = float(fixed_size_delta(q, z, epsilon)) * (1 - 1e-13) - 4e-16 - 1e-14 * q
        assert profile_of(masses, unbounded, interval, epsilon) >= exact
    assert 1.0 <= masses.sum() + unbounded <= 1.0 + 1e-9
    at_zero = profile_of(masses, unbounded, interval, 0.0)
    assert at_zero <= float(fixed_size_delta(q, z, 0.0)) * (1 + 1e-9) + 1e-14


@settings(max_examples=examples(50), deadline=None)
@given(st.floats(-20.0, -1e-3), st.floats(-1.5, 8.0), st.floats(-5.0, 5.0))
def test_profile_is_monotone(log_q: float, log_z: float, epsilon: float) -> None:
    q, z = math.exp(log_q), math.exp(log_z)
    value = float(fixed_size_delta(q, z, epsilon))
    assert max(0.0, 1 - math.exp(epsilon)) <= value <= 1.0
    room = 1e-13 * (q if epsilon >= 0 else 1.0)
    assert float(fixed_size_delta(q, 1.05 * z, epsilon)) <= value + room
    assert float(fixed_size_delta(0.95 * q, z, epsilon)) <= value + room
    assert float(fixed_size_delta(q, z, epsilon + 0.01)) <= value + room


@pytest.mark.sampled(3)
@pytest.mark.slow
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


def test_zero_out_with_much_noise_is_as_poisson_batches_are() -> None:
    zeroed, poisson = (
        SampledGaussian(sampling_probability=0.01, noise=(20.0,), counts=(10_000,), relation="zero_out", design=design).epsilon(1e-5)
        for design in ("without_replacement", "poisson")
    )
    replaced = SampledGaussian(
        sampling_probability=0.01, noise=(20.0,), counts=(10_000,), relation="replace_one", design="without_replacement"
    ).epsilon(1e-5)
    assert poisson * (1 - 1e-3) <= zeroed <= poisson * 1.08  # symmetric, so a little above
    assert zeroed < 0.55 * replaced
