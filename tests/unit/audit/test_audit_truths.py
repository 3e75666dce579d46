"""Known epsilons: published digits, closed forms, and an independent grid."""

import math

import numpy as np
import pytest
from scipy import special

from lethe.audit.statistics.curves import gaussian_epsilon
from lethe.audit.truths import linear_last_iterate_epsilon, periodic_canary_mus, projected_walk_epsilon
from lethe.calculus.conversions import gdp_delta, gdp_epsilon, gdp_mu
from lethe.errors import InputError


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "q", "noise", "epsilon"), [(100, 1.0, 10.0, 4.377178), (100, 0.1, 1.0, 5.358223), (1000, 0.01, 0.8, 1.663891)]
)
def test_linear_last_iterate_values(steps: int, q: float, noise: float, epsilon: float) -> None:
    found = linear_last_iterate_epsilon(steps=steps, sampling_probability=q, noise_multiplier=noise, delta=1e-5)
    assert found == pytest.approx(epsilon, abs=6e-7)  # six decimals are given


@pytest.mark.slow
def test_linear_last_iterate_on_a_grid() -> None:
    steps, q, noise, epsilon = 7, 0.3, 0.9, 0.8
    x = np.linspace(-25, 32, 400_001)
    sd = noise * math.sqrt(steps)
    without = np.exp(-0.5 * (x / sd) ** 2)
    weights = [math.comb(steps, k) * q**k * (1 - q) ** (steps - k) for k in range(steps + 1)]
    inside = sum(w * np.exp(-0.5 * ((x - k) / sd) ** 2) for k, w in enumerate(weights))
    scale = (x[1] - x[0]) / (sd * math.sqrt(2 * math.pi))
    delta = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() * scale for a, b in ((inside, without), (without, inside)))
    found = linear_last_iterate_epsilon(steps=steps, sampling_probability=q, noise_multiplier=noise, delta=delta)
    assert found == pytest.approx(epsilon, abs=1e-6)  # the grid's kink


def test_a_canary_every_few_steps() -> None:
    last, every = periodic_canary_mus(steps=100, every=5, noise_multiplier=10.0)
    assert gaussian_epsilon(last, 1e-5) == pytest.approx(0.725522, abs=6e-7)  # six decimals are given
    assert gaussian_epsilon(every, 1e-5) == pytest.approx(1.760057, abs=6e-7)
    assert last / every == pytest.approx(1 / math.sqrt(5), rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "epsilon", "composed"),
    [(1, 0.732651, 0.926342), (2, 0.822818, 1.356467), (10, 1.367648, 3.341409), (100, 1.763475, 13.206712), (1000, 1.763475, 64.168810)],
)
def test_projected_walk_values(steps: int, epsilon: float, composed: float) -> None:
    found = projected_walk_epsilon(steps=steps, diameter=1.0, shift=0.05, noise_std=0.2, start=0.5, delta=1e-5)
    assert found == pytest.approx(epsilon, abs=2e-6)  # quadrature across the kink
    assert gdp_epsilon(0.25 * math.sqrt(steps), 1e-5) == pytest.approx(composed, abs=6e-7)


def test_projected_walk_on_a_chain_of_cells() -> None:
    cells, steps, noise, shift = 800, 5, 0.3, 0.1
    edges = np.linspace(0, 1, cells + 1)
    centres = 0.5 * (edges[1:] + edges[:-1])

    def law(move: float) -> np.ndarray:
        masses = np.zeros(cells + 2)
        masses[cells // 4] = 1.0  # the cell of 0.25, near enough below
        places = np.concatenate([[0.0], centres, [1.0]])
        ends = np.concatenate([[-np.inf], edges, [np.inf]])
        moves = np.diff(special.ndtr((ends[:, None] - places - move) / noise), axis=0)
        for _ in range(steps):
            masses = moves @ masses
        return masses

    inside, without, start = law(shift), law(0.0), float(centres[cells // 4 - 1])
    for epsilon in (0.3, 1.0):
        delta = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((inside, without), (without, inside)))
        found = projected_walk_epsilon(steps=steps, diameter=1.0, shift=shift, noise_std=noise, start=start, delta=float(delta))
        assert found == pytest.approx(epsilon, abs=2e-4)  # cells of 1/800


def test_calculus_values() -> None:
    assert gdp_delta(1.0, 1.0) == pytest.approx(0.126937, abs=5e-7)  # six decimals are given
    assert gdp_mu(8.0, 1e-5) == pytest.approx(1.666031, abs=5e-7)


def test_what_is_refused() -> None:
    walk = {"steps": 2, "diameter": 1.0, "shift": 0.1, "noise_std": 0.2, "start": 0.5, "delta": 1e-5}
    for name, value in (("start", 2.0), ("noise_std", 1e-3), ("noise_std", 0.0), ("steps", 0), ("diameter", math.inf), ("shift", math.nan)):
        with pytest.raises(InputError, match=name):
            projected_walk_epsilon(**{**walk, name: value})
    with pytest.raises(InputError, match="every"):
        periodic_canary_mus(steps=3, every=4, noise_multiplier=1.0)
    with pytest.raises(InputError, match="noise_multiplier"):
        linear_last_iterate_epsilon(steps=3, sampling_probability=0.5, noise_multiplier=0.0, delta=1e-5)
