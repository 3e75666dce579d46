"""Lipschitz envelopes in the scores: against their definition, their bounds to 1 %, and what plain clipping does where they contract."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from lethe.errors import InputError, LetheError
from lethe.run.losses import (
    Huber,
    LeastSquares,
    Logistic,
    OneVersusRest,
    SmoothedHinge,
    Softmax,
    TruncatedLogistic,
    TruncatedSoftmax,
    Tweedie,
)
from lethe.run.losses.linear import LinearLoss
from lethe.run.losses.softmax_envelope import ERROR

Floats = np.ndarray
KNOWN: tuple[LinearLoss, ...] = (
    Softmax(feature_norm=1.0, classes=2),
    Softmax(feature_norm=1.0, classes=3),
    Softmax(feature_norm=1.0, classes=10),
    Logistic(feature_norm=1.0),
    TruncatedLogistic(feature_norm=1.0, cut=0.4),
    SmoothedHinge(feature_norm=1.0, width=0.2),
    LeastSquares(feature_norm=1.0, residual_bound=0.9),
    Huber(feature_norm=1.0, residual_bound=0.9),
    Tweedie(feature_norm=1.0, power=1.4, target_bound=2.0, cut=0.9),
)
SOFTMAX = Softmax(feature_norm=1.0, classes=4)


def drawn(loss: LinearLoss, rng: np.random.Generator, count: int, size: float = 3.0) -> tuple[Floats, Floats]:
    targets = rng.standard_normal(count) if loss.numeric_targets else rng.integers(max(loss.outputs, 2), size=count).astype(float)
    return size * rng.standard_normal((count, loss.outputs)), targets


def share(bound: float) -> float:
    """The largest curvature of softmax where its slope is no longer than `bound`."""
    return bound * (math.sqrt(2.0) - bound) if bound < math.sqrt(0.5) else 0.5


@pytest.mark.sampled(3)
@pytest.mark.parametrize("loss", KNOWN, ids=repr)
def test_slopes_are_those_of_the_definition(loss: LinearLoss) -> None:
    r"""$\min_t l(s - t) + c\|t\|$ by a general optimiser: the slope is the loss's where the minimum is, or at s itself."""
    rng = np.random.default_rng(0)
    scores, targets = drawn(loss, rng, 40)
    for bound in (0.1, 0.35, 0.8):
        slopes = loss.envelope_slopes(scores, targets, np.full(40, bound))
        plain = loss.slopes(scores, targets)
        assert np.linalg.norm(slopes, axis=1).max() <= bound * (1 + 1e-15)
        short = np.linalg.norm(plain, axis=1) <= bound
        np.testing.assert_allclose(slopes[short], plain[short], atol=1e-14)
        for row in np.flatnonzero(~short)[:3]:
            np.testing.assert_allclose(slopes[row], brute_force(loss, scores[row], targets[row], bound), atol=1e-4 * bound + 1e-6)
    assert not short.all() or loss.slope_bound <= 0.8


