"""Steps so long that the upper end of the curvature decides their constant: a quadratic shows that it can be no smaller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.steps import largest_batch, step_constants

SMOOTHNESS = 0.5
LOSSES: tuple[dict[str, Any], ...] = (
    {"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": SMOOTHNESS, "gradient_bound": 1.0},
    {"kind": "weakly_convex", "weak_convexity": 0.25, "smoothness": SMOOTHNESS, "gradient_bound": 1.0},
)


def moved_apart(step_size: float, clip_norm: float) -> float:
    """What one step on M x^2 / 2, its gradient clipped, makes of a small distance: both gradients are shorter than the clip norm."""
    points = np.array([0.0, 2.0**-20])
    there = points - step_size * np.clip(SMOOTHNESS * points, -clip_norm, clip_norm)
    return float(abs(there[1] - there[0]) / abs(points[1] - points[0]))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_a_long_step_expands_as_a_quadratic_does(loss: dict[str, Any], clip_norm: float | None) -> None:
    steps = step_constants(make_run(loss=loss, clip_norm=clip_norm, step_size=10.0))
    assert steps is not None
    assert moved_apart(10.0, 0.5) == 4.0
    assert steps.lipschitz == pytest.approx(np.full(steps.lipschitz.shape, 4.0), rel=1e-14)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_a_batch_that_is_larger_than_its_nominal_size_makes_the_step_as_much_longer(loss: dict[str, Any], clip_norm: float | None) -> None:
    run = make_run(loss=loss, clip_norm=clip_norm, step_size=10.0, batches={"design": "poisson", "size": 10})
    steps, longer = step_constants(run), 10.0 * (largest_batch(run)[0] / 10)
    assert steps is not None
    assert longer > 10.0
    assert steps.lipschitz == pytest.approx(np.full(steps.lipschitz.shape, moved_apart(longer, 0.5)), rel=1e-14)


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_before_one_step_no_two_iterates_are_further_apart_than_the_domain_is_wide(neighbours: str) -> None:
    """Steps that expand much in a wide domain, and no noise but the last: two iterates at its ends, each moved by a clip norm outwards."""
    run = make_run(
        batches={"design": "full"},
        loss={"kind": "weakly_convex", "weak_convexity": 2.0, "smoothness": 2.0},
        clip_norm=1.0,
        steps=40,
        step_size=0.5,
        regulariser={"kind": "ball", "radius": 50.0},
        noise_multiplier=[0.0] * 39 + [3000.0],
        neighbours=neighbours,
        release="last",
    )
    apart = (2 * 50.0 + 2 * 0.5 * 1.0) / float(run.noise_stds[-1])
    guarantee = lethe.certify(run, 1e-5, [OptimalShift()]).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    assert apart <= guarantee.mu <= apart * (1 + 1e-9)
