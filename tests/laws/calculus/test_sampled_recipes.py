"""Recipes of sampled Gaussian steps, and their losses against Fourier inversion of the exact law, up to twenty million steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled_cases import steps

from lethe.calculus.normal import log_mixture
from lethe.calculus.privacy_losses.distributions import compose_losses
from lethe.calculus.sampled.gaussian import SampledGaussian, sampled_factors
from lethe.calculus.sampled.renyi import Design, Relation, round_levels_down


def test_strong_leaks_cost_exactly_the_chance_of_being_drawn() -> None:
    q, count = 0.01, 3
    drawn = 1 - (1 - q) ** count
    assert drawn * (1 - 1e-12) <= steps(q, 1e-3, count).delta(0.0) <= drawn * (1 + 1e-12)
    assert drawn * (1 - 1e-12) <= steps(q, 1e-3, count, "replace_one", "without_replacement").delta(0.0) <= drawn * (1 + 1e-12)


@settings(max_examples=2, deadline=None)
@given(
    q=st.floats(0.01, 0.6),
    z=st.floats(0.8, 4.0),
    count=st.integers(1, 12),
    mu=st.sampled_from([0.0, 0.3]),
    design=st.sampled_from(["poisson", "without_replacement"]),
)
def test_more_noise_fewer_steps_rarer_batches_and_no_gaussian_never_cost_more(
    q: float, z: float, count: int, mu: float, design: Design
) -> None:
    def delta(q: float, z: float, count: int, mu: float) -> float:
        return SampledGaussian(
            sampling_probability=q, noise=(z,), counts=(count,), relation="zero_out", design=design, gaussian_mu=mu
        ).delta(0.5)

    # 1e-6 of room, and the allowance for floating point: two discretisations of one curve need not be ordered to the last digit.
    base = delta(q, z, count, mu) * (1 + 1e-6) + 1e-12
    assert delta(q, z * 1.1, count, mu) <= base
    assert delta(q * 0.9, z, count, mu) <= base
    assert delta(q, z, max(count - 1, 1), mu) <= base
    assert delta(q, z, count, 0.0) <= base


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