def brute_force(loss: LinearLoss, scores: Floats, target: float, bound: float) -> Floats:
    """The loss's slope at s - t for the t that minimises; the slope at s is longer than the bound, so t = 0 is no minimum."""

    def objective(moved: Floats) -> tuple[float, Floats]:
        point, targets = (scores - moved)[None], np.array([target])
        length = max(float(np.linalg.norm(moved)), 1e-12)
        value = float(loss.values(point, targets)[0]) + bound * length
        return value, bound * moved / length - loss.slopes(point, targets)[0]

    start = loss.slopes(scores[None], np.array([target]))[0]
    found = [optimize.minimize(objective, first * start, jac=True, method="BFGS", options={"gtol": 1e-8}) for first in (0.5, 5.0)]
    best = min(found, key=lambda one: float(one.fun))
    return loss.slopes((scores - best.x)[None], np.array([target]))[0]


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 12), bound=st.floats(1e-6, 1.0), size=st.floats(0.01, 300.0))
def test_the_slope_is_the_one_that_has_the_norm(seed: int, classes: int, bound: float, size: float) -> None:
    r"""Optimality: $\|g\| = c$, $g + e_y$ is a distribution p, and $s - \log p$ is g times a number $a \ge 0$, up to a common shift."""
    rng = np.random.default_rng(seed)
    loss = Softmax(feature_norm=1.0, classes=classes)
    scores, targets = drawn(loss, rng, 40, size)
    slopes = loss.envelope_slopes(scores, targets, np.full(40, bound))
    plain = loss.slopes(scores, targets)
    long = np.linalg.norm(plain, axis=1) > bound
    np.testing.assert_allclose(np.linalg.norm(slopes[long], axis=1), bound, rtol=1e-14)
    own = np.eye(classes)[targets.astype(int)]
    shares = slopes + own
    assert shares.min() >= -1e-16
    np.testing.assert_allclose(slopes.sum(axis=1), 0.0, atol=1e-15)
    for row in np.flatnonzero(long):
        known = shares[row] > 1e-250
        rest = scores[row, known] - np.log(np.where(own[row, known] > 0, 1.0 + slopes[row, known], slopes[row, known]))
        rest, slope = rest - rest.mean(), slopes[row, known] - slopes[row, known].mean()
        times = rest @ slope / (slope @ slope)
        assert times >= 0.0
        assert np.abs(rest - times * slope).max() <= 1e-9 * (1.0 + size)


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(KNOWN),
    bound=st.floats(1e-3, 1.6),
    size=st.floats(0.05, 30.0),
    apart=st.floats(1e-6, 10.0),
)
def test_steps_of_the_envelope_bring_no_two_points_apart(seed: int, loss: LinearLoss, bound: float, size: float, apart: float) -> None:
    """Up to step size 2/M, pairs in random places and directions; gradients are monotone, and no steeper than the curvature says."""
    rng = np.random.default_rng(seed)
    scores, targets = drawn(loss, rng, 200, size)
    other = scores + apart * rng.standard_normal(scores.shape)
    reach = np.full(200, bound)
    rise = loss.envelope_slopes(other, targets, reach) - loss.envelope_slopes(scores, targets, reach)
    distance, curvature = np.linalg.norm(other - scores, axis=1), loss.envelope_smoothness(bound)
    slack = 2.0 * ERROR * bound + 1e-14
    assert np.sum(rise * (other - scores), axis=1).min() >= -slack * distance.max()
    assert (np.linalg.norm(rise, axis=1) <= curvature * distance + slack).all()
    moved = np.linalg.norm(other - scores - 2.0 / curvature * rise, axis=1)
    assert (moved <= distance + 2.0 / curvature * slack).all()


@pytest.mark.parametrize("bound", [0.01, 0.1, 0.25, 0.5, 0.7, 0.72, 1.0, 1.4])
def test_the_curvature_is_reached_to_one_per_cent(bound: float) -> None:
    """By two classes of softmax where the slope is just as long as the bound; logistic regression likewise."""
    for loss, most in ((Softmax(feature_norm=1.0, classes=3), math.sqrt(2.0)), (Logistic(feature_norm=1.0), 1.0)):
        said = loss.envelope_smoothness(bound)
        missing = np.linspace(1e-4, min(bound / most, 1.0 - 1e-4) - 1e-7, 4001)
        scores = np.zeros((4001, loss.outputs))
        scores[:, 0] = np.log(missing / (1.0 - missing))  # against class 1 of two
        if loss.outputs > 1:
            scores[:, 2] = -700.0
        targets, step, reach = np.ones(4001) if loss.outputs > 1 else np.zeros(4001), np.zeros(loss.outputs), np.full(4001, bound)
        step[:2] = [1e-4, -1e-4] if loss.outputs > 1 else 1e-4
        rise = loss.envelope_slopes(scores + step, targets, reach) - loss.envelope_slopes(scores - step, targets, reach)
        found = (np.linalg.norm(rise, axis=1) / np.linalg.norm(2 * step)).max()
        assert 0.99 * said <= found <= said * (1 + 1e-7)
        if loss.outputs > 1:
            assert said == pytest.approx(share(min(bound, 1.0)), rel=1e-12)


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 8), size=st.floats(0.01, 100.0))
def test_no_hessian_of_softmax_is_above_the_curvature_of_its_slope(seed: int, classes: int, size: float) -> None:
    """The lemma of the bound: eigenvalues at most g (sqrt 2 - g) where the slope has length g up to 1/sqrt 2."""
    rng = np.random.default_rng(seed)
    loss = Softmax(feature_norm=1.0, classes=classes)
    scores, targets = drawn(loss, rng, 300, size)
    lengths = np.linalg.norm(loss.slopes(scores, targets), axis=1)
    largest = np.linalg.eigvalsh(loss.curvatures(scores, targets).dense())[:, -1]
    for length, eigenvalue in zip(lengths, largest, strict=True):
        assert eigenvalue <= share(length) + 1e-15


