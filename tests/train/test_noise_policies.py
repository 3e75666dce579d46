"""The earlier adaptive rules, as policies."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from problems import make_loss, make_problem, make_run

from lethe.errors import InputError
from lethe.run.losses import LeastSquares, Logistic, Softmax
from lethe.train import Observed, ValidationDecay, fit_linear, scheduled

# schedules.md section 12, test 10: Yu et al. at t = 0, 10, 25 from s0 = 10.
PRINTED: list[tuple[dict[str, Any], list[float]]] = [
    ({"schedule": "time_decay", "first": 10.0, "rate": 0.05}, [10, 6.666667, 4.444444]),
    ({"schedule": "exponential", "first": 10.0, "ratio": math.exp(-0.01)}, [10, 9.048374, 7.788008]),
    ({"schedule": "step", "first": 10.0, "factor": 0.6, "period": 10}, [10, 6, 3.6]),
    ({"schedule": "polynomial", "first": 10.0, "last": 2.0, "power": 3.0, "period": 100}, [10, 7.832, 5.375]),
]


def look(step: int, parameters: np.ndarray | None = None, steps_per_pass: int = 4) -> Observed:
    return Observed(
        step=step,
        steps_per_pass=steps_per_pass,
        parameters=np.zeros((4, 3)) if parameters is None else parameters,
        remaining=1.0,
        last_multiplier=None,
    )


@pytest.mark.parametrize(("schedule", "printed"), PRINTED)
def test_yu_s_decays_by_step_and_by_pass(schedule: dict[str, Any], printed: list[float]) -> None:
    by_step, by_pass = scheduled(schedule), scheduled(schedule, every="pass")
    for time, value in zip((0, 10, 25), printed, strict=True):
        assert by_step(look(time + 1)) == pytest.approx(value, abs=6e-7)  # printed digits
        for place in range(4):
            assert by_pass(look(4 * time + place + 1)) == pytest.approx(value, abs=6e-7)
    assert by_step(look(1)) == 10.0  # any order of looking


def test_a_scheduled_policy_trains_as_the_schedule_does() -> None:
    schedule = {"schedule": "exponential", "first": 3.0, "ratio": 0.9}
    run = make_run(release="all", noise_budget=1.0, noise_multiplier=schedule, passes=5)
    problem = make_problem("softmax_regression")
    planned = fit_linear(run, problem.features, problem.targets, classes=3, seed=0)
    asked = fit_linear(run, problem.features, problem.targets, classes=3, seed=0, noise_policy=scheduled(schedule))
    assert planned.report.steps == asked.report.steps < 20
    assert (planned.model.weights == asked.model.weights).all()


def test_sixty_epochs_of_the_printed_decay_fit_a_budget_of_theirs() -> None:
    """schedules.md section 12, test 10: 60 epochs of exp k = .0138 cost rho = 0.757264 where a step costs 1/(2 sigma^2)."""
    schedule = {"schedule": "exponential", "first": 10.0, "ratio": math.exp(-0.0138)}
    run = make_run(release="all", noise_budget=0.7572645, noise_multiplier=None, passes=100, neighbours="zero_out")
    problem = make_problem("softmax_regression")
    policy = scheduled(schedule, every="pass")
    trained = fit_linear(run, problem.features, problem.targets, classes=3, seed=0, noise_policy=policy)
    assert trained.report.steps == 60 * 4
    assert trained.spent == pytest.approx(0.757264, abs=5e-7)


def test_a_list_ends_with_an_error_and_words_are_checked() -> None:
    policy = scheduled([2.0, 3.0], every="pass")
    assert [policy(look(step)) for step in (1, 4, 5, 8)] == [2, 2, 3, 3]
    with pytest.raises(InputError, match="list of 2 multipliers ends before pass 3"):
        policy(look(9))
    with pytest.raises(InputError, match="every"):
        scheduled(2.0, every="epoch")
    with pytest.raises(InputError):
        scheduled({"schedule": "unknown"})


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


def test_the_window_averages_the_last_passes_only() -> None:
    """Two of the last two, then one of two: S falls from 1 to 1/2; with a window of one it stays at 1."""
    half = [GOOD, GOOD, BAD, GOOD]
    assert walk(decay(window=2), half)[-1] == 8.0
    assert walk(decay(window=1, threshold=0.0), half)[-1] == 10.0


def test_between_two_passes_nothing_is_looked_at_and_step_one_begins_anew() -> None:
    policy = decay()
    assert walk(policy, [BAD, BAD])[-1] == 8.0
    assert [policy(look(step, BAD)) for step in (10, 11, 12)] == [8.0] * 3
    assert walk(policy, [BAD, BAD]) == [10.0, 10.0, 8.0]


@pytest.mark.parametrize("kind", ["softmax_regression", "logistic_regression"])
@pytest.mark.parametrize("intercept", [False, True])
def test_it_measures_the_accuracy_that_the_trained_model_has(kind: str, intercept: bool) -> None:
    """On rows that need projecting: the policy's decisions are those of `LinearPredictor.accuracy` at each pass end."""
    problem, public = make_problem(kind), make_problem(kind, records=50, seed=1)
    run = make_run(
        kind, release="all", noise_budget=50.0, noise_multiplier=None, passes=6, step_size=4.0, loss=make_loss(kind, intercept=intercept)
    )

    def fit(steps: int) -> Any:
        policy = ValidationDecay(
            public.features, public.targets, loss=run.loss, classes=problem.classes, period=1, window=1, threshold=0.03
        )
        return fit_linear(run.replace(steps=steps), problem.features, problem.targets, classes=problem.classes, seed=0, noise_policy=policy)

    accuracies = [0.0] + [fit(4 * passes).model.accuracy(public.features, public.targets) for passes in range(1, 6)]
    expected, multiplier = [10.0], 10.0
    for before, after in pairwise(accuracies):
        multiplier *= 0.8 if after - before < 0.03 else 1.0
        expected.append(multiplier)
    assert fit(24).run.noise_multipliers[::4] == pytest.approx(expected)
    assert 1 < len(set(expected)) < 6  # some checks see progress and some do not


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": LeastSquares(feature_norm=1.0, residual_bound=1.0)}, "least_squares"),
        ({"classes": None}, "classes"),
        ({"first": 0.0}, "first"),
        ({"factor": 1.5}, "factor"),
        ({"factor": 0.0}, "factor"),
        ({"period": 0}, "period"),
        ({"period": True}, "period"),
        ({"window": 3}, "window"),
        ({"threshold": math.nan}, "threshold"),
    ],
)
def test_bad_constants_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decay(**changes)


def test_bad_validation_data_are_refused() -> None:
    with pytest.raises(InputError, match=r"features\[0, 0\]"):
        ValidationDecay([[math.nan]], [0], loss=LOSS, classes=3)
    with pytest.raises(InputError, match="targets"):
        ValidationDecay(FEATURES, [0, 1], loss=LOSS, classes=3)
    with pytest.raises(InputError, match="4 columns"):
        decay()(look(5, np.zeros((7, 3))))
    assert ValidationDecay(FEATURES, TARGETS % 2, loss=Logistic(feature_norm=1.0))(look(1)) == 10.0
