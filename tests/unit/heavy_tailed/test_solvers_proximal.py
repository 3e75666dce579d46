"""Proximal clipped SGD: its maps and projections against brute force, its recursion, its settings and its bound."""

import math
from itertools import product

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import quadratic_gradient

from lethe.calculus.guarantees import GDP
from lethe.heavy_tailed import Moments, Problem
from lethe.heavy_tailed.oracles import ExactMean
from lethe.heavy_tailed.proximal import proximal, proximal_bound, proximal_map, proximal_optimised, proximal_practical, proximal_theory
from lethe.heavy_tailed.sets import BallDomain, BoxDomain, ConvexSet, WholeSpace, near_projection
from lethe.run.regularisers import L1, L1L2, L2, Regulariser

SPARSE = L1(strength=0.1)


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    step=st.floats(0.01, 3.0),
    regulariser=st.sampled_from([None, L2(strength=0.7), L1(strength=0.4), L1L2(l1_strength=0.3, ridge_strength=0.5)]),
    domain=st.sampled_from([WholeSpace(), BallDomain(radius=0.8), BoxDomain(low=(-0.5, 0.1), high=(0.4, 0.9))]),
)
def test_the_map_is_a_minimiser(seed: int, step: float, regulariser: Regulariser | None, domain: ConvexSet) -> None:
    point = 1.5 * np.random.default_rng(seed).standard_normal(2)
    found = proximal_map(point, step, regulariser, domain)

    l1 = {L1: 0.4, L1L2: 0.3}.get(type(regulariser), 0.0)
    ridge = {L2: 0.7, L1L2: 0.5}.get(type(regulariser), 0.0)

    def value(y: np.ndarray) -> float:
        return step * float(l1 * np.abs(y).sum() + 0.5 * ridge * (y * y).sum()) + 0.5 * float(((y - point) ** 2).sum())

    for scale in (1.0, 0.1, 0.01):
        for offset in product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=2):
            assert value(found) <= value(domain.project(found + scale * np.array(offset))) + 1e-12


def test_a_loss_that_is_not_convex() -> None:
    """w^2 + 3 sin^2 w is Polyak-Lojasiewicz with mu = 1/32 and smooth with 8, and not convex."""
    problem = Problem(
        gradient=lambda w, x: np.tile(2 * w + 3 * np.sin(2 * w), (len(x), 1)), dimension=1, smoothness=8.0, pl_constant=1 / 32
    )
    done = proximal(problem, np.zeros(200), oracle=ExactMean(), steps=200, start=[3.0])
    gap = float(done.parameters[0] ** 2 + 3 * math.sin(done.parameters[0]) ** 2)
    assert gap <= proximal_bound(200, 8.0, 1 / 32, 9 + 3 * math.sin(3.0) ** 2, 0.0, 0.0)


@pytest.mark.slow
def test_the_price_and_the_settings() -> None:
    moments = Moments(order=4, bound=3.0, second=2.0)
    problem = Problem(
        gradient=quadratic_gradient, dimension=2, domain=BallDomain(radius=1.0), smoothness=10.0, pl_constant=2.0, moments=moments
    )
    plan = proximal_theory(problem, 1000, 0.5, gap=5.0)
    assert plan.steps == 2 * math.ceil(5 * math.log(5 * 2 * 1000 / 4))
    assert plan.clip_norm == pytest.approx(3.0 * (1000**2 / (2 * plan.steps**2)) ** (1 / 8))
    assert plan.notes == ()
    assert proximal_optimised(problem, 1000, 0.5, gap=5.0).bound <= min(plan.bound, proximal_practical(problem, 1000, 0.5, gap=5.0).bound)
    short = proximal_theory(problem, 20, 0.5, gap=5.0)
    assert short.steps == 20
    assert "does not apply" in short.notes[0]
    done = proximal(problem, np.zeros(1000), oracle=plan.oracle, steps=plan.steps, regulariser=SPARSE)
    (phase,) = done.phases
    size = 1000 // plan.steps
    assert phase.batch_size == size
    assert (2 * plan.clip_norm / size) ** 2 / (2 * phase.release.noise_std**2) <= 0.5
    assert isinstance(done.fresh.guarantee, GDP)
    assert done.fresh.guarantee.mu == pytest.approx(1.0)
    assert np.linalg.norm(done.parameters) <= 1.0 + 1e-12
    assert proximal_theory(problem, 1000, 0.5, gap=1e-9).steps == 10  # a gap below the noise: the logarithm is kept at 1


def test_a_ball_and_a_box_and_points_far_away() -> None:
    project = near_projection(BoxDomain(low=(-1.0, -1.0), high=(0.9, 0.2)), np.zeros(2), 0.8)
    for size in (2.0, 1e10, 1e150):
        assert project(np.array([size, size])) == pytest.approx([(0.64 - 0.04) ** 0.5, 0.2], abs=1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    radius=st.floats(1e-3, 2.0),
    size=st.floats(0.0, 4.0),
    domain=st.sampled_from([WholeSpace(), BallDomain(radius=1.0), BoxDomain(low=(-1.0, -0.1, 0.0), high=(0.5, 0.2, 3.0))]),
)
def test_what_is_near_meets_the_definition(seed: int, radius: float, size: float, domain: ConvexSet) -> None:
    """p is the projection of z iff <z - p, y - p> <= 0 for every y of the set."""
    rng = np.random.default_rng(seed)
    centre, point = domain.project(rng.standard_normal(3)), size * rng.standard_normal(3)
    image = near_projection(domain, centre, radius)(point)
    assert np.linalg.norm(domain.project(image) - image) <= 1e-12
    assert np.linalg.norm(image - centre) <= radius * (1 + 1e-9)
    others = [domain.project(centre + radius * other) for other in rng.uniform(-1, 1, (400, 3))]
    inside = np.array([other for other in others if np.linalg.norm(other - centre) <= radius])
    assert np.all((inside - image) @ (point - image) <= 1e-9)


@pytest.mark.parametrize(
    "convex",
    [WholeSpace(), BallDomain(radius=0.5), BallDomain(radius=1.5, centre=(1.0, -1.0)), BoxDomain(low=(-1.0, 0.0), high=(0.5, 2.0))],
)
def test_projections_are_projections(convex: ConvexSet) -> None:
    points = 3.0 * np.random.default_rng(1).standard_normal((50, 2))
    images = np.array([convex.project(point) for point in points])
    assert np.allclose([convex.project(image) for image in images], images, atol=1e-12)
    for image, point in zip(images, points, strict=True):
        assert np.all((images - image) @ (point - image) <= 1e-9)
    assert np.linalg.norm(images[:, None] - images[None], axis=2).max() <= convex.diameter + 1e-9
