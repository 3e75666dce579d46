"""Probabilities from scores under losses of bounded slope: what they are, against slopes and minimisers; their order and their symmetry."""

import math

import numpy as np
import pytest
from scipy import optimize, special

from lethe.errors import LetheError
from lethe.run.losses import Logistic, OneVersusRest, SmoothedHinge, Softmax, TruncatedLogistic, TruncatedSoftmax
from lethe.run.losses.linear import LinearLoss
from lethe.train.linear.inverse_links import class_log_odds, class_log_probabilities, log_odds, ridge_shift

Floats = np.ndarray
Case = tuple[LinearLoss, float | None]
TWO: tuple[Case, ...] = (
    (Logistic(feature_norm=1.0), None),
    (Logistic(feature_norm=1.0), 0.25),
    (Logistic(feature_norm=1.0), 0.7),
    (TruncatedLogistic(feature_norm=1.0, cut=0.5), None),
    (TruncatedLogistic(feature_norm=1.0, cut=0.3), None),
)
MANY: tuple[Case, ...] = tuple(
    case
    for classes in (2, 3, 10)
    for case in (
        (Softmax(feature_norm=1.0, classes=classes), None),
        (Softmax(feature_norm=1.0, classes=classes), 0.25),
        (Softmax(feature_norm=1.0, classes=classes), 0.9),
        (TruncatedSoftmax(feature_norm=1.0, classes=classes, cut=0.5), None),
        (TruncatedSoftmax(feature_norm=1.0, classes=classes, cut=0.2), None),
    )
)


def slopes(case: Case, scores: Floats) -> Floats:
    """Of a record of each class, shape (n, K, k)."""
    loss, bound = case
    count, classes = len(scores), loss.target_classes
    assert classes is not None
    own = [np.full(count, float(one)) for one in range(classes)]
    if bound is None:
        return np.stack([loss.slopes(scores, one) for one in own], axis=1)
    return np.stack([loss.envelope_slopes(scores, one, np.full(count, bound)) for one in own], axis=1)


def chances(case: Case, scores: Floats) -> Floats:
    loss, bound = case
    bounds = None if bound is None else np.full(len(scores), bound)
    if loss.outputs == 1:
        odds = class_log_odds(loss, scores[:, 0], bounds)
        return np.stack([special.expit(-odds), special.expit(odds)], axis=1)
    return np.exp(class_log_probabilities(loss, scores, bounds))


def off(case: Case, scores: Floats, law: Floats) -> float:
    """The largest mean slope that is left, as a share of its terms."""
    rates = slopes(case, scores)
    left = np.abs(np.einsum("nk,nkj->nj", law, rates))
    return float((left / np.einsum("nk,nkj->nj", law, np.abs(rates))).max())


@pytest.mark.parametrize("case", [*TWO, *MANY], ids=repr)
def test_no_step_moves_scores_on_average(case: Case) -> None:
    """Both ways: one per cent more of a class, and a mean slope is left."""
    rng = np.random.default_rng(0)
    scores = 3.0 * rng.standard_normal((60, case[0].outputs))
    if case[0].outputs == 1:  # where chances are not taken on a line
        scores = np.sign(scores) * (np.abs(scores) + 1.5 * math.log(3.0))
    law = chances(case, scores)
    np.testing.assert_allclose(law.sum(axis=1), 1.0, rtol=1e-12)
    assert off(case, scores, law) < 1e-8
    law[:, 0] *= 1.01
    assert off(case, scores, law) > 0.004


@pytest.mark.parametrize("cut", [0.5, 0.8])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_best_scores_give_back_the_chances(cut: float, classes: int) -> None:
    """The minimiser of the expected loss, by a general optimiser."""
    loss = TruncatedSoftmax(feature_norm=1.0, classes=classes, cut=cut)
    rng = np.random.default_rng(1)
    for _ in range(3):
        law = rng.dirichlet(np.full(classes, 0.7))

        def expected(scores: Floats, law: Floats = law) -> float:
            return sum(law[own] * float(loss.values(scores[None], np.array([float(own)]))[0]) for own in range(classes))

        best = optimize.minimize(expected, np.log(law), method="BFGS", options={"gtol": 1e-9}).x
        np.testing.assert_allclose(chances((loss, None), best[None])[0], law, atol=2e-4)


