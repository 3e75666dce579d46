"""Losses in a loop of one's own: asked for where they can be, declared by name where not; and what is kept from batch to batch."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lethe.train.checks.loss import CheckedLoss
from lethe.train.clipping import Clipper
from networks import CLASSES, CROSS_ENTROPY, make_data, make_network, make_network_run
from private_loops import Loop
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import InputError
from lethe.train import fit
from lethe.train.core.comparison import chance
from lethe.train.data import TensorSource

RUN = make_network_run("cyclic", noise_multiplier=1.0)


def over_the_first_class(outputs: Tensor, targets: Tensor) -> Tensor:
    """In the units of a count of the batch, as losses divided by its tokens are."""
    return CROSS_ENTROPY(outputs, targets) / (1 + (targets == 0).sum())


def over_a_number(outputs: Tensor, targets: Tensor) -> Tensor:
    return CROSS_ENTROPY(outputs, targets) / (1 + int((targets == 0).sum()))


class WithTheLast:
    """Pulls every record towards the last batch's mean."""

    def __init__(self, *, graph: bool = False) -> None:
        self.last: Tensor | None = None
        self.graph = graph

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        before, self.last = self.last, (outputs if self.graph else outputs.detach()).mean(0)
        losses = CROSS_ENTROPY(outputs, targets)
        return losses if before is None else losses + (outputs - before).square().sum(1)


class PullOnly(WithTheLast):
    """The same in the gradient alone: the losses' values do not change."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        before, self.last = self.last, outputs.detach().mean(0)
        losses = CROSS_ENTROPY(outputs, targets)
        return losses if before is None else losses + ((outputs - outputs.detach()) * before).sum(1)


class OnlyInTraining(WithTheLast):
    """Looks where gradients are enabled only."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if torch.is_grad_enabled() and outputs.requires_grad:
            return super().__call__(outputs, targets)
        return CROSS_ENTROPY(outputs, targets)


