"""Training under a privacy budget: the stop rule, noise chosen along the way, and the run that is recorded."""

import math
from typing import Any

import numpy as np
import pytest
from doors import fit_linear
from helpers import DESIGNS, with_fresh_noise
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import make_loss, make_problem, make_run

from lethe.accounting.certify import certify
from lethe.errors import BudgetExceededError, InputError
from lethe.run.run import Run
from lethe.train import Fitted
from lethe.train.core.budgeted_noise import NoisePolicy, Observed, scheduled
from lethe.train.linear.models import LinearPredictor

SLOTTED = ("cyclic", "shuffled_once")


def budgeted_run(budget: float, **changes: Any) -> Run:
    """Softmax regression, clipped at 0.6: the noise is 2 / touch factor times the sensitivity, so a step costs 1/2 (replaced: 2^2/2^2)."""
    return make_run(**{"release": "all", "noise_budget": budget, **changes})


def fit(run: Run, policy: NoisePolicy | None = None, **options: Any) -> Fitted[LinearPredictor]:
    problem = make_problem(run.loss.kind)
    options = {"classes": problem.classes, "seed": 0, "noise_policy": policy, **options}
    return fit_linear(run, problem.features, problem.targets, **options)


def accounts(run: Run) -> list[float]:
    """What each account of the filter pays for the recorded steps, by the definition."""
    slots = run.steps_per_pass if run.batches.design in SLOTTED else 1
    costs = 0.5 * (run.sensitivities / run.noise_stds) ** 2
    return [math.fsum(costs[slot::slots]) for slot in range(slots)]


def test_a_policy_cannot_change_the_iterate() -> None:
    def meddling(observed: Observed) -> float:
        observed.parameters[:] = 1e9
        return 2.0

    assert (fit(budgeted_run(1.5), meddling).model.weights == fit(budgeted_run(1.5)).model.weights).all()


def test_the_whole_rest_may_be_spent_at_once() -> None:
    """Every slot spends half of what it has left, and in the last pass all of it, up to rounding."""
    touch = 2.0

    def policy(observed: Observed) -> float:
        share = 1.0 if observed.step > 8 else 0.5
        return touch / math.sqrt(2 * share * observed.remaining)

    trained = fit(budgeted_run(0.7), policy)
    assert trained.diagnostics.steps == 12
    assert accounts(trained.run) == pytest.approx([0.7] * 4, rel=1e-12)


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@settings(max_examples=examples(15))
@given(multipliers=st.lists(st.floats(0.2, 50.0), min_size=12, max_size=12), budget=st.floats(0.05, 20.0), where=st.sampled_from(DESIGNS))
def test_no_policy_overspends(neighbours: str, multipliers: list[float], budget: float, where: str) -> None:
    run = budgeted_run(budget, design=where, steps=12, neighbours=neighbours)
    try:
        trained = fit(run, lambda observed: multipliers[observed.step - 1])
    except BudgetExceededError:
        assert 0.5 * (run.touch_factor / multipliers[0]) ** 2 > budget
        return
    steps = trained.diagnostics.steps
    paid = accounts(trained.run)
    assert max(paid) <= budget * (1 + 1e-9)
    assert trained.spent == pytest.approx(max(paid), rel=1e-12)
    if steps < 12:  # the refused step would have overspent
        slot = steps % len(paid)
        assert paid[slot] + 0.5 * (run.touch_factor / multipliers[steps]) ** 2 > budget
    certify(with_fresh_noise(trained.run), 1e-5)


@pytest.mark.parametrize("answer", [0.0, -1.0, math.nan, math.inf, True, "2", None, 5e-324])
def test_bad_answers_are_refused(answer: object) -> None:
    with pytest.raises(InputError, match=r"returned .* at step 1"):
        fit(budgeted_run(1.0), lambda observed: answer)  # pyright: ignore[reportArgumentType, reportReturnType]


def test_secret_norms_of_least_squares_are_counted_at_their_bound() -> None:
    """Without clipping the unit is the loss's gradient bound, and so is the sensitivity: a multiplier of 2 costs 1/2 again."""
    run = budgeted_run(1.0, kind="least_squares", clip_norm=None, loss=make_loss("least_squares"))
    assert fit(run).diagnostics.steps == 8


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
    planned, asked = fit(run), fit(run, scheduled(schedule))
    assert planned.diagnostics.steps == asked.diagnostics.steps < 20
    assert (planned.model.weights == asked.model.weights).all()


def test_a_list_ends_with_an_error_and_words_are_checked() -> None:
    policy = scheduled([2.0, 3.0], every="pass")
    assert [policy(look(step)) for step in (1, 4, 5, 8)] == [2, 2, 3, 3]
    with pytest.raises(InputError, match="list of 2 multipliers ends before pass 3"):
        policy(look(9))
    with pytest.raises(InputError, match="every"):
        scheduled(2.0, every="epoch")
    with pytest.raises(InputError):
        scheduled({"schedule": "unknown"})
