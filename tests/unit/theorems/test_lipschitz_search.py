"""The clipped step's constant from both sides: adversaries that nearly reach it, losses that never exceed it."""

from __future__ import annotations

from math import acos, cos, sin, sqrt

import numpy as np
import pytest
from scipy.optimize import minimize

from lethe.theorems.lipschitz import clipped_step, generalised_linear_step

CURVATURES = [
    (0.0, 0.5),
    (0.0, 1.0),
    (0.0, 2.0),
    (0.0, 3.0),
    (0.1, 0.5),
    (0.25, 1.0),
    (0.25, 0.25),
    (-0.2, 1.0),
    (-0.5, 3.0),
    (1.0, 0.5),
    (0.3, 5.0),
]


def projection(parameters: np.ndarray, dimension: int, rank: int) -> np.ndarray:
    basis, _ = np.linalg.qr(parameters.reshape(dimension, dimension))
    return basis[:, :rank] @ basis[:, :rank].T


@pytest.mark.sampled(10)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimension", "a", "h"),
    [
        (dimension, *CURVATURES[k])
        for k in range(len(CURVATURES))
        for dimension in ((2, 3) if k % 3 == 0 else (2, 4) if k % 3 == 1 else (2,))
    ],
)
def test_projections_and_hessians_reach_it_and_never_exceed_it(dimension: int, a: float, h: float) -> None:
    generator = np.random.default_rng(dimension)
    constant = clipped_step(1.0, a, h)
    size = dimension * dimension
    reached = 1.0

    def norm(parameters: np.ndarray, ranks: tuple[int, int]) -> float:
        high = projection(parameters[size:], dimension, ranks[1])
        hessian = (a + h) * high - a * np.eye(dimension)
        return float(np.linalg.norm(np.eye(dimension) - projection(parameters[:size], dimension, ranks[0]) @ hessian, 2))

    for ranks in np.ndindex(dimension + 1, dimension + 1):
        start = generator.standard_normal(2 * size)
        found = minimize(lambda x, ranks=ranks: -norm(x, ranks), start, method="Powell", options={"maxfev": 800})
        reached = max(reached, norm(found.x, ranks))
    for _ in range(200):  # neither extreme: any symmetric matrices between the ends
        left, right = (np.linalg.qr(generator.standard_normal((dimension, dimension)))[0] for _ in range(2))
        mean = left @ np.diag(generator.uniform(0, 1, dimension)) @ left.T
        hessian = right @ np.diag(generator.uniform(-a, h, dimension)) @ right.T
        reached = max(reached, float(np.linalg.norm(np.eye(dimension) - mean @ hessian, 2)))
    assert constant * (1 - 1e-3) <= reached <= constant * (1 + 1e-13)  # the search is that good; a matrix norm rounds that much


def clip(gradient: np.ndarray, bound: float) -> np.ndarray:
    return gradient * min(1.0, bound / max(float(np.linalg.norm(gradient)), 1e-300))


@pytest.mark.parametrize("h", [0.1, 0.5, 1.0, 2.0])
def test_the_tight_example(h: float) -> None:
    # f = (M x_1^2 + delta x_2^2) / 2 at a point on the clipping sphere whose gradient makes the angle of y = 1/2 - k / (4 (1 - k^2) / h)
    # with the first axis (theory.md 4.2); an outward difference is clipped, an inward one is not, so move along the sphere's outside.
    delta, step, bound = 1e-9, 1.0, 1.0
    k = 1 - h / 2
    largest = 1 / (1 - h / 4)
    y = (1 - k * largest) / h
    # The clipped step's derivative outside is I - P H with P the projection on the tangent of the sphere at the gradient.
    angle = acos(sqrt(y))
    tangent = np.array([cos(angle), sin(angle)])
    gradient = np.array([-sin(angle), cos(angle)]) * bound * (1 + 1e-12)
    curvature = np.array([h, delta])
    point = gradient / curvature
    jacobian = np.eye(2) - step * np.outer(tangent, tangent) @ np.diag(curvature)
    _, _, directions = np.linalg.svd(jacobian)
    worst = directions[0] * np.sign(directions[0] @ (curvature * gradient))  # outward, where clipping acts
    length = 1e-4
    moved = point + length * worst
    difference = (moved - step * clip(curvature * moved, bound)) - (point - step * clip(curvature * point, bound))
    ratio = float(np.linalg.norm(difference)) / length
    # The point is at distance 1 / delta: about 1e-16 / delta / length of digits are left, and the curve of the sphere bends by `length`.
    assert ratio == pytest.approx(clipped_step(step, 0.0, h), rel=2e-3)


@pytest.mark.parametrize("seed", range(20))
def test_smooth_losses_with_clipped_gradients_stay_below(seed: int) -> None:
    # f(x) = sum_i c_i g(<u_i, x>) with g'' in [-m, M] (g = softplus or cosine), its curvature bounded by the sum of c_i |u_i u_i^T|.
    generator = np.random.default_rng(seed)
    dimension = int(generator.integers(2, 5))
    directions = generator.standard_normal((6, dimension))
    weak = float(np.linalg.norm(directions[3:].T @ directions[3:], 2))  # cosine: g'' = -cos in [-1, 1]
    smooth = float(np.linalg.norm(directions[:3].T @ directions[:3], 2)) / 4 + weak  # softplus: g'' in [0, 1/4]

    def gradient(x: np.ndarray) -> np.ndarray:
        softplus = 1 / (1 + np.exp(-directions[:3] @ x))
        return directions[:3].T @ softplus + directions[3:].T @ np.sin(directions[3:] @ x) * -1

    step = generator.uniform(0.05, 2.0) / smooth
    constant = clipped_step(step, weak, smooth)
    for _ in range(300):
        x = generator.standard_normal(dimension) * 3
        bound = float(np.linalg.norm(gradient(x))) * generator.uniform(0.5, 1.5)
        other = x + generator.standard_normal(dimension) * 10 ** generator.uniform(-3, 1)
        images = [point - step * clip(gradient(point), bound) for point in (x, other)]
        # Differences of numbers of size 10 at distances above 1e-4: 1e-11.
        assert np.linalg.norm(images[1] - images[0]) <= constant * np.linalg.norm(other - x) * (1 + 1e-10)


def test_a_generalised_linear_loss_exceeds_the_plain_constant_only_up_to_one() -> None:
    # Clipping sets the curvature to 0 where it acts: a strongly convex scalar loss moves like the identity there.
    direction, step = np.array([1.0, 0.0]), 0.5
    images = [x - step * clip((x @ direction) * direction, 1.0) for x in (np.array([5.0, 0.0]), np.array([7.0, 0.0]))]
    assert np.linalg.norm(images[1] - images[0]) == 2.0
    assert generalised_linear_step(step, -1.0, 1.0) == 1.0
