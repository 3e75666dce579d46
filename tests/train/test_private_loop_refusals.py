"""What leaves the order of a private loop is refused, and no parameter moves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run, one_thread
from private_loops import Loop
from torch import Tensor, nn
from torch.optim import SGD

from lethe.errors import HypothesisError, InputError, LetheError
from lethe.train import PrivacyEngine


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


def first(loop: Loop) -> Any:
    loop.batches = iter(loop.loader)  # pyright: ignore[reportAttributeAccessIssue]
    return next(loop.batches)  # pyright: ignore[reportAttributeAccessIssue]


def step_without_backward(loop: Loop) -> None:
    inputs, targets = first(loop)
    CROSS_ENTROPY(loop.model(inputs), targets).mean()
    loop.optimizer.step()


def step_after_plain_backward(loop: Loop) -> None:
    inputs, targets = first(loop)
    CROSS_ENTROPY(loop.model(inputs), targets).mean().backward()
    loop.optimizer.step()


def recorded_but_plain_backward(loop: Loop) -> None:
    loop.losses(*first(loop)).mean().backward()
    loop.optimizer.step()


def plain_backward_before(loop: Loop) -> None:
    inputs, targets = first(loop)
    CROSS_ENTROPY(loop.model(inputs), targets).mean().backward()
    loop.use(inputs, targets)


def plain_backward_besides(loop: Loop) -> None:
    inputs, targets = first(loop)
    loop.engine.backward(loop.losses(inputs, targets))
    CROSS_ENTROPY(loop.model(inputs), targets).mean().backward()
    loop.optimizer.step()


def gradient_replaced(loop: Loop) -> None:
    loop.engine.backward(loop.losses(*first(loop)))
    loop.model[0].weight.grad = torch.ones_like(loop.model[0].weight)
    loop.optimizer.step()


def gradient_lost(loop: Loop) -> None:
    loop.engine.backward(loop.losses(*first(loop)))
    loop.optimizer.zero_grad()
    loop.optimizer.step()


def two_steps(loop: Loop) -> None:
    loop.engine.backward(loop.losses(*first(loop)))
    loop.optimizer.step()
    loop.optimizer.step()


def step_before_any_batch(loop: Loop) -> None:
    loop.optimizer.step()


def closure(loop: Loop) -> None:
    loop.engine.backward(loop.losses(*first(loop)))
    loop.optimizer.step(lambda: torch.zeros(()))


def batch_left_out(loop: Loop) -> None:
    for inputs, targets in loop.loader:
        if loop.engine.steps == 1:
            continue
        loop.use(inputs, targets)


def step_left_out(loop: Loop) -> None:
    for inputs, targets in loop.loader:
        loop.engine.backward(loop.losses(inputs, targets))


def batch_used_twice(loop: Loop) -> None:
    inputs, targets = first(loop)
    loop.engine.backward(loop.losses(inputs, targets))
    loop.engine.backward(loop.losses(inputs, targets))


def backward_twice(loop: Loop) -> None:
    losses = loop.losses(*first(loop))
    loop.engine.backward(losses)
    loop.engine.backward(losses)


def backward_without_recording(loop: Loop) -> None:
    inputs, targets = first(loop)
    loop.engine.backward(CROSS_ENTROPY(loop.model(inputs), targets))


def other_records(loop: Loop) -> None:
    first(loop)
    loop.use(*make_data())


def no_batch(loop: Loop) -> None:
    loop.losses(*make_data())


def more_steps(loop: Loop) -> None:
    loop.whole()
    loop.optimizer.step()


def loop_again(loop: Loop) -> None:
    loop.whole()
    loop.whole()


def recorded_too_early(loop: Loop) -> None:
    loop.engine.backward(loop.losses(*first(loop)))
    loop.engine.recorded_run()


def nothing_recorded(loop: Loop) -> None:
    loop.engine.recorded_run()


def unfrozen(loop: Loop) -> None:
    inputs, targets = first(loop)
    loop.model[0].requires_grad_(False)
    loop.use(inputs, targets)


def second_model(loop: Loop) -> None:
    loop.engine.make_private(module=loop.model, optimizer=loop.optimizer, data=make_data())


def interrupt(gradient: torch.Tensor) -> None:
    raise RuntimeError("out of memory")


def an_error_within(loop: Loop) -> None:
    inputs, targets = first(loop)
    losses = loop.losses(inputs, targets)
    losses.register_hook(interrupt)
    with pytest.raises(RuntimeError, match="out of memory"):
        loop.engine.backward(losses)
    loop.losses(inputs, targets)


REFUSED: tuple[tuple[Callable[[Loop], None], type[LetheError], str], ...] = (
    (step_without_backward, InputError, "no private gradient for step 1"),
    (step_after_plain_backward, InputError, "is not the noisy gradient"),
    (recorded_but_plain_backward, InputError, "is not the noisy gradient"),
    (plain_backward_before, InputError, "is not the noisy gradient"),
    (plain_backward_besides, InputError, "is not the noisy gradient"),
    (gradient_replaced, InputError, "is not the noisy gradient"),
    (gradient_lost, InputError, "is gone"),
    (two_steps, InputError, "no private gradient for step 2"),
    (step_before_any_batch, InputError, "no private gradient for step 1"),
    (closure, InputError, "closure"),
    (batch_left_out, InputError, "a batch of step 2 was left out"),
    (step_left_out, InputError, "step 1 was not taken"),
    (batch_used_twice, InputError, "used already"),
    (backward_twice, InputError, "used already"),
    (backward_without_recording, InputError, "nothing was recorded"),
    (other_records, InputError, "losses: got 23"),
    (no_batch, InputError, "no batch has been taken"),
    (more_steps, InputError, "all 9 steps of the run are used up"),
    (loop_again, InputError, "iterating once gives all"),
    (recorded_too_early, InputError, "was written and not used"),
    (nothing_recorded, HypothesisError, "no step was executed"),
    (unfrozen, InputError, "are not those that make_private saw"),
    (second_model, InputError, "has a model already"),
    (an_error_within, InputError, "interrupted within step 1"),
)


@pytest.mark.slow
@pytest.mark.sampled(10)
@pytest.mark.parametrize("physical_size", [None, 50])
@pytest.mark.parametrize(("spoil", "error", "message"), REFUSED, ids=[row[0].__name__ for row in REFUSED])
def test_what_leaves_the_order_is_refused(
    spoil: Callable[[Loop], None], error: type[LetheError], message: str, physical_size: int | None
) -> None:
    batches = {"batches": {"design": "poisson", "size": 12}}
    loop = Loop(make_network_run(noise_multiplier=1.0, **batches), physical_size=physical_size)
    if spoil is other_records and physical_size:
        message = "losses: got 23 for 50"
    with pytest.raises(error, match=message):
        spoil(loop)


@pytest.mark.slow
def test_no_parameter_moves_without_a_private_gradient() -> None:
    for spoil in (step_without_backward, step_after_plain_backward, recorded_but_plain_backward, plain_backward_besides, gradient_lost):
        loop = Loop()
        with pytest.raises(InputError):
            spoil(loop)
        assert torch.equal(flat(loop.model), flat(make_network()))


def test_a_plain_backward_within_a_logical_batch_is_refused() -> None:
    loop = Loop(make_network_run("full", noise_multiplier=1.0), physical_size=10)
    inputs, targets = first(loop)
    loop.engine.backward(loop.losses(inputs, targets))
    CROSS_ENTROPY(loop.model(inputs), targets).mean().backward()
    with pytest.raises(InputError, match="is not the noisy gradient"):
        loop.optimizer.step()


def moved(loop: Loop) -> None:
    with torch.no_grad():
        loop.model[0].weight.mul_(0.9)


def replaced(loop: Loop) -> None:
    loop.model[0].weight.data = loop.model[0].weight.data * 0.9


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", [moved, replaced])
def test_parameters_changed_between_steps_are_refused(change: Callable[[Loop], None]) -> None:
    loop = Loop()
    loop.use(*first(loop))
    change(loop)
    with pytest.raises(HypothesisError, match="changed by something else"):
        loop.use(*next(loop.batches))  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("changes", "arguments", "error", "message"),
    [
        ({}, {"noise_multiplier": 1.1}, InputError, "noise_multiplier: got 1.1; the run says 1.0"),
        ({}, {"max_grad_norm": 1.0}, InputError, "max_grad_norm: got 1.0; the run says 0.4"),
        ({}, {"data": torch.utils.data.DataLoader([1, 2], batch_size=None)}, InputError, "batches of its own"),
        ({"regulariser": {"kind": "ridge", "strength": 1.0}}, {}, InputError, "belong to the plain recursion"),
        ({"release": "last"}, {}, HypothesisError, "an optimiser or a loop of one's own"),
        ({"records": 22}, {}, InputError, "records: the run says 22"),
    ],
)
def test_make_private_refuses(changes: dict[str, Any], arguments: dict[str, Any], error: type[LetheError], message: str) -> None:
    model = make_network()
    optimizer = arguments.pop("optimizer", SGD)(model.parameters(), lr=0.5)
    engine = PrivacyEngine(make_network_run(**{"noise_multiplier": 1.0, **changes}))
    with pytest.raises(error, match=message):
        engine.make_private(**{"module": model, "optimizer": optimizer, "data": make_data(), **arguments})
    optimizer.step()  # no guard is left behind


def test_the_run_s_own_numbers_may_be_given_and_after_close_the_optimiser_is_free() -> None:
    model = make_network()
    optimizer = SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(make_network_run(noise_multiplier=1.0))
    with pytest.raises(InputError, match="no model yet"):
        engine.recorded_run()
    engine.make_private(module=model, optimizer=optimizer, data=make_data(), noise_multiplier=1.0, max_grad_norm=0.4)
    engine.close()
    inputs, targets = make_data()
    CROSS_ENTROPY(model(inputs), targets).mean().backward()
    optimizer.step()


class Counts(nn.Module):
    """Keeps a sum of what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))
        self.layer = nn.Linear(4, 3).double()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.seen += rows.detach().sum()
        return self.layer(rows)


def test_a_model_that_remembers_is_refused() -> None:
    loop = Loop(model=Counts())
    with pytest.raises(HypothesisError, match="seen changed"):
        loop.use(*first(loop))


@pytest.mark.slow
def test_padding_does_not_count_by_being_written_so() -> None:
    """How many rows are padding follows from who is in the batch: counted, they would move the sum besides the record itself."""
    sums: list[Tensor] = []
    for write in (False, True):
        loop = Loop(make_network_run("cyclic"), physical_size=8)
        inputs, targets = next(iter(loop.loader))
        if write:
            loop.engine.counted[:] = True
        loop.engine.backward(loop.losses(inputs, targets))
        sums.append(torch.cat([parameter.grad.flatten() for parameter in loop.model.parameters()]))
    assert torch.equal(*sums)