class Kept(nn.Module):
    """A module that keeps the last batch in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(CLASSES, dtype=torch.float64))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = CROSS_ENTROPY(outputs, targets) + (outputs * self.get_buffer("last")).sum(1)
        self.get_buffer("last").copy_(outputs.detach().mean(0))
        return losses


KEEPING: dict[str, Callable[[], Any]] = {
    "the last batch": WithTheLast,
    "in gradients alone": PullOnly,
    "in training only": OnlyInTraining,
    "in a buffer": Kept,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KEEPING)
def test_fit_refuses_a_loss_that_keeps_the_last_batch(name: str) -> None:
    with pytest.raises(InputError, match=r"loss: (gives other losses|the loss of record)"):
        fit(make_network(), KEEPING[name](), make_data(), RUN)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KEEPING)
def test_a_loop_is_refused_it_as_well_where_the_loss_can_be_asked(name: str) -> None:
    loop, kept = Loop(RUN), KEEPING[name]()
    inputs, targets = next(iter(loop.loader))
    with loop.engine.recording():
        outputs = loop.model(inputs)
        with pytest.raises(InputError, match=r"loss: (gives other losses|the loss of record)"):
            loop.engine.losses(kept, outputs, targets)


def of_loop(loop: Loop, losses: Callable[[Tensor, Tensor], Tensor]) -> None:
    for inputs, targets in loop.loader:
        with loop.engine.recording():
            told = losses(loop.model(inputs), targets)
        loop.engine.backward(told)
        loop.optimizer.step()
        loop.optimizer.zero_grad()


@pytest.mark.slow
@pytest.mark.parametrize("losses", [over_the_first_class, over_a_number])
def test_a_loss_over_a_count_of_the_batch_is_refused_in_a_loop(losses: Callable[[Tensor, Tensor], Tensor]) -> None:
    loop = Loop(RUN)
    with pytest.raises(InputError, match="loss: the loss of record"):
        of_loop(loop, lambda outputs, targets: loop.engine.losses(losses, outputs, targets))
    with pytest.raises(InputError, match="a number that all records of the batch share was"):
        of_loop(Loop(RUN), losses)


@pytest.mark.slow
def test_losses_that_the_loop_divides_afterwards_are_looked_at_too() -> None:
    loop = Loop(RUN)

    def divided(outputs: Tensor, targets: Tensor) -> Tensor:
        return loop.engine.losses(CROSS_ENTROPY, outputs, targets) / (1 + (targets == 0).sum())

    with pytest.raises(InputError, match="a number that all records of the batch share was"):
        of_loop(loop, divided)


@pytest.mark.nightly(by_day="test_constants_are_left_alone_in_losses_of_the_loop_s_own")
@pytest.mark.slow
def test_a_weight_that_follows_a_plan_is_accepted_where_the_loss_can_be_asked() -> None:
    steps: list[int] = []

    def planned(outputs: Tensor, targets: Tensor) -> Tensor:
        return CROSS_ENTROPY(outputs, targets) + outputs.square().mean(1) * 0.1 * len(steps)

    loop = Loop(RUN)
    for inputs, targets in loop.loader:
        with loop.engine.recording():
            told = loop.engine.losses(planned, loop.model(inputs), targets)
        loop.engine.backward(told)
        loop.optimizer.step()
        loop.optimizer.zero_grad()
        steps.append(1)
    assert not any("handed to engine.backward" in statement for statement in loop.engine.declared)


@pytest.mark.slow
def test_constants_are_left_alone_in_losses_of_the_loop_s_own() -> None:
    loop, weights = Loop(RUN), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def honest(outputs: Tensor, targets: Tensor) -> Tensor:
        tokens = (targets >= 0).double()
        each = functional.cross_entropy(outputs, targets, weight=weights, reduction="none") * tokens * 0.5
        return each / tokens.clamp(min=1) + 0.1 * outputs.square().mean(1) / torch.tensor(3.0)

    of_loop(loop, honest)
    assert loop.engine.recorded_run().replace(seeded=False) == RUN


@pytest.mark.slow
def test_what_is_not_seen_of_losses_is_declared_by_name() -> None:
    loop = Loop(RUN)
    loop.whole()
    assert any("handed to engine.backward" in statement for statement in loop.engine.declared)
    assert any("before training do not depend on these records" in statement for statement in loop.engine.declared)
    asked = Loop(RUN)
    of_loop(asked, lambda outputs, targets: asked.engine.losses(CROSS_ENTROPY, outputs, targets))
    assert not any("handed to engine.backward" in statement for statement in asked.engine.declared)
    assert any("what else enters it" in statement for statement in asked.engine.declared)
    done = fit(make_network(), CROSS_ENTROPY, make_data(), RUN)
    assert any("what else enters it" in statement for statement in done.declared)
    assert isinstance(done.declared, tuple)
    assert not any("self-check" in statement for statement in done.declared)


@pytest.mark.nightly(by_day="test_what_is_not_seen_of_losses_is_declared_by_name")
@pytest.mark.slow
def test_what_a_source_declares_is_declared() -> None:
    class Rows(TensorSource):
        declared = ("these rows are apart",)

    class Unknown(TensorSource):
        pass

    assert "these rows are apart" in fit(make_network(), CROSS_ENTROPY, Rows(*make_data()), RUN).declared
    assert any("Unknown.fetch" in statement for statement in fit(make_network(), CROSS_ENTROPY, Unknown(*make_data()), RUN).declared)
    assert not any(".fetch" in statement for statement in fit(make_network(), CROSS_ENTROPY, make_data(), RUN).declared)


def test_losses_that_go_back_to_an_earlier_batch_are_refused() -> None:
    loop, kept = Loop(RUN, verify=False), WithTheLast(graph=True)
    with pytest.raises(InputError, match="no parameter, and no input of this batch"):
        of_loop(loop, kept)
    clipper, extra = Clipper(make_network(), verify=False), torch.zeros(3, dtype=torch.float64, requires_grad=True)
    with clipper.recording():
        outputs = clipper.model(make_data()[0])
    with pytest.raises(InputError, match="no parameter, and no input of this batch"):
        clipper.backward((outputs + extra).sum(1))


def test_inputs_that_ask_for_gradients_are_left_alone() -> None:
    clipper = Clipper(make_network(), verify=False)
    inputs = make_data()[0].clone().requires_grad_()
    with clipper.recording():
        outputs = clipper.model(inputs)
    clipper.backward(outputs.sum(1))
    assert clipper.contributed is True


def test_a_loss_is_asked_as_often_as_is_said_and_what_it_gave_is_used() -> None:
    clipper = Clipper(make_network())
    with clipper.recording():
        outputs = clipper.model(make_data()[0])
    asked = CheckedLoss(CROSS_ENTROPY, clipper)
    assert torch.equal(asked(outputs, make_data()[1]), CROSS_ENTROPY(outputs, make_data()[1]))
    assert asked.missing is None


@pytest.mark.slow
def test_training_to_which_nothing_contributed_says_so_and_not_how_many_did() -> None:
    features, targets = make_data()
    with pytest.warns(UserWarning, match="private: no record contributed to any step"):
        done = fit(make_network(), CROSS_ENTROPY, (torch.full_like(features, torch.nan), targets), RUN, verify=False)
    assert done.report.contributed is False
    nan = features.clone()
    nan[1:] = torch.nan
    assert fit(make_network(), CROSS_ENTROPY, (nan, targets), RUN, verify=False).report.contributed is True
    masked = torch.full_like(targets, -100)  # PyTorch's label of what does not count: the loss is 0
    for way in ({}, {"physical_size": 1}):
        with pytest.warns(UserWarning, match="private: no record contributed to any step .* every gradient was 0.* all masked") as said:
            done = fit(make_network(), CROSS_ENTROPY, (features, masked), RUN, verify=False, **way)
        assert done.report.contributed is False
        assert not any(str(len(masked)) in str(one.message) for one in said)
    masked[0] = targets[0]
    assert fit(make_network(), CROSS_ENTROPY, (features, masked), RUN, verify=False).report.contributed is True
    loop = Loop(RUN, verify=False)
    assert loop.engine.report is None
    loop.whole()
    assert loop.engine.report is not None
    assert loop.engine.report.contributed is True


def centred(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mixes by values that no gradient shows."""
    return CROSS_ENTROPY(outputs - outputs.detach().mean(0), targets)


