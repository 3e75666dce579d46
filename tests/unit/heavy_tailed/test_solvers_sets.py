"""Projections against Dykstra's and against the definition of a projection."""

import math

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import InputError, LetheError
from lethe.heavy_tailed.sets import BallDomain, BoxDomain, ConvexSet, WholeSpace, dykstra, onto_two_balls


def test_two_balls_at_the_worked_point() -> None:
    first, second = BallDomain(radius=1.0), BallDomain(radius=0.7, centre=(0.8, 0.0, 0.0))
    point = np.array([2.0, 1.5, 0.3])
    expected = [0.7943015, 0.5957261, 0.1191452]
    assert onto_two_balls(point, first, second) == pytest.approx(expected, abs=1e-7)
    assert dykstra(point, [first, second]) == pytest.approx(expected, abs=1e-7)


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), dimension=st.integers(1, 4), radius=st.floats(0.1, 2.0), size=st.floats(0.0, 4.0))
def test_two_balls_meet_the_definition(seed: int, dimension: int, radius: float, size: float) -> None:
    """p is the projection of z iff <z - p, y - p> <= 0 for every y of the set."""
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal(dimension)
    centre *= rng.random() * 0.95 * (1.0 + radius) / np.linalg.norm(centre)  # so that they meet
    first, second = BallDomain(radius=1.0), BallDomain(radius=radius, centre=tuple(centre))
    point = size * rng.standard_normal(dimension)
    found = onto_two_balls(point, first, second)
    assert np.linalg.norm(found) <= 1.0 + 1e-9
    assert np.linalg.norm(found - centre) <= radius + 1e-9
    others = rng.standard_normal((400, dimension)) * 1.5
    inside = others[(np.linalg.norm(others, axis=1) <= 1.0) & (np.linalg.norm(others - centre, axis=1) <= radius)]
    assert np.all((inside - found) @ (point - found) <= 1e-7)


@pytest.mark.parametrize(
    "convex",
    [WholeSpace(), BallDomain(radius=0.5), BallDomain(radius=1.5, centre=(1.0, -1.0)), BoxDomain(low=(-1.0, 0.0), high=(0.5, 2.0))],
)
def test_projections_are_projections(convex: ConvexSet) -> None:
    rng = np.random.default_rng(1)
    points = 3.0 * rng.standard_normal((50, 2))
    images = np.array([convex.project(point) for point in points])
    assert np.allclose([convex.project(image) for image in images], images, atol=1e-12)
    for image, point in zip(images, points, strict=True):
        assert np.all((images - image) @ (point - image) <= 1e-9)
    gaps = np.linalg.norm(images[:, None] - images[None], axis=2)
    assert gaps.max() <= convex.diameter + 1e-9


def test_dykstra_with_a_box() -> None:
    found = dykstra(np.array([2.0, 2.0]), [BoxDomain(low=(-1.0, -1.0), high=(0.9, 0.2)), BallDomain(radius=0.8)])
    assert found == pytest.approx([math.sqrt(0.64 - 0.04), 0.2], abs=1e-9)
    with pytest.raises(LetheError, match="settle"):
        dykstra(np.array([0.0]), [BallDomain(radius=1.0, centre=(-5.0,)), BallDomain(radius=1.0, centre=(5.0,))], most_rounds=200)


def test_bad_sets_are_refused() -> None:
    for radius in (0.0, -1.0, math.nan, math.inf, True, "1"):
        with pytest.raises(InputError, match="radius"):
            BallDomain(radius=radius)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="centre"):
        BallDomain(radius=1.0, centre=(math.nan,))
    with pytest.raises(InputError, match="below its high"):
        BoxDomain(low=(0.0, 1.0), high=(1.0, 1.0))
    with pytest.raises(InputError, match="do not meet"):
        onto_two_balls(np.array([3.0]), BallDomain(radius=1.0), BallDomain(radius=1.0, centre=(9.0,)))
