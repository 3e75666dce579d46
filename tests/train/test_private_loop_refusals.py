"""What leaves the order of a private loop is refused, and no parameter moves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from networks import flat, make_data, make_network, make_network_run, one_thread
from private_loops import Loop, losses_of
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


def plain_backward(loop: Loop, batch: Any) -> None:
    losses_of(loop.model)(batch).mean().backward()


def step_without_backward(loop: Loop) -> None:
    first(loop)
    loop.optimizer.step()


def plain_backward_alone(loop: Loop) -> None:
    plain_backward(loop, first(loop))
    loop.optimizer.step()


def plain_backward_besides(loop: Loop) -> None:
    batch = first(loop)
    loop.engine.backward(batch)
    plain_backward(loop, batch)


def gradient_replaced(loop: Loop) -> None:
    loop.engine.backward(first(loop))
    loop.model[0].weight.grad = torch.ones_like(loop.model[0].weight)
    loop.optimizer.step()


def gradient_lost(loop: Loop) -> None:
    loop.engine.backward(first(loop))
    loop.optimizer.zero_grad()
    loop.optimizer.step()


def two_steps(loop: Loop) -> None:
    loop.engine.backward(first(loop))
    loop.optimizer.step()
    loop.optimizer.step()


def step_before_any_batch(loop: Loop) -> None:
    loop.optimizer.step()


def closure(loop: Loop) -> None:
    loop.engine.backward(first(loop))
    loop.optimizer.step(lambda: torch.zeros(()))


def batch_left_out(loop: Loop) -> None:
    for batch in loop.loader:
        if loop.engine.steps == 1:
            continue
        loop.use(batch)


def step_left_out(loop: Loop) -> None:
    for batch in loop.loader:
        loop.engine.backward(batch)


def batch_used_twice(loop: Loop) -> None:
    batch = first(loop)
    loop.engine.backward(batch)
    loop.engine.backward(batch)


def other_records(loop: Loop) -> None:
    first(loop)
    loop.use(make_data())


def no_batch(loop: Loop) -> None:
    loop.use(make_data())


def more_steps(loop: Loop) -> None:
    loop.whole()
    loop.optimizer.step()


def loop_again(loop: Loop) -> None:
    loop.whole()
    loop.whole()


def recorded_too_early(loop: Loop) -> None:
    loop.engine.backward(first(loop))
    loop.engine.recorded_run()


def nothing_recorded(loop: Loop) -> None:
    loop.engine.recorded_run()


def unfrozen(loop: Loop) -> None:
    batch = first(loop)
    loop.model[0].requires_grad_(False)
    loop.use(batch)


def second_model(loop: Loop) -> None:
    loop.engine.make_private(module=loop.model, optimizer=loop.optimizer, losses=losses_of(loop.model), data=make_data())


def out_of_memory(*_: object) -> None:
    raise torch.OutOfMemoryError


def an_error_within(loop: Loop) -> None:
    batch = first(loop)
    handle = loop.model[0].register_forward_hook(out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        loop.engine.backward(batch)
    handle.remove()
    loop.engine.backward(batch)


REFUSED: tuple[tuple[Callable[[Loop], None], type[LetheError], str], ...] = (
    (step_without_backward, InputError, "no private gradient for step 1"),
    (plain_backward_alone, InputError, "is not the noisy gradient"),
    (plain_backward_besides, InputError, "is not the noisy gradient"),
    (gradient_replaced, InputError, "is not the noisy gradient"),
    (gradient_lost, InputError, "is gone"),
    (two_steps, InputError, "no private gradient for step 2"),
    (step_before_any_batch, InputError, "no private gradient for step 1"),
    (closure, InputError, "closure"),
    (batch_left_out, InputError, "a batch of step 2 was left out"),
    (step_left_out, InputError, "step 1 was not taken"),
    (batch_used_twice, InputError, "used already"),
    (other_records, InputError, "got a batch of 23 rows"),
    (no_batch, InputError, "no batch has been taken"),
    (more_steps, InputError, "all 9 steps of the run are used up"),
    (loop_again, InputError, "iterating once gives all"),
    (recorded_too_early, InputError, "of step 1 was not used"),
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
    with pytest.raises(error, match=message):
        spoil(loop)


def test_no_parameter_moves_without_a_private_gradient() -> None:
    for spoil in (step_without_backward, plain_backward_alone, plain_backward_besides, gradient_lost):
        loop = Loop()
        with pytest.raises(InputError):
            spoil(loop)
        assert torch.equal(flat(loop.model), flat(make_network()))


def test_a_plain_backward_within_a_logical_batch_is_refused_and_leaves_nothing() -> None:
    loop = Loop(make_network_run("full", noise_multiplier=1.0), physical_size=10)
    batch = first(loop)
    loop.engine.backward(batch)
    with pytest.raises(InputError, match="is not the noisy gradient"):
        plain_backward(loop, batch)
    assert not any(parameter.grad is not None for parameter in loop.model[:1].parameters())


def test_parameters_changed_between_steps_are_refused() -> None:
    loop = Loop()
    loop.use(first(loop))
    with torch.no_grad():
        loop.model[0].weight.mul_(0.9)
    with pytest.raises(HypothesisError, match="changed by something else"):
        loop.use(next(loop.batches))  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("changes", "arguments", "error", "message"),
    [
        ({}, {"noise_multiplier": 1.1}, InputError, "noise_multiplier: got 1.1; the run says 1.0"),
        ({}, {"max_grad_norm": 1.0}, InputError, "max_grad_norm: got 1.0; the run says 0.4"),
        ({}, {"data": torch.utils.data.DataLoader([1, 2], batch_size=None)}, InputError, "batches of its own"),
        ({"regulariser": {"kind": "ridge", "strength": 1.0}}, {}, InputError, "belong to the plain recursion"),
        ({"release": "last"}, {}, HypothesisError, "or a loop of one's own"),
        ({"records": 22}, {}, InputError, "records: the run says 22"),
    ],
)
def test_make_private_refuses(changes: dict[str, Any], arguments: dict[str, Any], error: type[LetheError], message: str) -> None:
    model = make_network()
    optimizer = arguments.pop("optimizer", SGD)(model.parameters(), lr=0.5)
    engine = PrivacyEngine(make_network_run(**{"noise_multiplier": 1.0, **changes}))
    with pytest.raises(error, match=message):
        engine.make_private(**{"module": model, "optimizer": optimizer, "losses": losses_of(model), "data": make_data(), **arguments})
    optimizer.step()  # no guard is left behind


def test_the_run_s_own_numbers_may_be_given_and_after_close_the_optimiser_is_free() -> None:
    model = make_network()
    optimizer = SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(make_network_run(noise_multiplier=1.0))
    with pytest.raises(InputError, match="no model yet"):
        engine.recorded_run()
    given: dict[str, Any] = {"module": model, "optimizer": optimizer, "losses": losses_of(model), "data": make_data()}
    engine.make_private(**given, noise_multiplier=1.0, max_grad_norm=0.4)
    engine.close()
    losses_of(model)(make_data()).mean().backward()
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
    with pytest.raises(HypothesisError, match="writes seen"):
        loop.use(first(loop))


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