class Switched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixes = False

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (centred if self.mixes else CROSS_ENTROPY)(outputs, targets)


def after(steps: int, criterion: Any) -> None:
    """A loop with the usual loss, and then one step with this one."""
    loop = Loop(RUN, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    batches = iter(loop.loader)
    for step, (inputs, targets) in enumerate(batches, start=1):
        with loop.engine.recording():
            losses = loop.engine.losses(CROSS_ENTROPY if step <= steps else criterion, loop.model(inputs), targets)
        loop.engine.backward(losses)
        loop.optimizer.step()
        if step > steps:
            return


@pytest.mark.nightly(by_day="test_a_loss_whose_switch_is_turned_is_looked_at_again")
@pytest.mark.slow
def test_a_loss_that_comes_later_is_looked_at_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "randrange", lambda count: count - 1)
    with pytest.raises(InputError, match="the loss of record"):
        after(4, centred)
    with pytest.raises(InputError, match="the loss of record"):
        after(4, lambda outputs, targets: centred(outputs, targets))
    after(4, nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1))


@pytest.mark.slow
def test_a_loss_whose_switch_is_turned_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "randrange", lambda count: count - 1)
    loss = Switched()

    def turned(step: int, steps: int) -> None:
        loss.mixes = step == 4

    with pytest.raises(InputError, match="the loss of record"):
        fit(make_network(), loss, make_data(), RUN, progress=turned)


@pytest.mark.slow
def test_what_could_not_be_said_of_one_loss_is_not_forgotten_with_the_next() -> None:
    loop = Loop(RUN, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))

    def noisy(outputs: Tensor, targets: Tensor) -> Tensor:
        return CROSS_ENTROPY(outputs, targets) * torch.rand(len(targets))

    for step, (inputs, targets) in enumerate(loop.loader):
        with loop.engine.recording(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses = loop.engine.losses(CROSS_ENTROPY if step else noisy, loop.model(inputs), targets)
        loop.engine.backward(losses)
        loop.optimizer.step()
    assert any("it is random" in said for said in loop.engine.declared)


@pytest.mark.slow
def test_a_loss_that_is_made_anew_for_every_batch_is_looked_at_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "randrange", lambda count: count - 1)
    asked = itertools.count()  # an iterator: what checks put back after them is what can be copied

    def counting(outputs: Tensor, targets: Tensor) -> Tensor:
        next(asked)
        return CROSS_ENTROPY(outputs, targets)

    loop = Loop(RUN, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    calls: list[int] = []
    for inputs, targets in loop.loader:
        before = next(asked)
        with loop.engine.recording():
            losses = loop.engine.losses(lambda outputs, targets: counting(outputs, targets), loop.model(inputs), targets)
        calls.append(next(asked) - before - 1)
        loop.engine.backward(losses)
        loop.optimizer.step()
    assert [step for step, many in enumerate(calls, start=1) if many > 1] == [1, 2, 4, 8]
