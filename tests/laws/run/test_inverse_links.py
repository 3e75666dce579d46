"""Probabilities from scores under losses of bounded slope: what they are, against slopes and minimisers; their order and their symmetry."""

import math

import numpy as np
import pytest
from scipy import special

from lethe.errors import LetheError
from lethe.run.losses import Logistic, OneVersusRest, Softmax, TruncatedLogistic, TruncatedSoftmax
from lethe.run.losses.inverse_links import class_log_probabilities, log_odds, ridge_shift, ridge_shifts
from lethe.run.losses.linear import LinearLoss

Floats = np.ndarray
Case = tuple[LinearLoss, float]  # the bound of its envelope
TWO: list[Case] = [*((Logistic(feature_norm=1.0), c) for c in (0.25, 0.9, 2.0)), (TruncatedLogistic(feature_norm=1.0, cut=0.2), 2.0)]
MANY: list[Case] = [(Softmax(feature_norm=1.0, classes=classes), c) for classes in (2, 3, 10) for c in (0.25, 0.9, 2.0)]
MANY += [(TruncatedSoftmax(feature_norm=1.0, classes=classes, cut=cut), 2.0) for classes in (2, 3, 10) for cut in (0.2, 0.5)]


def slopes(case: Case, scores: Floats) -> Floats:
    """Of a record of each class, shape (n, K, k)."""
    (loss, bound), count = case, len(scores)
    rows = [np.full(count, float(one)) for one in range(loss.target_classes or 0)]
    plain = isinstance(loss, TruncatedLogistic | TruncatedSoftmax)
    return np.stack([loss.slopes(scores, y) if plain else loss.envelope_slopes(scores, y, np.full(count, bound)) for y in rows], axis=1)


def chances(case: Case, scores: Floats) -> Floats:
    loss, bounds = case[0], np.full(len(scores), case[1])
    if scores.shape[1] > 1:
        return np.exp(class_log_probabilities(loss, scores, bounds))
    odds = class_log_probabilities(loss, scores[:, 0], bounds)
    return np.stack([special.expit(-odds), special.expit(odds)], axis=1)


@pytest.mark.parametrize("case", [*TWO, *MANY], ids=repr)
def test_no_step_moves_scores_on_average(case: Case) -> None:
    """Both ways: one per cent more of a class, and a mean slope is left. The likeliest class has the largest score, also far away."""
    scores = 3.0 * np.random.default_rng(0).standard_normal((60, case[0].outputs))
    if case[0].outputs == 1:  # where chances are not taken on a line
        scores = np.sign(scores) * (np.abs(scores) + 1.5 * math.log(4.0))
    else:
        for far in (1.0, 1e4):
            law = chances(case, far * scores)
            np.testing.assert_allclose(law.sum(axis=1), 1.0)
            assert (law.max(axis=1) - law[np.arange(60), scores.argmax(axis=1)]).max() < 1e-9
    law, rates = chances(case, scores), slopes(case, scores)
    for more, least, most in ((1.0, 0.0, 1e-8), (1.01, 0.004, 1.0)):
        law[:, 0] *= more
        left = np.abs(np.einsum("nk,nkj->nj", law, rates)) / np.einsum("nk,nkj->nj", law, np.abs(rates))
        assert least <= left.max() < most


def test_log_odds_grow_with_the_score_and_are_odd() -> None:
    scores = np.linspace(-40.0, 40.0, 4001)
    for cut in (1e-3, 0.1, 0.25, 0.49, 0.5, 0.51, 0.9, 1.0, 3.0):
        odds = log_odds(scores, cut)
        assert (np.diff(odds) > 0.0).all()
        np.testing.assert_allclose(odds, -odds[::-1], atol=1e-12)
    np.testing.assert_allclose(log_odds(scores, 1.0), scores)
    two = np.stack([np.zeros(4001), scores], axis=1)
    for case in ((MANY[1][0], 0.9), (MANY[10][0], 2.0)):  # two scores say what their difference does
        by_difference = class_log_probabilities(case[0], scores, np.full(4001, case[1]))
        np.testing.assert_allclose(special.expit(by_difference), chances(case, two)[:, 1], rtol=1e-7, atol=1e-15)
    with pytest.raises(LetheError, match="no probabilities"):
        class_log_probabilities(OneVersusRest(feature_norm=1.0, classes=3, width=0.5), np.zeros((2, 3)), None)


@pytest.mark.parametrize(("ridge", "middle", "spread"), [(3e-3, -3.0, 0.8), (1e-2, -2.0, 0.1), (3e-3, 1.5, 2.0), (1e-4, -4.0, 1.5)])
def test_a_shift_undoes_a_ridge(ridge: float, middle: float, spread: float) -> None:
    """Scores by a normal law, in quadrature: chances at the shifted score leave the slope that the ridge balances."""
    shift, places = ridge_shift(middle, spread, ridge, 0.5), np.linspace(-8.0, 8.0, 20_001)
    scores, density = middle + spread * places, np.exp(-0.5 * places**2)
    rates = slopes((TruncatedLogistic(feature_norm=1.0, cut=0.5), 2.0), scores[:, None])[:, :, 0]
    laws = [special.expit(log_odds(scores + by * shift, 0.5)) for by in (0.95, 1.05)]
    left = [density @ ((1.0 - law) * rates[:, 0] + law * rates[:, 1]) / density.sum() + ridge * middle for law in laws]
    assert left[0] * middle > 0.0 > left[1] * middle
    assert (ridge_shift(middle, spread, 0.0, 0.5), ridge_shift(middle, spread, 100.0, 0.5)) == (0.0, math.copysign(2.0, middle))


@pytest.mark.parametrize("loss", [Softmax(feature_norm=1.0, classes=3), TruncatedSoftmax(feature_norm=1.0, classes=3, cut=0.5)], ids=repr)
def test_shifts_of_many_classes_undo_a_ridge(loss: Softmax | TruncatedSoftmax) -> None:
    """Draws of other scores: a class's mean slope is what the ridge balances, and no more so with a twentieth more of its shift."""
    middle, root, ridge = np.array([2.2, -0.2, -2.0]), 0.7 * np.random.default_rng(1).standard_normal((3, 3)), 5e-3
    shifts = ridge_shifts(loss, middle, root.T @ root, ridge)
    scores = middle + np.random.default_rng(2).standard_normal((400_000, 3)) @ root
    rates = np.stack([loss.slopes(scores, np.full(len(scores), float(one))) for one in range(3)], axis=1)

    def left(by: float) -> Floats:
        law = np.exp(class_log_probabilities(loss, scores + by * shifts, None))
        return np.einsum("nk,nkj->j", law, rates) / len(scores) + ridge * middle

    assert shifts[2] < -0.1
    assert np.abs(left(1.0)).max() < 0.03 * ridge
    assert left(0.95)[2] < -0.03 * ridge < 0.03 * ridge < left(1.05)[2]
    np.testing.assert_allclose(ridge_shifts(loss, middle, root.T @ root, 0.0), 0.0, atol=1e-9)
