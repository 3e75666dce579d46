"""The vertices of two LeastSquares gradients, as differences of vectors laid out by hand, and the profile that must cover them all."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lethe.calculus.conversions import gdp_delta
from lethe.mechanisms.minimisers.objective_perturbation import gradient_vertices, minimiser_profile
from lethe.run.losses import LeastSquares

BOUND, NORM, RIDGE = 1.7, 1.3, 60.0
LOSS = LeastSquares(feature_norm=1.0, residual_bound=BOUND)
DETERMINANT = math.log1p(NORM**2 / RIDGE)
ANGLES = np.linspace(0.0, math.pi, 201)


def corners(angle: float, shorter: float = 1.0) -> np.ndarray:
    """Lengths of a u - b v over both signs of both slopes at their bound, u and v of the largest norm but for `shorter`; longest first."""
    first = NORM * np.array([1.0, 0.0])
    second = shorter * NORM * np.array([math.cos(angle), math.sin(angle)])
    ends = [a * first - b * second for a, b in itertools.product((-BOUND, BOUND), repeat=2)]
    return np.sort(np.linalg.norm(ends, axis=1))[::-1]


@pytest.mark.parametrize("shorter", [1.0, 0.6])
def test_some_case_has_a_vertex_for_every_corner(shorter: float) -> None:
    """All four corners, each no longer than the vertex it is counted as, within one case of the list."""
    listed = [
        sorted((length for length, count in vertices for _ in range(count)), reverse=True)
        for _, vertices in gradient_vertices(LOSS, "replace_one")
    ]
    assert all(curved for curved, _ in gradient_vertices(LOSS, "replace_one"))
    for angle in ANGLES.tolist():
        lengths = corners(angle, shorter) / (BOUND * NORM)
        covering = [case for case in listed if len(case) >= 4 and (np.array(case[:4]) >= lengths - 1e-12).all()]
        assert covering, angle
        if shorter == 1.0:  # and by no more than a cell is wide
            assert min(float(np.max(np.square(case[:4]) - lengths**2)) for case in covering) < 4.0 * 0.5 / 32 + 1e-9


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("noise_std", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("beyond", [-DETERMINANT, -DETERMINANT / 2.0, 0.0, 0.2, 1.0, 3.0])
def test_the_profile_is_the_sum_over_the_four_corners_at_the_worst_angle(beyond: float, noise_std: float) -> None:
    profile = minimiser_profile(LOSS.on_rows(NORM), ridge=RIDGE, noise_std=noise_std, neighbours="replace_one", solver_mu=0.0)
    level = max(beyond, 0.0)

    def at(angle: float) -> float:
        total = min(sum(gdp_delta(length / noise_std, level) for length in corners(angle).tolist()), 1.0)
        return total if beyond >= 0.0 else 1.0 - math.exp(beyond) * (1.0 - total)

    worst = max(at(angle) for angle in ANGLES.tolist())
    found = profile.delta(DETERMINANT + beyond)
    assert worst * (1.0 - 1e-9) <= found <= 1.05 * worst  # a cell is that much wider than its angles


def test_orthogonal_features_can_be_worse_than_parallel_ones() -> None:
    """Where the cases differ most: four corners of one length, against two of the largest and two of none."""
    noise_std = 8.0
    orthogonal, parallel = (sum(gdp_delta(length / noise_std, 0.0) for length in corners(angle).tolist()) for angle in (math.pi / 2.0, 0.0))
    profile = minimiser_profile(LOSS.on_rows(NORM), ridge=RIDGE, noise_std=noise_std, neighbours="replace_one", solver_mu=0.0)
    assert 1.3 * parallel < orthogonal <= profile.delta(DETERMINANT)
