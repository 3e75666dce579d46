"""Losses of linear models: derivatives against differences, bounds that hold and are reached, no overflow."""

import math

import numpy as np
import pytest
from helpers import LINEAR_LOSSES
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.losses import LeastSquares, Logistic, SmoothedHinge, Softmax
from lethe.run.losses.linear import LinearLoss, require_linear_loss

LOSSES = [loss for loss in LINEAR_LOSSES if "cut" not in type(loss).model_fields]  # test_truncated_losses.py has the others


def _targets(loss: LinearLoss, rng: np.random.Generator, count: int) -> np.ndarray:
    if isinstance(loss, LeastSquares):
        return rng.standard_normal(count)
    return rng.integers(0, max(loss.outputs, 2), count).astype(np.float64)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
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


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
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
        assert reached == pytest.approx(bound, rel=0.01)
    assert eigenvalues.max() <= loss.curvature_bound * (1 + 1e-12)
    assert eigenvalues.min() >= -1e-12
    assert (np.linalg.matrix_rank(loss.curvatures(scores[:50], targets[:50]).dense()) <= loss.curvature_rank).all()


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.one_sided and loss.outputs == 1], ids=repr)
def test_one_sided_slopes_never_change_their_sign(loss: LinearLoss) -> None:
    scores = np.linspace(-40.0, 40.0, 1001)[:, None]
    for target in (0.0, 1.0):
        slopes = loss.slopes(scores, np.full(1001, target)) * (1.0 - 2.0 * target)
        assert (slopes >= 0.0).all()


def test_two_classes_of_softmax_have_the_curvature_of_their_bound() -> None:
    assert np.linalg.eigvalsh(
        Softmax(feature_norm=1.0, classes=2).curvatures(np.zeros((1, 2)), np.zeros(1)).dense()
    ).max() == pytest.approx(Softmax(feature_norm=1.0, classes=2).curvature_bound)


@given(loss=st.sampled_from(LOSSES), score=st.floats(-1e300, 1e300))
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: Softmax(feature_norm=1.0, classes=1),
        lambda: Softmax(feature_norm=1.0, classes=True),
        lambda: SmoothedHinge(feature_norm=1.0, width=0.0),
        lambda: LeastSquares(feature_norm=1.0, residual_bound=math.inf),
    ],
)
def test_what_is_out_of_range_is_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("values", [[0, 2], [0.5, 1], [-1, 1], [0], [[0, 1]], ["a", "b"], [True, False], [0, math.nan]])
def test_classes_are_whole_numbers_from_zero(values: list[object]) -> None:
    with pytest.raises(InputError, match="targets"):
        Logistic(feature_norm=1.0).check_targets(values, 2)


def test_only_losses_are_losses() -> None:
    with pytest.raises(InputError, match=r"Logistic\(feature_norm=1.0\)"):
        require_linear_loss("logistic")
