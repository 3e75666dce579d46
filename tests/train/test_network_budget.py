"""Networks under a privacy budget: the stop rule, noise chosen along the way, when it is decided, and the run that is recorded."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_linear
from helpers import DESIGNS
from networks import CROSS_ENTROPY, by_hand, flat, make_data, make_network, make_network_run
from problems import make_problem
from torch import nn

from lethe.errors import BudgetExceededError, LetheError
from lethe.run.run import Run
from lethe.train import Fitted, fit
from lethe.train.core.budgeted_noise import NoisePolicy, Observed
from lethe.train.network.noise.gaussian import NetworkNoise

SLOTTED = ("cyclic", "shuffled_once")


def budgeted_run(budget: float, design: str = "cyclic", **changes: Any) -> Run:
    """One record replaced moves the clipped sum by twice the norm: with noise of twice the norm a step costs 1/2."""
    return make_network_run(
        design, **{"noise_multiplier": 2.0, "neighbours": "replace_one", "noise_budget": budget, "steps": 12, **changes}
    )


def fitted(run: Run, policy: NoisePolicy | None = None, model: nn.Module | None = None, **options: Any) -> Fitted[nn.Module]:
    model = make_network() if model is None else model
    return fit(model, CROSS_ENTROPY, make_data(), run, **arguments({"seed": 2, "noise_policy": policy, "isolation": "declared", **options}))


def accounts(run: Run) -> list[float]:
    """What each account of the filter pays for the recorded steps, by the definition."""
    slots = run.steps_per_pass if run.batches.design in SLOTTED else 1
    costs = 0.5 * (run.sensitivities / run.noise_stds) ** 2
    return [math.fsum(costs[slot::slots]) for slot in range(slots)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("physical_size", [None, 2])
@pytest.mark.parametrize("design", DESIGNS)
def test_the_run_stops_before_the_first_step_that_would_overspend(design: str, physical_size: int | None) -> None:
    """A budget of 1 pays for 2 steps of 1/2, or in slots of their own for 2 passes of 4 steps."""
    result = fitted(budgeted_run(1.0, design), physical_size=physical_size)
    steps = 8 if design in SLOTTED else 2
    assert result.run.total_steps == steps
    assert result.run.noise_budget == 1.0
    assert result.run.noise_multipliers == pytest.approx(2.0, rel=5e-16)  # a list holds them up to two roundings
    assert result.spent == pytest.approx(1.0)
    assert max(accounts(result.run)) == pytest.approx(1.0)
    plain = fitted(budgeted_run(1.0, design).replace(noise_budget=None, steps=steps), physical_size=physical_size)
    assert torch.equal(flat(result.model), flat(plain.model))  # the filter changes no number, and the refused step nothing


def test_it_stops_where_fit_linear_stops_and_records_the_same() -> None:
    loss = {"kind": "softmax_regression", "feature_norm": 1.5, "evidence": "declared"}
    run = budgeted_run(0.9, noise_multiplier=None, loss=loss)

    def policy(observed: Observed) -> float:
        return 2.0 + 1 / observed.step

    problem = make_problem("softmax_regression")
    linear = fit_linear(run, problem.features, problem.targets, classes=3, seed=0, noise_policy=policy)
    network = fitted(run, policy, nn.Linear(4, 3).double())
    assert network.run == linear.run.replace(loss=run.loss)
    assert network.spent == linear.spent


def test_nothing_is_trained_when_the_first_step_costs_too_much() -> None:
    model = make_network()
    with pytest.raises(BudgetExceededError, match=r"first step costs rho = 0\.5 of a budget of 0\.3") as caught:
        fitted(budgeted_run(0.3), model=model)
    assert torch.equal(flat(model), flat(make_network()))
    least = float(str(caught.value.remedy).split("at least ")[1].split(",")[0])
    assert fitted(budgeted_run(0.3, noise_multiplier=least)).run.total_steps == 4  # one a slot: the remedy is right
    with pytest.raises(BudgetExceededError, match="rho = inf"):
        fitted(budgeted_run(0.3, noise_multiplier=0.0))


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

    assert fitted(budgeted_run(1.0), policy, model, physical_size=physical_size).run.total_steps == 8
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

    result = again(budgeted_run(0.85, noise_multiplier=None))
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


@pytest.mark.parametrize("multiplier", [1.5, 6.0])
def test_the_noise_that_is_added_is_the_policys(multiplier: float) -> None:
    """One full batch and one step of size 1/2 on 23 records: the noise of the sum is the multiplier times the norm, 0.4."""
    run = budgeted_run(100.0, "full", steps=1, noise_multiplier=None)
    still = by_hand(make_network(), make_data(), run.replace(noise_budget=None, noise_multiplier=0.0), torch.Generator())
    noise = [torch.zeros_like(parameter) for parameter in make_network().parameters()]
    NetworkNoise(np.random.default_rng(6)).add_to(noise, multiplier * 0.4)
    drawn = torch.cat([part.reshape(-1) for part in noise])
    got = flat(fitted(run, lambda observed: multiplier, seed=None, noise_generator=np.random.default_rng(6)).model)
    assert float((got - (still - 0.5 / 23 * drawn)).abs().max()) < 1e-9


def test_an_overflow_is_not_shown_to_the_policy() -> None:
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e308)
    with pytest.raises(LetheError, match="overflowed before step 2"):
        fitted(budgeted_run(1.0), lambda observed: 1e6, model, optimizer=optimizer)
