"""Trained parameters written to beside the step, by any way into their numbers: refused before the next step and by `recorded_run`."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from held_loops import make_loop
from lethe.train.checks.held_parameters import HeldParameters
from networks import flat, make_data, make_network
from private_loops import Loop
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError


def through_data(model: nn.Module) -> None:
    model[0].weight.data.clamp_(-0.1, 0.1)  # pyright: ignore


def through_numpy(model: nn.Module) -> None:
    model[0].bias.detach().numpy()[1] += 1e-9  # pyright: ignore


def through_dlpack(model: nn.Module) -> None:
    torch.from_dlpack(model[3].weight.detach()).mul_(2)  # pyright: ignore


def in_place(model: nn.Module) -> None:
    with torch.no_grad():
        model[0].weight.add_(1e-6)  # pyright: ignore


def loaded(model: nn.Module) -> None:
    model.load_state_dict({name: tensor / 2 for name, tensor in make_network().state_dict().items()})


def another_parameter(model: nn.Module) -> None:
    model[0].weight = nn.Parameter(make_network()[0].weight.detach() + 1)  # pyright: ignore


def one_more(model: nn.Module) -> None:
    model.extra = nn.Parameter(torch.ones(3))  # pyright: ignore


CHANGES: tuple[Callable[[nn.Module], None], ...] = (through_data, through_numpy, through_dlpack, in_place, loaded, another_parameter)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_steps_is_refused_before_the_next(change: Callable[[nn.Module], None]) -> None:
    loop = make_loop()
    batches = iter(loop.loader)
    loop.use(*next(batches))
    kept = copy.deepcopy(loop.model.state_dict())
    change(loop.model)
    with pytest.raises((HypothesisError, InputError), match="changed by something else"):
        loop.losses(*next(batches))
    if change is not another_parameter:
        loop.model.load_state_dict(kept)  # put right, training goes on
        loop.engine.backward(loop.losses(*make_rows(loop)))
        loop.optimizer.step()


def make_rows(loop: Loop) -> tuple[Tensor, Tensor]:
    """As many as the present batch has."""
    rows = torch.arange(len(loop.engine.counted)) % len(make_data()[0])
    features, targets = make_data()
    return features[rows], targets[rows]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_backward_and_step_is_refused(change: Callable[[nn.Module], None]) -> None:
    loop = make_loop()
    loop.engine.backward(loop.losses(*next(iter(loop.loader))))
    change(loop.model)
    before = flat(loop.model)
    with pytest.raises((HypothesisError, InputError), match="changed by something else"):
        loop.optimizer.step()
    assert torch.equal(flat(loop.model), before)


@pytest.mark.parametrize("change", [another_parameter, one_more, through_data])
def test_a_change_between_the_two_passes_is_refused_before_noise_is_drawn(change: Callable[[nn.Module], None]) -> None:
    loop = make_loop()
    batches = iter(loop.loader)
    for _ in range(2):
        loop.use(*next(batches))
    losses = loop.losses(*next(batches))  # of a batch that the self-check hardly ever looks at, which would see it first
    change(loop.model)
    with pytest.raises(HypothesisError, match=r"in the forward pass of step 3|changed while records"):
        loop.engine.backward(losses)
    assert not any(parameter.grad is not None for parameter in loop.model.parameters())


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("change", [*CHANGES, one_more])
def test_a_change_after_the_last_step_is_refused_by_recorded_run(change: Callable[[nn.Module], None]) -> None:
    loop = make_loop()
    run = loop.whole()
    kept = copy.deepcopy(loop.model.state_dict())
    change(loop.model)
    with pytest.raises((HypothesisError, InputError), match="changed by something else"):
        loop.engine.recorded_run()
    if change not in (another_parameter, one_more):
        loop.model.load_state_dict(kept)
        assert loop.engine.recorded_run() == run


def times_ten(gradient: Tensor) -> None:
    gradient.data.mul_(10)


def clamped(gradient: Tensor) -> None:
    gradient.data.clamp_(-1e-3, 1e-3)


def one_number(gradient: Tensor) -> None:
    gradient.numpy().reshape(-1)[0] += 1e-9


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", [times_ten, clamped, one_number])
def test_gradients_changed_unseen_by_versions_are_refused(change: Callable[[Tensor], None]) -> None:
    loop = make_loop()
    loop.engine.backward(loop.losses(*next(iter(loop.loader))))
    before = flat(loop.model)
    change(loop.model[3].weight.grad)
    with pytest.raises(InputError, match=r"3\.weight: its \.grad is not the noisy gradient"):
        loop.optimizer.step()
    assert torch.equal(flat(loop.model), before)


def change_places(model: nn.Sequential) -> None:
    model[0].weight, model[1].weight = model[1].weight, model[0].weight


def thawed(model: nn.Sequential) -> None:
    model[2].weight.requires_grad_(True)


def registered(model: nn.Sequential) -> None:
    model[2].register_parameter("late", nn.Parameter(torch.zeros(1)))


def one_for_two(model: nn.Sequential) -> None:
    model[1].weight = model[0].weight


def under_another_name(model: nn.Sequential) -> None:
    model.add_module("3", model[1])
    del model[1]


@pytest.mark.parametrize("change", [change_places, registered, one_for_two, under_another_name, thawed])
def test_a_model_that_holds_others_is_refused_at_whichever_look(change: Callable[[nn.Sequential], None]) -> None:
    """Also after looks at which nothing had changed; every number is what it was."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    held = HeldParameters(model, named, step="the step", remedy="do not.")
    for step in range(3):
        held.refuse_changes(f"before step {step}")
        held.keep()
    change(model)
    expected = r"2\.weight was unfrozen now; all steps train" if change is thawed else "changed by something else than the step now"
    with pytest.raises(HypothesisError, match=expected):
        held.refuse_changes("now")
