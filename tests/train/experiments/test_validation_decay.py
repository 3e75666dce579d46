"""Validation decay: when the noise falls, and that it looks at the accuracy that the trained model has."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from doors import fit_linear
from problems import make_run

from lethe.run.losses import Logistic, Softmax
from lethe.run.losses.linear import LinearLoss
from lethe.train.core.budgeted_noise import Observed
from lethe_experiments.adaptive import ValidationDecay


def look(step: int, parameters: np.ndarray) -> Observed:
    return Observed(step=step, steps_per_pass=4, parameters=parameters, remaining=1.0, last_multiplier=None)


FEATURES, TARGETS = np.eye(4), np.array([0, 1, 2, 0])
GOOD, BAD = np.eye(4)[:, [0, 1, 2]] + np.outer([0, 0, 0, 1], [1, 0, 0]), -np.eye(4)[:, [0, 1, 2]] - np.outer([0, 0, 0, 1], [1, 0, 0])
LOSS = Softmax(feature_norm=1.5)


def decay(**changes: Any) -> ValidationDecay:
    return ValidationDecay(FEATURES, TARGETS, **{"loss": LOSS, "classes": 3, "period": 2, "window": 1, **changes})


def walk(policy: ValidationDecay, iterates: list[np.ndarray]) -> list[float]:
    """The multiplier of the first step of every pass, when pass p ended at iterates[p - 1]."""
    return [policy(look(4 * place + 1, np.zeros((4, 3)) if place == 0 else iterates[place - 1])) for place in range(len(iterates) + 1)]


def test_the_noise_falls_when_accuracy_stops_rising() -> None:
    """Checked after passes 2, 4, 6, ...: accuracy 1 gains on 0 first, and never again."""
    assert walk(decay(), [GOOD] * 6) == pytest.approx([10, 10, 10, 10, 8, 8, 6.4])
    assert walk(decay(), [BAD] * 4) == pytest.approx([10, 10, 8, 8, 6.4])  # accuracy 0 is no gain on S_0 = 0
    assert walk(decay(), [BAD, BAD, BAD, GOOD]) == pytest.approx([10, 10, 8, 8, 8])
    assert walk(decay(threshold=0.0), [GOOD] * 4) == [10.0] * 5  # standing still is not below a threshold of 0
    assert walk(decay(first=3.0, factor=0.5), [BAD, BAD]) == [3.0, 3.0, 1.5]
    # The window averages the last passes only: two of two, then one of two, S falls from 1 to 1/2; with a window of one it stays at 1.
    half, policy = [GOOD, GOOD, BAD, GOOD], decay()
    assert walk(decay(window=2), half)[-1] == 8.0
    assert walk(decay(window=1, threshold=0.0), half)[-1] == 10.0
    for _ in range(2):  # between two passes nothing is looked at, and step one begins anew
        assert walk(policy, [BAD, BAD]) == [10.0, 10.0, 8.0]
        assert [policy(look(step, BAD)) for step in (10, 11, 12)] == [8.0] * 3


@pytest.mark.parametrize("kind", [Softmax, Logistic])
@pytest.mark.parametrize("intercept", [False, True])
def test_it_measures_the_accuracy_that_the_trained_model_has(kind: type[LinearLoss], intercept: bool) -> None:
    """On rows that need projecting: the policy's decisions are those of `LinearPredictor.accuracy` at each pass end."""
    loss, classes = kind(feature_norm=1.5, intercept=intercept, evidence="enforced"), 3 if kind is Softmax else 2
    (features, targets), public = (
        (random.normal(size=(records, 4)) * 0.8, random.integers(classes, size=records))
        for random, records in ((np.random.default_rng(0), 23), (np.random.default_rng(1), 50))
    )
    run = make_run(passes=6, step_size=4.0, noise_budget=50.0, noise_multiplier=None, loss=loss, release="all")

    def fit(passes: int) -> Any:
        policy = ValidationDecay(*public, loss=loss, classes=classes, period=1, window=1, threshold=0.03)
        return fit_linear(run.replace(passes=passes), features, targets, classes=classes, seed=0, noise_policy=policy)

    accuracies = [0.0] + [fit(passes).model.accuracy(*public) for passes in range(1, 6)]
    expected, multiplier = [10.0], 10.0
    for before, after in pairwise(accuracies):
        multiplier *= 0.8 if after - before < 0.03 else 1.0
        expected.append(multiplier)
    assert fit(6).run.noise_multipliers[::4] == pytest.approx(expected)
    assert 1 < len(set(expected)) < 6  # some checks see progress and some do not
