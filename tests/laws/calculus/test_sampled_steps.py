"""Sampled Gaussian steps against integrals, printed values, each other, and Fourier inversion of the exact law up to 2e7 steps."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
from exact_losses import exact_delta

from lethe.calculus.composition import compose_gdp
from lethe.calculus.guarantees import GDP, NotPrivate
from lethe.calculus.normal import log_mixture
from lethe.calculus.privacy_losses.distributions import compose_losses
from lethe.calculus.sampled.gaussian import SampledGaussian, sampled_factors, sampled_gaussian
from lethe.calculus.sampled.renyi import ORDERS, Design, Relation, round_levels_down


def steps(q: float, z: float, count: int, relation: Relation = "zero_out", design: Design = "poisson") -> SampledGaussian:
    """So many steps at one noise level."""
    return SampledGaussian(sampling_probability=q, noise=(z,), counts=(count,), relation=relation, design=design)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("q", "z", "count", "relation", "design", "delta", "epsilon", "tolerance"),
    [
        (0.01, 1.0, 10_000, "add_or_remove", "poisson", 1e-5, 6.187745, 1e-4),  # peers_accounting.md section 7, h = 1e-4
        (0.01, 1.0, 10_000, "zero_out", "poisson", 1e-5, 6.187745, 1e-4),  # peers_accounting.md section 1b
        (0.01, 1.0, 10_000, "replace_one", "poisson", 1e-5, 10.8808, 1e-4),  # peers_accounting.md section 1b
        # comparators.md section 6.6, Bok et al. Table 1, "comp SGD", mu = 2/z = 2/3; the first lies in the certified [4.4371, 4.4391].
        (0.025, 3.0, 40 * 50, "replace_one", "without_replacement", 1e-5, 4.4381, 1e-3),
        (0.025, 3.0, 40 * 100, "replace_one", "without_replacement", 1e-5, 6.65, 5e-3),
        (0.025, 3.0, 40 * 200, "replace_one", "without_replacement", 1e-5, 10.11, 5e-3),
        (1e-4, 0.4, 10_000, "zero_out", "poisson", 1e-6, 5.3455, 1.5e-3),  # comparators.md section 8: 5.346 with h = 1e-3
        (1e-3, 0.5, 1_000, "zero_out", "poisson", 1e-5, 3.239, 5e-4),  # comparators.md section 8
        (1e-2, 1.0, 100, "zero_out", "poisson", 1e-5, 0.718, 5e-4),  # comparators.md section 8
        # comparators.md section 8 prints .155, which is h = 1e-3; the limit of h -> 0 is .14890.
        (1e-3, 1.0, 1_000, "zero_out", "poisson", 1e-5, 0.14890, 2e-4),
    ],
)
def test_printed_epsilons(
    q: float, z: float, count: int, relation: Relation, design: Design, delta: float, epsilon: float, tolerance: float
) -> None:
    assert steps(q, z, count, relation, design).epsilon(delta) == pytest.approx(epsilon, abs=tolerance)


def test_full_batches_are_gaussian_composition_exactly() -> None:
    noise = [1.0, 2.0, 1.0, 3.7]
    assert sampled_gaussian(1.0, noise, "replace_one", "poisson") == GDP(compose_gdp([2 / z for z in noise]))
    assert sampled_gaussian(1.0, noise, "zero_out", "without_replacement") == GDP(compose_gdp([1 / z for z in noise]))
    whole = steps(1.0, 2.0, 16, "replace_one")
    assert whole.epsilon(1e-5) == GDP(4.0).epsilon(1e-5)
    assert whole.delta(3.0) == GDP(4.0).delta(3.0)


def test_no_sampling_and_no_noise() -> None:
    assert sampled_gaussian(0.0, [0.0, 1.0], "zero_out", "poisson") == GDP(0.0)
    assert steps(0.0, 1.0, 5).epsilon(0.0) == 0.0
    assert sampled_gaussian(0.1, [0.0, 1.0], "zero_out", "poisson") == NotPrivate()


def test_too_many_levels_are_rounded_down_and_say_so() -> None:
    noise = np.linspace(0.8, 1.5, 30_000)
    many = sampled_gaussian(0.01, noise, "zero_out", "poisson")
    assert isinstance(many, SampledGaussian)
    assert "30000 levels rounded down to" in many.describe()
    assert len(many.noise) <= 20_000
    assert sum(many.counts) == 30_000
    assert min(many.noise) == 0.8
    expanded = np.repeat(many.noise, many.counts)
    assert np.all(expanded <= noise)
    assert np.all(expanded >= noise * (1 - 1e-4))  # log(1.5 / .8) / 20 000 is 3e-5


@pytest.mark.parametrize("design", ["poisson", "without_replacement"])
def test_a_gaussian_beside_one_step_is_a_double_integral(design: Design) -> None:
    """By quadrature over the Gaussian's output of the step's exact profile at what is left of epsilon."""
    q, z, mu = 0.2, 1.5, 0.7
    # The pair of Poisson batches, and that of fixed-size ones whose contents are 2 apart.
    noise, relation = (z, "zero_out") if design == "poisson" else (z / 2, "replace_one")
    mechanism = SampledGaussian(sampling_probability=q, noise=(z,), counts=(1,), relation=relation, design=design, gaussian_mu=mu)
    points = np.linspace(-8.0, 8.0, 401)
    losses, weights = mu * points + mu * mu / 2, np.exp(-0.5 * points**2) / np.exp(-0.5 * points**2).sum()
    for epsilon in (0.0, 0.5, 2.0):
        ways = [[float(exact_delta(way, q, noise, mpmath.mpf(epsilon - loss))) for loss in losses.tolist()] for way in ("removed", "added")]
        exact = max(float(weights @ np.array(way)) for way in ways)
        # The kinks of a profile cost the sum about 1e-5. The symmetric profile of a fixed-size batch is a little above its pair.
        assert exact * (1 - 1e-4) <= mechanism.delta(epsilon) <= exact * (1.001 if design == "poisson" else 1.1)
    order = ORDERS.index(4.0)
    alone = steps(q, z, 1, relation, design).renyi_curve().values[order]
    assert mechanism.renyi_curve().values[order] == pytest.approx(alone + 4.0 * mu**2 / 2, rel=1e-11)


def test_the_gaussian_beside_is_counted_where_sampling_hides_all_else() -> None:
    # With q = 1e-5 hardly more than the Gaussian is left; "never drawn" must not hide it.
    for design in ("poisson", "without_replacement"):
        hidden = SampledGaussian(sampling_probability=1e-5, noise=(5.0,), counts=(2,), relation="zero_out", design=design, gaussian_mu=1.0)
        for epsilon in (0.0, 1.0, 3.0):
            assert GDP(1.0).delta(epsilon) <= hidden.delta(epsilon) <= GDP(1.0).delta(epsilon) * 1.001 + 2e-5
    steps_of = partial(SampledGaussian, counts=(9,), relation="replace_one", design="poisson")
    assert steps_of(sampling_probability=0.0, noise=(1.0,), gaussian_mu=1.5).epsilon(1e-5) == GDP(1.5).epsilon(1e-5)
    whole = steps_of(sampling_probability=1.0, noise=(2.0,), gaussian_mu=4.0)
    assert whole.epsilon(1e-5) == pytest.approx(GDP(5.0).epsilon(1e-5), rel=1e-12)
    assert whole.epsilon(1e-5) >= GDP(5.0).epsilon(1e-5)
    huge = steps_of(sampling_probability=0.1, noise=(2.0,), gaussian_mu=1e4)
    assert GDP(1e4).epsilon(1e-5) <= huge.epsilon(1e-5) <= GDP(1e4).epsilon(1e-5) * 1.001


def test_strong_leaks_cost_exactly_the_chance_of_being_drawn() -> None:
    q, count = 0.01, 3
    drawn = 1 - (1 - q) ** count
    assert drawn * (1 - 1e-12) <= steps(q, 1e-3, count).delta(0.0) <= drawn * (1 + 1e-12)
    assert drawn * (1 - 1e-12) <= steps(q, 1e-3, count, "replace_one", "without_replacement").delta(0.0) <= drawn * (1 + 1e-12)


def exact_deltas(q: float, z: float, count: int, relation: Relation, epsilons: list[float], period: float) -> list[float]:
    """The worse direction of the composed profile: the characteristic function of one loss by quadrature, its power, and its inverse.

    Nothing is discretised but the composed loss, on 4096 points of a period that holds it; log1p keeps the digits of millions of steps.
    """
    nodes, weights = np.polynomial.legendre.leggauss(1500)
    x, weights = (12 * z + 1) * nodes, (12 * z + 1) * weights
    density = np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))
    up = log_mixture(q, (x - 0.5) / z**2)
    down = log_mixture(q, (-x - 0.5) / z**2) if relation == "replace_one" else np.zeros_like(x)
    points = 4096
    phases = 2 * math.pi * np.fft.fftfreq(points, period / points)
    sums = np.fft.fftfreq(points, 1 / period)
    worst = np.zeros(len(epsilons))
    for loss, law in ((up - down, density * np.exp(up)), (down - up, density * np.exp(down))):
        angles = phases[:, None] * loss
        less_one = (-2 * np.sin(angles / 2) ** 2 + 1j * np.sin(angles)) @ (weights * law)
        masses = np.real(np.fft.fft(np.exp(count * np.log1p(less_one)))) / points
        worst = np.maximum(worst, [float(masses @ np.maximum(-np.expm1(epsilon - sums), 0.0)) for epsilon in epsilons])
    return worst.tolist()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("q", "z", "count", "relation", "period", "room"),
    [
        # One hundred thousandth of an epsilon may be lost, and a tenth where there are twenty million steps of 1e-7 each.
        (1e-6, 1.0, 10**7, "zero_out", 0.6, 0.03),
        (1e-6, 1.0, 10**7, "replace_one", 0.6, 0.03),
        (1e-6, 4.0, 2 * 10**7, "zero_out", 0.06, 0.12),
        (1e-6, 4.0, 2 * 10**7, "replace_one", 0.06, 0.03),
        (1e-4, 2.0, 2 * 10**7, "add_or_remove", 8.0, 0.003),
        (1e-3, 1.5, 10**5, "replace_one", 12.0, 1e-3),
    ],
)
def test_millions_of_steps_are_just_above_the_exact_law(
    q: float, z: float, count: int, relation: Relation, period: float, room: float
) -> None:
    factors = sampled_factors(steps(q, z, count, relation))
    assert factors is not None
    profile = compose_losses(factors)
    assert profile is not None
    epsilons = [0.0, *(period / part for part in (100.0, 40.0, 25.0))]
    for epsilon, exact in zip(epsilons, exact_deltas(q, z, count, relation, epsilons, period), strict=True):
        # The quadrature and the grid of the sum cost a part in a hundred thousand, and 1e-10.
        assert exact * (1 - 1e-5) - 1e-10 <= profile.delta(epsilon) <= exact * (1 + room) + 2e-15 * (count + 100) + 1e-10


def test_levels_are_lowered_to_the_smallest_of_their_bin_with_all_their_steps() -> None:
    noise = np.array([3.0, 1.0, 1.05, 2.9, 1.9, 1.5])
    levels, counts = round_levels_down(noise, np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 3)
    # Thirds of log 3 end at 1.44 and 2.08.
    assert levels.tolist() == [1.0, 1.5, 2.9]
    assert counts.tolist() == [5.0, 11.0, 5.0]
    many = {"noise": tuple(np.linspace(1.0, 2.0, 400).tolist()), "counts": (2,) * 400, "relation": "zero_out", "design": "poisson"}
    factors = sampled_factors(SampledGaussian(sampling_probability=0.1, gaussian_mu=0.7, **many))  # pyright: ignore[reportArgumentType]
    assert factors is not None
    assert len(factors) <= 129
    assert sum(factor.count for factor in factors) == 801
