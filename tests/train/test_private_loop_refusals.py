"""What leaves the order of a private loop is refused, and no parameter moves."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import flat, make_data, make_network, make_network_run
from private_loops import Loop, losses_of
from torch import Tensor
from torch.optim import SGD

from lethe.errors import HypothesisError, InputError, LetheError
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


def unfrozen() -> Loop:
    model = make_network()
    model[0].requires_grad_(False)
    loop = Loop(model=model, optimizer=lambda own: torch.optim.SGD(own, lr=0.5))
    model[0].requires_grad_(True)
    return loop


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
    "layers that were frozen": (lambda _: unfrozen().whole(), "are not those that training began with"),
    "an error in the middle of a batch": (an_error_within, "interrupted within step 1"),
}
UNMOVED = [name for name in REFUSED if "backward" in name or "gradient" in name]


@pytest.mark.slow
@pytest.mark.sampled(10)
@pytest.mark.parametrize("physical_size", [None, 50])
@pytest.mark.parametrize("name", REFUSED)
def test_what_leaves_the_order_is_refused(name: str, physical_size: int | None) -> None:
    refused(name, Loop(make_network_run(noise_multiplier=1.0, batches={"design": "poisson", "size": 12}), physical_size=physical_size))


@pytest.mark.parametrize("name", UNMOVED)
def test_no_parameter_moves_without_a_private_gradient(name: str) -> None:
    refused(name, loop := Loop())
    assert torch.equal(flat(loop.model), flat(make_network()))


def refused(name: str, loop: Loop) -> None:
    spoil, message = REFUSED[name]
    with pytest.raises(LetheError, match=message):
        spoil(loop)


def test_a_plain_backward_within_a_logical_batch_is_refused_and_leaves_nothing() -> None:
    loop = Loop(make_network_run("full", noise_multiplier=1.0), physical_size=10)
    batch = first(loop)
    loop.engine.backward(batch)
    with pytest.raises(InputError, match="is not the noisy gradient"):
        plain_backward(loop, batch)
    assert not any(parameter.grad is not None for parameter in loop.model[:1].parameters())


@pytest.mark.parametrize(
    ("changes", "arguments", "error", "message"),
    [
        ({}, {"data": torch.utils.data.DataLoader([1, 2], batch_size=None)}, InputError, "batches of its own"),
        ({"regulariser": {"kind": "ridge", "strength": 1.0}}, {}, InputError, "belong to the plain recursion"),
        ({"release": "last"}, {}, HypothesisError, "or a training loop of your own"),
        ({"records": 22}, {}, InputError, "records: the run says 22"),
    ],
)
def test_an_engine_refuses(changes: dict[str, Any], arguments: dict[str, Any], error: type[LetheError], message: str) -> None:
    model = make_network()
    optimizer = arguments.pop("optimizer", SGD)(model.parameters(), lr=0.5)
    run, data = make_network_run(**{"noise_multiplier": 1.0, **changes}), arguments.get("data", make_data())
    with pytest.raises(error, match=message):
        PrivacyEngine(model, optimizer, losses_of(model), data, run)
    optimizer.step()  # no guard is left behind


def test_after_close_the_optimiser_is_free() -> None:
    model = make_network()
    optimizer = SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(model, optimizer, losses_of(model), make_data(), make_network_run(noise_multiplier=1.0))
    engine.close()
    losses_of(model)(make_data()).mean().backward()
    optimizer.step()


@pytest.mark.slow
def test_padding_does_not_count_by_being_written_so() -> None:
    """How many rows are padding follows from who is in the batch: counted, they would move the sum besides the record itself."""
    sums: list[Tensor] = []
    for write in (False, True):
        loop = Loop(make_network_run("cyclic"), physical_size=8)
        batch = next(iter(loop.loader))
        if write:
            loop.engine.counted[:] = True
        loop.engine.backward(batch)
        sums.append(torch.cat([parameter.grad.flatten() for parameter in loop.model.parameters()]))
    assert torch.equal(*sums)