def test_curvature_of_rows_of_any_norm_is_below_that_of_the_longest() -> None:
    for loss in (Softmax(feature_norm=2.0, classes=3), Logistic(feature_norm=2.0)):
        for clip_norm in (0.1, 0.7, 1.3, 2.0):
            shorter = [loss.on_rows(norm).envelope_smoothness(clip_norm) for norm in np.linspace(0.01, 2.0, 200)]
            assert max(shorter) <= loss.envelope_smoothness(clip_norm) * (1 + 1e-12) <= loss.curvature[1] * (1 + 1e-12)
    assert Softmax(feature_norm=2.0, intercept=True).envelope_smoothness(0.5) == pytest.approx(0.5 * (math.sqrt(10.0) - 0.5))


def exact(scores: Floats, target: int, bound: float, near: Floats) -> list[Any]:
    r"""Newton's method with 50 digits on $u + a\,l'(u) = s$, $\|l'(u)\|^2 = c^2$, from the slope that is to be judged."""
    own = np.eye(len(scores))[target]
    guess = np.log(near + own)
    rest = scores - guess - (scores - guess).mean()

    def slope(point: tuple[Any, ...]) -> list[Any]:
        weights = [mpmath.exp(entry) for entry in point]
        return [weight / sum(weights) - int(place == target) for place, weight in enumerate(weights)]

    def equations(*unknown: Any) -> list[Any]:
        point, times = unknown[:-1], unknown[-1]
        moved = [entry + times * part - mpmath.mpf(float(score)) for entry, part, score in zip(point, slope(point), scores, strict=True)]
        return [*moved, sum(part**2 for part in slope(point)) - mpmath.mpf(bound) ** 2]

    with mpmath.workdps(50):
        times = float(rest @ near / (near @ near))
        root = mpmath.findroot(equations, [*(scores - times * near), times], tol=1e-80)
        return slope(tuple(root)[:-1])


@pytest.mark.parametrize(("classes", "bound", "size"), [(3, 0.3, 2.0), (5, 0.9, 6.0), (4, 0.01, 1.0), (3, 1.0, 9.0)])
def test_the_search_is_as_exact_as_it_says(classes: int, bound: float, size: float) -> None:
    rng = np.random.default_rng(classes)
    loss = Softmax(feature_norm=1.0, classes=classes)
    scores, targets = drawn(loss, rng, 30, size)
    slopes = loss.envelope_slopes(scores, targets, np.full(30, bound))
    long = np.flatnonzero(np.linalg.norm(loss.slopes(scores, targets), axis=1) > bound)[:3]
    assert len(long) == 3
    for row in long:
        truth = exact(scores[row], int(targets[row]), bound, slopes[row])
        off = math.sqrt(sum(float(one - other) ** 2 for one, other in zip(map(mpmath.mpf, slopes[row]), truth, strict=True)))
        assert off <= 1e-13 * bound < ERROR * bound


def test_at_the_bound_itself_nothing_jumps() -> None:
    rng = np.random.default_rng(2)
    for classes in (2, 3, 50):
        loss = Softmax(feature_norm=1.0, classes=classes)
        scores, targets = drawn(loss, rng, 500, 1.0)
        plain = loss.slopes(scores, targets)
        norms = np.linalg.norm(plain, axis=1)
        inside = norms <= 1.0
        for nearly in (1e-17, 3e-16, 1e-12, -1e-16):
            slopes = loss.envelope_slopes(scores, targets, norms * (1.0 - nearly))
            assert np.abs(slopes - plain)[inside].max() <= 1e-14 + 2 * abs(nearly)
    # Bounds between one and the largest slope count as one; beyond it nothing changes.
    far = np.array([[9.0, 0.0, 0.0, 0.0]])
    one, *same = [SOFTMAX.envelope_slopes(far, np.ones(1), np.array([bound])) for bound in (1.0, 1.2, 1.41)]
    assert all(np.array_equal(one, slopes) for slopes in same)
    for bound in (1.42, math.inf):
        np.testing.assert_allclose(SOFTMAX.envelope_slopes(far, np.ones(1), np.array([bound])), SOFTMAX.slopes(far, np.ones(1)), atol=1e-15)


def test_what_is_not_known_is_refused() -> None:
    for scores in ([3e5, 0.0, 0.0, 0.0], [1e300, -1e300, 0.0, 1.0], [2e4, 0.0, -1e9, 5.0]):
        with pytest.raises(LetheError, match="so far apart that rounding hides"):
            SOFTMAX.envelope_slopes(np.array([scores]), np.ones(1), np.array([0.3]))
    for loss in (OneVersusRest(feature_norm=1.0, classes=3, width=0.5), TruncatedSoftmax(feature_norm=1.0, cut=0.5, classes=3)):
        assert not loss.has_envelope()
        with pytest.raises(InputError, match="is not known here"):
            loss.envelope_slopes(np.zeros((1, 3)), np.zeros(1), np.ones(1))
