"""What leaves the order of a loop of one's own, or mixes records in it: refused, and no parameter moves; or exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import CROSS_ENTROPY, Loop, by_hand, fit_network, flat, losses_of, make_data, make_network, make_network_run
from torch import Tensor, nn
from torch.optim import SGD

from lethe.errors import LetheError
from lethe.train import PrivacyEngine


def first(loop: Loop) -> Any:
    loop.batches = iter(loop.loader)  # pyright: ignore[reportAttributeAccessIssue]
    return next(loop.batches)  # pyright: ignore[reportAttributeAccessIssue]


def backward(loop: Loop) -> Any:
    """The first batch, used."""
    batch = first(loop)
    loop.engine.backward(batch)
    return batch


def plain_backward(loop: Loop, batch: Any) -> None:
    losses_of(loop.model)(batch).mean().backward()


def gradient_replaced(loop: Loop) -> None:
    backward(loop)
    loop.model[0].weight.grad = torch.ones_like(loop.model[0].weight)
    loop.optimizer.step()


def batch_left_out(loop: Loop) -> None:
    for batch in loop.loader:
        if loop.engine.steps != 1:
            loop.use(batch)


def step_left_out(loop: Loop) -> None:
    for batch in loop.loader:
        loop.engine.backward(batch)


def out_of_memory(*_: object) -> None:
    raise torch.OutOfMemoryError


def an_error_within(loop: Loop) -> None:
    batch = first(loop)
    handle = loop.model[0].register_forward_hook(out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        loop.engine.backward(batch)
    handle.remove()
    loop.engine.backward(batch)


FOREIGN = "is not the noisy gradient"
REFUSED: dict[str, tuple[Callable[[Loop], Any], str]] = {
    "a step without backward": (lambda loop: (first(loop), loop.optimizer.step()), "no private gradient for step 1"),
    "a plain backward": (lambda loop: (plain_backward(loop, first(loop)), loop.optimizer.step()), FOREIGN),
    "a plain backward besides": (lambda loop: plain_backward(loop, backward(loop)), FOREIGN),
    "a gradient that is lost": (lambda loop: (backward(loop), loop.optimizer.zero_grad(), loop.optimizer.step()), "is gone"),
    "a gradient that is replaced": (gradient_replaced, FOREIGN),
    "two steps": (lambda loop: (backward(loop), loop.optimizer.step(), loop.optimizer.step()), "no private gradient for step 2"),
    "a step before any batch": (lambda loop: loop.optimizer.step(), "no private gradient for step 1"),
    "a closure": (lambda loop: (backward(loop), loop.optimizer.step(lambda: torch.zeros(()))), "closure"),
    "a batch that is left out": (batch_left_out, "a batch of step 2 was left out"),
    "a step that is left out": (step_left_out, "step 1 was not taken"),
    "a batch that is used twice": (lambda loop: loop.engine.backward(backward(loop)), "used already"),
    "other records": (lambda loop: (first(loop), loop.use(make_data())), "got a batch of 23 rows"),
    "no batch": (lambda loop: loop.use(make_data()), "no batch has been taken"),
    "more steps": (lambda loop: (loop.whole(), loop.optimizer.step()), "all 9 steps of the run are used up"),
    "the loop again": (lambda loop: (loop.whole(), loop.whole()), "those of all 9 steps were delivered"),
    "a record in the middle of a step": (lambda loop: (backward(loop), loop.engine.recorded_run()), "of step 1 was not used"),
    "a record of nothing": (lambda loop: loop.engine.recorded_run(), "no step was executed"),
    "an error in the middle of a batch": (an_error_within, "interrupted within step 1"),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("physical_size", [None, 50])
@pytest.mark.parametrize("name", REFUSED)
def test_what_leaves_the_order_is_refused(name: str, physical_size: int | None) -> None:
    refused(name, Loop(make_network_run(noise_multiplier=1.0, batches={"design": "poisson", "size": 12}), physical_size=physical_size))


def refused(name: str, loop: Loop) -> None:
    """And no parameter moves without a private gradient."""
    spoil, message = REFUSED[name]
    with pytest.raises(LetheError, match=message):
        spoil(loop)
    if "backward" in name or "gradient" in name:
        assert torch.equal(flat(loop.model), flat(make_network()))


def test_after_close_the_optimiser_is_free() -> None:
    model = make_network()
    optimizer = SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(model, optimizer, losses_of(model), make_data(), make_network_run(noise_multiplier=1.0))
    engine.close()
    losses_of(model)(make_data()).mean().backward()
    optimizer.step()


def masking(outputs: Tensor, targets: Tensor) -> Tensor:
    targets[targets == 2] = 1
    return CROSS_ENTROPY(outputs, targets)


def doubling(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets.mul_(2)).square()


def masking_by_the_batch(outputs: Tensor, targets: Tensor) -> Tensor:
    targets[targets == targets.max()] = 1
    return CROSS_ENTROPY(outputs, targets)


def test_a_loss_that_writes_into_its_targets_is_exact_or_refused() -> None:
    """What it writes may be written again; what grows each time is not the same batch any more."""
    run, (features, targets) = make_network_run("cyclic"), make_data()
    expected = by_hand(make_network(), (features, targets.where(targets != 2, 1)), run, torch.Generator())
    fitted = fit_network(run, loss=masking, data=(features, targets.clone()))
    torch.testing.assert_close(flat(fitted.model), expected, rtol=0, atol=1e-8)
    with pytest.raises(LetheError, match="the loss of record"):
        fit_network(run, loss=doubling, data=(features, targets.double()))
    with pytest.raises(LetheError, match="depends on the other records"):
        fit_network(run, loss=masking_by_the_batch, data=(features, targets.clone()))


class Slow(torch.optim.SGD):
    """Goes half of the way back after every second step; its step calls that of its class."""

    def step(self, closure: Any = None) -> Any:
        told = super().step(closure)
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        self.taken = getattr(self, "taken", 0) + 1
        with torch.no_grad():
            for parameter, slow in zip(own, self.__dict__.setdefault("slow", [one.detach().clone() for one in own]), strict=True):
                if self.taken % 2 == 0:
                    parameter.copy_(slow.lerp_(parameter, 0.5))
        return told


def test_an_optimiser_whose_step_calls_that_of_its_class_takes_one_step() -> None:
    torch.optim.SGD([nn.Parameter(torch.zeros(1))])  # whose step has hooks of its own from now on
    loop = Loop(optimizer=lambda parameters: Slow(parameters, lr=0.1))
    assert loop.whole().total_steps == loop.engine.steps == loop.run.total_steps


class Spoilt(torch.optim.SGD):
    """Puts other gradients in before the step of its class."""

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        return super().step(closure)


class Failing(torch.optim.SGD):
    """Fails in the middle of its step."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        raise OSError("no space left")


def test_gradients_that_come_in_the_middle_of_a_step_or_after_one_that_failed_are_refused() -> None:
    torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    with pytest.raises(LetheError, match=r"its \.grad is not the noisy gradient"):
        Loop(optimizer=lambda parameters: Spoilt(parameters, lr=0.1)).whole()
    loop = Loop(optimizer=lambda parameters: Failing(parameters, lr=0.1))
    with pytest.raises(OSError, match="no space"):
        loop.whole()
    for parameter in loop.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(LetheError, match=r"its \.grad is not the noisy gradient|no private gradient"):
        loop.optimizer.step()
