"""Schedules of the noise, as policies."""

import math
from typing import Any

import numpy as np
import pytest
from problems import make_problem, make_run

from lethe.errors import InputError
from lethe.train import Observed, fit_linear, scheduled

# schedules.md section 12, test 10: Yu et al. at t = 0, 10, 25 from s0 = 10.
PRINTED: list[tuple[dict[str, Any], list[float]]] = [
    ({"schedule": "time_decay", "first": 10.0, "rate": 0.05}, [10, 6.666667, 4.444444]),
    ({"schedule": "exponential", "first": 10.0, "ratio": math.exp(-0.01)}, [10, 9.048374, 7.788008]),
    ({"schedule": "step", "first": 10.0, "factor": 0.6, "period": 10}, [10, 6, 3.6]),
    ({"schedule": "polynomial", "first": 10.0, "last": 2.0, "power": 3.0, "period": 100}, [10, 7.832, 5.375]),
]


def look(step: int) -> Observed:
    return Observed(step=step, steps_per_pass=4, parameters=np.zeros((4, 3)), remaining=1.0, last_multiplier=None)


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
