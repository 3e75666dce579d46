"""Training under a privacy budget: the stop rule, noise chosen along the way, when it is decided, and the run that is recorded."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import DESIGNS, with_fresh_noise
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import fit_network, flat, make_network, make_network_run
from problems import make_problem, make_run
from torch import nn

from lethe.accounting.certify import certify
from lethe.errors import BudgetExceededError, InputError, LetheError
from lethe.run.run import Run
from lethe.train import Fitted
from lethe.train.core.budgeted_noise import NoisePolicy, Observed, scheduled
from lethe.train.linear.models import LinearPredictor

SLOTTED = ("cyclic", "shuffled_once", "balls_in_bins")
ONCE_A_PASS = ("shuffled", "random_allocation")


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
    if run.batches.design in ONCE_A_PASS:
        length = run.steps_per_pass
        return [math.fsum(costs[first : first + length].max() for first in range(0, len(costs), length))]
    return [math.fsum(costs[slot::slots]) for slot in range(slots)]


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@settings(max_examples=examples(15))
@given(multipliers=st.lists(st.floats(0.2, 50.0), min_size=12, max_size=12), budget=st.floats(0.05, 20.0), where=st.sampled_from(DESIGNS))
def test_no_policy_overspends(neighbours: str, multipliers: list[float], budget: float, where: str) -> None:
    run = budgeted_run(budget, design=where, steps=12, neighbours=neighbours)

    def policy(observed: Observed) -> float:
        observed.parameters[:] = np.nan  # moves no iterate
        return multipliers[observed.step - 1]

    try:
        trained = fit(run, policy)
    except BudgetExceededError:
        assert 0.5 * (run.touch_factor / multipliers[0]) ** 2 > budget
        return
    steps = trained.diagnostics.steps
    paid = accounts(trained.run)
    assert np.isfinite(trained.model.weights).all()
    assert max(paid) <= budget * (1 + 1e-9)
    assert trained.spent == pytest.approx(max(paid), rel=1e-12)
    if steps < 12:  # the refused step would have overspent
        wanted = 0.5 * (run.touch_factor / np.array(multipliers[: steps + 1])) ** 2
        begun = steps - steps % run.steps_per_pass
        before = wanted[begun:steps].max(initial=0.0) if where in ONCE_A_PASS else 0.0
        assert paid[steps % len(paid)] + wanted[-1] - before > budget
    certify(with_fresh_noise(trained.run), 1e-5)


@pytest.mark.parametrize("answer", [0.0, -1.0, math.nan, math.inf, True, "2", None, 5e-324])
def test_bad_answers_are_refused(answer: object) -> None:
    with pytest.raises(InputError, match=r"returned .* at step 1"):
        fit(budgeted_run(1.0), lambda observed: answer)  # pyright: ignore[reportArgumentType, reportReturnType]


def look(step: int) -> Observed:
    return Observed(step=step, steps_per_pass=4, parameters=np.zeros((4, 3)), remaining=1.0, last_multiplier=None)


def test_a_policy_of_a_schedule_follows_it_by_step_and_by_pass_and_trains_as_it_does() -> None:
    """test_schedules.py has the values themselves."""
    schedule = {"schedule": "time_decay", "first": 10.0, "rate": 0.05}
    by_step, by_pass = scheduled(schedule), scheduled(schedule, every="pass")
    for time in (25, 10, 0):
        assert by_step(look(time + 1)) == pytest.approx(10.0 / (1 + 0.05 * time))
        assert {by_pass(look(4 * time + place + 1)) for place in range(4)} == {by_step(look(time + 1))}
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
    for wrong, every, said in ((2.0, "epoch", "every"), ({"schedule": "unknown"}, "step", "schedule")):
        with pytest.raises(InputError, match=said):
            scheduled(wrong, every=every)


def network_run(budget: float, design: str = "cyclic", **changes: Any) -> Run:
    """One record replaced moves the clipped sum by twice the norm: with noise of twice the norm a step costs 1/2."""
    return make_network_run(
        design, **{"noise_multiplier": 2.0, "neighbours": "replace_one", "noise_budget": budget, "steps": 12, **changes}
    )


def fitted(run: Run, policy: NoisePolicy | None = None, model: nn.Module | None = None, **options: Any) -> Fitted[nn.Module]:
    model = make_network() if model is None else model
    return fit_network(run, model, **{"seed": 2, "noise_policy": policy, "isolation": "declared", **options})


def test_nothing_is_trained_when_the_first_step_costs_too_much() -> None:
    model = make_network()
    with pytest.raises(BudgetExceededError, match=r"first step costs rho = 0\.5 of a budget of 0\.3") as caught:
        fitted(network_run(0.3), model=model)
    assert torch.equal(flat(model), flat(make_network()))
    least = float(str(caught.value.remedy).split("at least ")[1].split(",")[0])
    assert fitted(network_run(0.3, noise_multiplier=least)).run.total_steps == 4  # one a slot: the remedy is right
    with pytest.raises(BudgetExceededError, match="rho = inf"):
        fitted(network_run(0.3, noise_multiplier=0.0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("physical_size", [None, 2])
def test_a_step_is_decided_about_once_before_any_of_its_records_passes_through_the_model(physical_size: int | None) -> None:
    model, passed, seen = make_network(), [0], list[tuple[int, int]]()

    def count(module: nn.Module, inputs: Any) -> None:
        passed[0] += 1

    model.register_forward_pre_hook(count)

    def policy(observed: Observed) -> float:
        seen.append((observed.step, passed[0]))
        return 2.0

    assert fitted(network_run(1.0), policy, model, physical_size=physical_size).run.total_steps == 8
    pieces = 1 if physical_size is None else 3  # batches of 5
    assert seen == [(step, (step - 1) * pieces) for step in range(1, 10)]
    assert passed[0] == 8 * pieces


@pytest.mark.sampled(2)
@pytest.mark.parametrize("by_optimizer", [False, True])
def test_the_policy_sees_released_iterates_and_its_noise_is_what_is_recorded(by_optimizer: bool) -> None:
    seen: list[Observed] = []

    def policy(observed: Observed) -> float:
        seen.append(observed)
        return 2.0 + observed.step / 7

    def again(run: Run) -> Fitted[nn.Module]:
        model = make_network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02) if by_optimizer else None
        return fitted(run, policy if run.noise_budget else None, model, optimizer=optimizer)

    result = again(network_run(0.85, noise_multiplier=None))
    recorded = result.run
    steps = recorded.total_steps
    assert steps == 8
    observed = list(seen)
    assert [entry.step for entry in observed] == list(range(1, steps + 2))  # the last was refused
    assert {entry.steps_per_pass for entry in observed} == {4}
    assert [entry.last_multiplier for entry in observed[:3]] == [None, 2 + 1 / 7, 2 + 2 / 7]
    assert observed[4].remaining == pytest.approx(0.85 - 0.5 * (2 / (2 + 1 / 7)) ** 2)  # slot 0 has paid once
    asked = np.array([2.0 + (step + 1) / 7 for step in range(steps)])
    assert recorded.noise_multipliers == pytest.approx(asked, rel=5e-16)
    assert (recorded.noise_stds <= 0.5 * asked * (0.4 / 5) * (1 + 1e-15)).all()
    assert (observed[0].parameters == flat(make_network()).numpy()).all()
    assert (observed[-1].parameters == flat(result.model).numpy()).all()
    multipliers = recorded.noise_multipliers.tolist()
    for steps_before in (1, 3, 6):  # trained for that long with the noise that was recorded
        short = recorded.replace(noise_budget=None, steps=steps_before, step_size=0.5, noise_multiplier=multipliers[:steps_before])
        assert observed[steps_before].parameters == pytest.approx(flat(again(short).model).numpy(), rel=1e-9, abs=1e-12)


def test_an_overflow_is_not_shown_to_the_policy() -> None:
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e308)
    with pytest.raises(LetheError, match="overflowed before step 2"):
        fitted(network_run(1.0), lambda observed: 1e6, model, optimizer=optimizer)
