"""The cut losses: slopes and curvatures against differences, the bounds of the lemma and that they are reached, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.mechanisms.minimisers.objective_perturbation import objective_guarantee
from lethe.run.losses import Logistic, Softmax, TruncatedLogistic, TruncatedSoftmax
from lethe.run.losses.linear import LinearLoss


def _drawn(loss: LinearLoss, seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 3.0 * rng.standard_normal((count, loss.outputs)), rng.integers(max(loss.outputs, 2), size=count).astype(float)


@pytest.mark.parametrize(
    ("loss", "plain"),
    [
        (TruncatedLogistic(feature_norm=1.0, cut=0.5), Logistic(feature_norm=1.0)),
        (TruncatedSoftmax(feature_norm=1.0, classes=4, cut=0.5), Softmax(feature_norm=1.0, classes=4)),
    ],
)
def test_nothing_changes_where_the_own_class_is_likely(loss: LinearLoss, plain: LinearLoss) -> None:
    scores, targets = _drawn(plain, 1)
    own = 1.0 - np.abs(plain.slopes(scores, targets)).max(axis=1)
    assert 20 < np.sum(own > 0.5) < 180
    np.testing.assert_allclose(loss.slopes(scores, targets)[own > 0.5], plain.slopes(scores, targets)[own > 0.5], atol=1e-12)
    np.testing.assert_allclose(loss.values(scores, targets)[own > 0.5], plain.values(scores, targets)[own > 0.5], atol=1e-12)
    assert np.all(loss.values(scores, targets)[own < 0.4] < plain.values(scores, targets)[own < 0.4])


@given(seed=st.integers(0, 10**6), cut=st.floats(0.01, 1.0), classes=st.integers(2, 12), size=st.floats(0.1, 50.0))
def test_the_bounds_of_the_lemma_hold(seed: int, cut: float, classes: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    for loss in (TruncatedLogistic(feature_norm=1.0, cut=cut), TruncatedSoftmax(feature_norm=1.0, classes=classes, cut=cut)):
        scores, targets = (
            size * rng.standard_normal((40, loss.outputs)),
            rng.integers(min(classes, max(loss.outputs, 2)), size=40).astype(float),
        )
        assert np.linalg.norm(loss.slopes(scores, targets), axis=1).max() <= loss.slope_bound
        curvatures = loss.curvatures(scores, targets).dense()
        eigenvalues = np.linalg.eigvalsh(curvatures)
        assert eigenvalues.min() >= -1e-12
        assert eigenvalues.max() <= loss.curvature_bound * (1 + 1e-12)
        assert np.trace(curvatures, axis1=1, axis2=2).max() <= loss.curvature_trace + 1e-12
        other = scores + rng.standard_normal(scores.shape)
        apart = loss.slopes(other, targets) - loss.slopes(scores, targets)
        assert np.all(np.linalg.norm(apart, axis=1) <= loss.curvature_bound * np.linalg.norm(other - scores, axis=1) + 1e-12)
        assert np.all(np.sum(apart * (other - scores), axis=1) >= -1e-12)


@pytest.mark.parametrize("cut", [0.02, 0.1, 0.25, 0.4, 0.49, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_curvature_is_that_of_the_hessians(cut: float, classes: int) -> None:
    """Never exceeded by random and extreme scores, and reached to 1 % where one other class has all that the own one lacks."""
    rng = np.random.default_rng(classes)
    loss, plain = TruncatedSoftmax(feature_norm=1.0, classes=classes, cut=cut), TruncatedLogistic(feature_norm=1.0, cut=cut)
    spread = np.concatenate([size * rng.standard_normal((400, classes)) for size in (0.01, 0.3, 1.0, 5.0, 100.0)])
    # Near the cut, with the rest on one class, on two, or on all others, of which Dirichlet weights know all mixtures.
    missing = np.minimum(cut, 0.5) * rng.choice([1.0 - 1e-6, 0.999, 0.9, 1.0 + 1e-6], size=1500)
    shares = rng.dirichlet(np.full(max(classes - 1, 1), 0.2), size=1500)
    shares[::3] = np.eye(classes - 1)[rng.integers(classes - 1, size=500)]
    with np.errstate(divide="ignore"):
        near = np.concatenate([np.log(1.0 - missing)[:, None], np.maximum(np.log(missing[:, None] * shares), -700.0)], axis=1)
    scores = np.concatenate([spread, near])
    targets = np.concatenate([rng.integers(classes, size=len(spread)).astype(float), np.zeros(len(near))])
    largest = np.linalg.eigvalsh(loss.curvatures(scores, targets).dense())[:, -1].max()
    assert largest <= loss.curvature_bound * (1 + 1e-12)
    assert largest >= loss.curvature_bound * 0.99
    margins = np.linspace(-6.0, 6.0, 20001)[:, None]
    assert 0.99 * plain.curvature_bound <= plain.curvatures(margins, np.ones(20001)).dense().max() <= plain.curvature_bound


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 5), cut=st.floats(0.05, 1.0))
def test_slopes_lie_in_the_hull_that_objective_perturbation_supposes(seed: int, classes: int, cut: float) -> None:
    """In c times the hull of 0 and the e_j - e_y: entries of the others at least 0, adding up to at most c, and to 0 with the own."""
    rng = np.random.default_rng(seed)
    scores, targets = 5.0 * rng.standard_normal((30, classes)), rng.integers(classes, size=30)
    slopes = TruncatedSoftmax(feature_norm=1.0, classes=classes, cut=cut).slopes(scores, targets.astype(float))
    np.testing.assert_allclose(slopes.sum(axis=1), 0.0, atol=1e-14)
    own = slopes[range(30), targets]
    assert np.all((own <= 0.0) & (own >= -cut))
    slopes[range(30), targets] = 0.0
    assert slopes.min() >= 0.0


def test_objective_perturbation_scales_with_the_cut() -> None:
    facts = {"records": 1000, "weights": 30, "regularisation": 0.1}
    whole = objective_guarantee(Softmax(feature_norm=1.0, classes=3), noise_std=8.0, **facts)
    half = objective_guarantee(TruncatedSoftmax(feature_norm=1.0, classes=3, cut=0.5), noise_std=4.0, **facts)
    assert half.delta(1.0) == pytest.approx(whole.delta(1.0), rel=1e-3)


@pytest.mark.parametrize("cut", [0.3, 0.5, 0.9])
def test_the_curvature_of_the_margin_ends_where_the_slope_is_cut(cut: float) -> None:
    """A thousandth on either side of the margin at which 1 - p is the cut: r (1 - r), and 0."""
    edge = math.log((1.0 - cut) / cut)
    for loss in (TruncatedLogistic(feature_norm=1.0, cut=cut), TruncatedSoftmax(feature_norm=1.0, classes=2, cut=cut)):
        scores = np.zeros((2, loss.outputs))
        scores[:, -1] = [edge + 1e-3, edge - 1e-3]  # the margin of the last class of two
        bent = loss.curvatures(scores, np.ones(2)).dense()[:, -1, -1]
        assert bent == pytest.approx([cut * (1.0 - cut), 0.0], abs=1e-3)
