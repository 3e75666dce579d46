"""Losses of linear models: derivatives against differences, bounds that hold and are reached, no overflow."""

import math

import numpy as np
import pytest
from helpers import LINEAR_LOSSES
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.guarantees import ApproxDP
from lethe.errors import InputError
from lethe.mechanisms.minimisers.objective_perturbation import gradient_vertices, objective_perturbation
from lethe.run.losses import LeastSquares, Logistic, OneVersusRest, SmoothedHinge, Softmax, TruncatedSoftmax
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import LinearLoss


def _targets(loss: LinearLoss, rng: np.random.Generator, count: int) -> np.ndarray:
    if isinstance(loss, LeastSquares):
        return rng.standard_normal(count)
    return rng.integers(0, max(loss.outputs, 2), count).astype(np.float64)


@pytest.mark.parametrize("loss", LINEAR_LOSSES, ids=repr)
def test_derivatives_agree_with_differences(loss: LinearLoss) -> None:
    rng = np.random.default_rng(0)
    scores, targets = 2.0 * rng.standard_normal((200, loss.outputs)), _targets(loss, rng, 200)
    step = 1e-6
    for output in range(loss.outputs):
        moved = np.zeros(loss.outputs)
        moved[output] = step
        slope = (loss.values(scores + moved, targets) - loss.values(scores - moved, targets)) / (2 * step)
        assert slope == pytest.approx(loss.slopes(scores, targets)[:, output], abs=1e-8)
        bent = (loss.slopes(scores + moved, targets) - loss.slopes(scores - moved, targets)) / (2 * step)
        assert bent == pytest.approx(loss.curvatures(scores, targets).dense()[:, :, output], abs=1e-5)


@pytest.mark.parametrize("loss", LINEAR_LOSSES, ids=repr)
def test_bounds_hold_and_are_reached(loss: LinearLoss) -> None:
    rng = np.random.default_rng(1)
    scores = np.concatenate([scale * rng.standard_normal((4000, loss.outputs)) for scale in (0.001, 1.0, 30.0)])
    targets = _targets(loss, rng, len(scores))
    # A hinge bends at a margin near 1 only, and Huber's loss where the residual is small.
    middle = targets if isinstance(loss, LeastSquares) else 2.0 * targets - 1.0
    if not isinstance(loss, Softmax):
        scores[::2, 0] = middle[::2] if isinstance(loss, LeastSquares | SmoothedHinge) else 0.0
    lengths = np.linalg.norm(loss.slopes(scores, targets), axis=1)
    eigenvalues = np.linalg.eigvalsh(loss.curvatures(scores, targets).dense())
    for reached, bound in (
        (lengths.max(), loss.slope_bound),
        (eigenvalues.sum(axis=1).max(), loss.curvature_trace),
    ):
        assert reached <= bound * (1 + 1e-12)
        # Random scores do not meet the bent middle of a cut softmax: laws/run/test_truncated_losses.py searches it.
        assert reached == pytest.approx(bound, rel=0.01) or isinstance(loss, TruncatedSoftmax)
    assert eigenvalues.max() <= loss.curvature_bound * (1 + 1e-12)
    assert eigenvalues.min() >= -1e-12
    assert (np.linalg.matrix_rank(loss.curvatures(scores[:50], targets[:50]).dense()) <= loss.curvature_rank).all()


@pytest.mark.parametrize("loss", [loss for loss in LINEAR_LOSSES if loss.one_sided and loss.outputs == 1], ids=repr)
def test_one_sided_slopes_never_change_their_sign(loss: LinearLoss) -> None:
    scores = np.linspace(-40.0, 40.0, 1001)[:, None]
    for target in (0.0, 1.0):
        slopes = loss.slopes(scores, np.full(1001, target)) * (1.0 - 2.0 * target)
        assert (slopes >= 0.0).all()


@given(loss=st.sampled_from(LINEAR_LOSSES), score=st.floats(-1e300, 1e300))
def test_no_score_overflows(loss: LinearLoss, score: float) -> None:
    scores = np.zeros((1, loss.outputs))
    scores[0, 0] = score
    for target in (0.0, 1.0):
        targets = np.array([target])
        for result in (loss.values(scores, targets), loss.slopes(scores, targets), loss.curvatures(scores, targets).dense()):
            assert np.isfinite(result).all()
        assert loss.values(scores, targets)[0] >= 0.0


def test_gradient_and_smoothness_scale_with_the_norm() -> None:
    softmax, squares = Softmax(feature_norm=2.0, classes=3), LeastSquares(feature_norm=2.0, residual_bound=3.0)
    assert softmax.row_gradient_bound == pytest.approx(softmax.derived_gradient_bound) == pytest.approx(2.0 * math.sqrt(2.0))
    assert squares.row_gradient_bound == pytest.approx(squares.derived_gradient_bound) == pytest.approx(6.0)
    for loss, smoothness in ((Logistic(feature_norm=2.0), 1.0), (SmoothedHinge(feature_norm=1.0, width=0.25), 2.0)):
        assert loss.smoothness == pytest.approx(loss.curvature[1]) == pytest.approx(smoothness)
    assert Logistic(feature_norm=1.0, intercept=True).row_norm == pytest.approx(math.sqrt(2.0))


def test_it_is_the_sum_of_one_hinge_a_class() -> None:
    loss, rng = OneVersusRest(feature_norm=1.0, classes=4, width=0.3), np.random.default_rng(0)
    scores, targets = 2.0 * rng.standard_normal((100, 4)), rng.integers(0, 4, 100).astype(float)
    hinge = SmoothedHinge(feature_norm=1.0, width=0.3)
    parts = [(scores[:, [j]], (targets == j).astype(float)) for j in range(4)]
    np.testing.assert_allclose(loss.values(scores, targets), sum(hinge.values(*part) for part in parts))
    np.testing.assert_array_equal(loss.slopes(scores, targets), np.hstack([hinge.slopes(*part) for part in parts]))


def test_objective_perturbation_knows_no_bound_for_several_hinges() -> None:
    loss = OneVersusRest(feature_norm=1.0, classes=4, width=0.3)
    with pytest.raises(InputError, match="one score"):
        gradient_vertices(loss, "replace_one")
    with pytest.raises(InputError, match="one score"):
        objective_perturbation(np.eye(4), np.arange(4), loss=loss, regularisation=1e3, target=ApproxDP(1.0, 1e-3))


def test_products_and_sums_are_those_of_the_matrices() -> None:
    rng = np.random.default_rng(0)
    terms = tuple((rng.standard_normal(7), rng.standard_normal((7, 3))) for _ in range(2))
    curvatures, directions = Curvatures(rng.random((7, 3)), terms), rng.standard_normal((7, 3))
    expected = [
        np.diag(curvatures.diagonal[record]) + sum(factor[record] * np.outer(vectors[record], vectors[record]) for factor, vectors in terms)
        for record in range(7)
    ]
    assert curvatures.dense() == pytest.approx(np.array(expected), abs=1e-14)
    products = [matrix @ direction for matrix, direction in zip(expected, directions, strict=True)]
    assert curvatures.times(directions) == pytest.approx(np.array(products), abs=1e-14)
    assert curvatures.sum() == pytest.approx(sum(expected), abs=1e-13)
    narrow = curvatures.scaled(0.25, np.float32)
    assert narrow.dense() == pytest.approx(4.0 * curvatures.dense(), rel=1e-6, abs=1e-5)
    assert narrow.times(directions.astype(np.float32)).dtype == np.float32
