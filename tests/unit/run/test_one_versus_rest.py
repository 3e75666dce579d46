"""The hinge for several classes: against hinges of two classes, differences, bounds that are reached, and what it is refused for."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from lethe.calculus.guarantees import ApproxDP
from lethe.errors import InputError
from lethe.mechanisms.minimisers.objective_perturbation import gradient_vertices, objective_perturbation
from lethe.mechanisms.minimisers.output_perturbation import output_sensitivity
from lethe.run.losses import OneVersusRest, SmoothedHinge

LOSS = OneVersusRest(feature_norm=1.0, classes=4, width=0.3)


def test_it_is_the_sum_of_one_hinge_a_class() -> None:
    rng = np.random.default_rng(0)
    scores, targets = 2.0 * rng.standard_normal((100, 4)), rng.integers(0, 4, 100).astype(float)
    hinge = SmoothedHinge(feature_norm=1.0, width=0.3)
    parts = [(scores[:, [j]], (targets == j).astype(float)) for j in range(4)]
    np.testing.assert_allclose(LOSS.values(scores, targets), sum(hinge.values(*part) for part in parts))
    np.testing.assert_array_equal(LOSS.slopes(scores, targets), np.hstack([hinge.slopes(*part) for part in parts]))


def test_derivatives_agree_with_differences() -> None:
    rng = np.random.default_rng(1)
    scores, targets, step = 2.0 * rng.standard_normal((200, 4)), rng.integers(0, 4, 200).astype(float), 1e-6
    for output in range(4):
        moved = step * np.eye(4)[output]
        slope = (LOSS.values(scores + moved, targets) - LOSS.values(scores - moved, targets)) / (2 * step)
        assert slope == pytest.approx(LOSS.slopes(scores, targets)[:, output], abs=1e-8)
        bent = (LOSS.slopes(scores + moved, targets) - LOSS.slopes(scores - moved, targets)) / (2 * step)
        assert bent == pytest.approx(LOSS.curvatures(scores, targets).dense()[:, :, output], abs=1e-5)


@given(scores=st.lists(st.floats(-1e300, 1e300), min_size=4, max_size=4), target=st.integers(0, 3))
def test_no_score_breaks_the_bounds(scores: list[float], target: int) -> None:
    at, label = np.array([scores]), np.array([float(target)])
    assert np.linalg.norm(LOSS.slopes(at, label)) <= LOSS.slope_bound
    bent = LOSS.curvatures(at, label).dense()[0]
    assert np.linalg.eigvalsh(bent).max() <= LOSS.curvature_bound
    assert np.trace(bent) <= LOSS.curvature_trace
    assert np.isfinite(LOSS.values(at, label)).all()


def test_the_bounds_are_reached() -> None:
    label = np.zeros(1)
    assert np.linalg.norm(LOSS.slopes(np.zeros((1, 4)), label)) == pytest.approx(LOSS.slope_bound) == 2.0
    at_margins = np.array([[1.0, -1.0, -1.0, -1.0]])
    assert np.trace(LOSS.curvatures(at_margins, label).dense()[0]) == pytest.approx(LOSS.curvature_trace)
    assert LOSS.curvature_bound == pytest.approx(1 / 0.6)


def test_replacing_a_record_moves_the_minimiser_by_no_more_than_stated() -> None:
    rng = np.random.default_rng(2)
    loss, ridge, count = OneVersusRest(feature_norm=1.0, classes=3, width=0.5), 1.0, 4
    rows = rng.standard_normal((count, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.integers(0, 3, count).astype(float)

    def solved(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        def mean(w: np.ndarray) -> float:
            return float(loss.values(features @ w.reshape(2, 3), targets).mean()) + 0.5 * ridge * float(w @ w)

        return minimize(mean, np.zeros(6), tol=1e-12).x

    stated = output_sensitivity(records=count, regularisation=ridge, gradient_bound=loss.row_gradient_bound, tolerance=0.0)
    moved = 0.0
    for label in range(3):
        for sign in (-1.0, 1.0):
            other, targets = rows.copy(), labels.copy()
            other[0], targets[0] = sign * rows[0], label
            moved = max(moved, float(np.linalg.norm(solved(rows, labels) - solved(other, targets))))
    assert 0.3 * stated < moved <= stated


def test_objective_perturbation_knows_no_bound_for_it() -> None:
    with pytest.raises(InputError, match="one score"):
        gradient_vertices(LOSS, "replace_one")
    with pytest.raises(InputError, match="one score"):
        objective_perturbation(np.eye(4), np.arange(4), loss=LOSS, regularisation=1e3, target=ApproxDP(1.0, 1e-3))


@pytest.mark.parametrize(
    "bad", [{"classes": 1}, {"classes": True}, {"classes": 2.0}, {"classes": 3, "width": 0.0}, {"classes": 3, "width": math.nan}]
)
def test_refusals(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        OneVersusRest(**bad)
    with pytest.raises(InputError, match="whole number"):
        LOSS.check_targets([0, 4], 2)