@pytest.mark.parametrize("rate", [0.02, 0.08, 0.3])
def test_a_rare_class_keeps_its_rate(rate: float) -> None:
    """One score for everybody: what the sigmoid says of it is several times too small, the inverse link is the rate."""
    for loss, bound, c in ((Logistic(feature_norm=1.0), 0.25, 0.25), (TruncatedLogistic(feature_norm=1.0, cut=0.5), None, 0.5)):

        def mean_slope(score: float, case: Case = (loss, bound)) -> float:
            rates = slopes(case, np.array([[score]]))[0, :, 0]
            return float((1.0 - rate) * rates[0] + rate * rates[1])

        score = optimize.brentq(mean_slope, -30.0, 0.0, xtol=1e-12)
        known = chances((loss, bound), np.array([[score]]))[0, 1]
        assert special.expit(score) == pytest.approx(c * rate / (1.0 - rate), rel=1e-9)
        if rate < 0.3:
            assert known == pytest.approx(rate, rel=1e-9)
        else:
            assert known == pytest.approx(rate, rel=0.15)  # on the line, of bounds below a half


def test_log_odds_grow_with_the_score_and_are_odd() -> None:
    scores = np.linspace(-40.0, 40.0, 4001)
    for cut in (1e-3, 0.1, 0.25, 0.49, 0.5, 0.51, 0.9, 1.0, 3.0):
        odds = log_odds(scores, cut)
        assert (np.diff(odds) > 0.0).all()
        np.testing.assert_allclose(odds, -odds[::-1], atol=1e-12)
        np.testing.assert_allclose(log_odds(scores, np.full(4001, cut)), odds)
        assert log_odds(np.zeros(1), cut)[0] == 0.0
    np.testing.assert_allclose(log_odds(scores, 1.0), scores)
    assert np.isfinite(log_odds(np.array([-1e300, 1e300]), 0.25)).all()


@pytest.mark.parametrize("case", MANY, ids=repr)
def test_the_likeliest_class_has_the_largest_score(case: Case) -> None:
    scores = 2.0 * np.random.default_rng(2).standard_normal((300, case[0].outputs))
    law = chances(case, scores)
    behind = law.max(axis=1) - law[np.arange(300), scores.argmax(axis=1)]
    assert behind.max() < 1e-9
    wide = chances(case, 1e4 * scores)
    assert np.isfinite(wide).all()
    np.testing.assert_allclose(wide.sum(axis=1), 1.0)


def test_two_scores_say_what_their_difference_does() -> None:
    scores = 4.0 * np.random.default_rng(3).standard_normal((200, 2))
    apart = scores[:, 1] - scores[:, 0]
    for loss, bound in ((TruncatedSoftmax(feature_norm=1.0, classes=2, cut=0.5), None), (Softmax(feature_norm=1.0, classes=2), 0.8)):
        bounds = None if bound is None else np.full(200, bound)
        np.testing.assert_allclose(
            special.expit(class_log_odds(loss, apart, bounds)), chances((loss, bound), scores)[:, 1], rtol=1e-9, atol=1e-15
        )


def test_losses_whose_slope_vanishes_have_none() -> None:
    """A hinge tells only which class is likelier."""
    with pytest.raises(LetheError, match="no probabilities"):
        class_log_odds(SmoothedHinge(feature_norm=1.0, width=0.5), np.zeros(2))
    with pytest.raises(LetheError, match="no probabilities"):
        class_log_probabilities(OneVersusRest(feature_norm=1.0, classes=3, width=0.5), np.zeros((2, 3)))


@pytest.mark.parametrize(("ridge", "middle", "spread"), [(3e-3, -3.0, 0.8), (1e-2, -2.0, 0.1), (3e-3, 1.5, 2.0), (1e-4, -4.0, 1.5)])
@pytest.mark.parametrize("cut", [None, 0.5])
def test_a_shift_undoes_a_ridge(ridge: float, middle: float, spread: float, cut: float | None) -> None:
    """Scores by a normal law, in quadrature: chances at the shifted score leave the slope that the ridge balances."""
    loss = Logistic(feature_norm=1.0) if cut is None else TruncatedLogistic(feature_norm=1.0, cut=cut)
    shift, places = ridge_shift(middle, spread, ridge, cut or 1.0), np.linspace(-8.0, 8.0, 20_001)
    scores, density = middle + spread * places, np.exp(-0.5 * places**2)

    def left(by: float) -> float:
        law = special.expit(log_odds(scores + by, cut or 1.0))
        rates = [loss.slopes(scores[:, None], np.full(20_001, own))[:, 0] for own in (0.0, 1.0)]
        return float(density @ ((1.0 - law) * rates[0] + law * rates[1]) / density.sum()) + ridge * middle

    assert shift * middle > 0.0
    assert abs(left(shift)) < 0.02 * ridge * abs(middle)
    assert left(0.95 * shift) * middle > 0.0 > left(1.05 * shift) * middle
    assert ridge_shift(middle, spread, 0.0, cut or 1.0) == 0.0
    assert ridge_shift(middle, spread, 100.0, cut or 1.0) == math.copysign(2.0, middle)
