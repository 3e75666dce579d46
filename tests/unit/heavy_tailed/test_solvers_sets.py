"""Projections against the definition of a projection."""

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.heavy_tailed.sets import BallDomain, BoxDomain, ConvexSet, WholeSpace, near_projection


def test_two_balls_at_the_worked_point() -> None:
    project = near_projection(BallDomain(radius=1.0), np.array([0.8, 0.0, 0.0]), 0.7)
    assert project(np.array([2.0, 1.5, 0.3])) == pytest.approx([0.7943015, 0.5957261, 0.1191452], abs=1e-7)


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
