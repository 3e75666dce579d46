"""What processes must agree on, and what goes wrong in one of them: it ends all of them, soon and with a reason."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from processes import Processes, all_raised, plain_fit
from torch import Tensor, nn

from lethe.errors import InputError, LetheError
from lethe.train import Group, PrivacyEngine, TrainOptions
from lethe.train.distributed.collectives import StoppedElsewhere
from lethe.train.distributed.workers import Workers


def network_with(change: Callable[[Any], object]) -> nn.Module:
    model = make_network()
    with torch.no_grad():
        change(model)
    return model


def stepped(rank: int) -> dict[str, Any]:
    model = make_network()
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=0.1 * (1 + rank))}


def shorter(rank: int) -> dict[str, Any]:
    run = make_network_run("shuffled", noise_multiplier=1.0, records=23 - rank, batches={"design": "shuffled", "size": 5})
    return {"data": tuple(part[: 23 - rank] for part in make_data()), "run": run}


def clipped(rank: int) -> dict[str, Any]:
    return {"clip_groups": [Group(parameters=("0.*",), clip_norm=0.1), Group(parameters=("*",), clip_norm=0.2 + rank / 10)]}


def of_users(rank: int) -> dict[str, Any]:
    run = make_network_run(noise_multiplier=1.0, unit="user", records=8, batches={"design": "poisson", "size": 3})
    return {"run": run, "users": [(place + rank * (place == 20)) // 3 for place in range(23)]}


OTHER: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "weights": (lambda rank: {"model": network_with(lambda model: model[3].bias[1].add_(1e-15 * rank))}, "model: not the same"),
    "frozen": (lambda rank: {"model": network_with(lambda model: model[0].bias.requires_grad_(False).add_(rank))}, "model: not the same"),
    "noise": (lambda rank: {"run": make_network_run("shuffled", noise_multiplier=1.0 + rank)}, "run: not the same"),
    "length": (shorter, "run: not the same"),
    "contents": (lambda rank: {"data": make_data(seed=rank)}, "contents of some records"),
    "users": (of_users, "users: not the same"),
    "groups": (clipped, "run: not the same"),
    "optimizer": (stepped, "optimizer: not the same"),
}


def begin(rank: int, what: str) -> Tensor:
    return plain_fit(rank, **OTHER[what][0](rank))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", OTHER)
def test_processes_that_begin_differently_are_all_told_so(processes: Processes, what: str) -> None:
    for message in all_raised(processes.run(2, begin, what), InputError):
        assert OTHER[what][1] in message


def alone(rank: int) -> bool:
    return Workers.current() == Workers() and dist.is_initialized() and bool(plain_fit(rank).isfinite().all())


def test_a_process_group_of_one_is_one_process(processes: Processes) -> None:
    assert processes.run(1, alone) == [True]


SECONDS = 60.0  # on a busy machine, 3 at rest; far below the 180 that a process waits for another in vain


@pytest.fixture(scope="module")
def processes(processes: Processes) -> Processes:
    processes.run(2, plain_fit)  # starting is not timed
    return processes


class LoudLoss:
    """A loss that fails in one process, from its fourth call with gradients on; the check of the loss lets errors pass."""

    def __init__(self, rank: int) -> None:
        self.rank, self.calls = rank, 0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += outputs.requires_grad
        if self.rank == 1 and self.calls >= 4 and outputs.requires_grad:
            raise ZeroDivisionError("in the loss")
        return CROSS_ENTROPY(outputs, targets)


def failing_loss(rank: int) -> Tensor:
    return plain_fit(rank, loss=LoudLoss(rank))


def failing_callback(rank: int) -> Tensor:
    def progress(step: int, steps: int) -> None:
        if rank == 1 and step == steps:
            raise ZeroDivisionError("after the last step")

    return plain_fit(rank, progress=progress)


def bad_argument(rank: int) -> Tensor:
    return plain_fit(rank, physical_size=0 if rank else 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("train", "error", "what"),
    [
        (failing_loss, ZeroDivisionError, "in the loss"),
        (failing_callback, ZeroDivisionError, "after the last step"),
        (bad_argument, InputError, "physical_size"),
    ],
)
def test_an_error_in_one_process_ends_both(processes: Processes, train: Any, error: type[Exception], what: str) -> None:
    began = time.monotonic()
    first, second = processes.run(2, train)
    assert time.monotonic() - began < SECONDS
    assert isinstance(second, error), second
    assert what in str(second)
    assert isinstance(first, StoppedElsewhere), first
    assert "process 1 of 2 stopped with an error" in str(first)


def drifting(rank: int) -> Tensor:
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def progress(step: int, steps: int) -> None:
        if rank == 0:
            optimizer.param_groups[0]["lr"] = 0.2

    return plain_fit(rank, model=model, optimizer=optimizer, progress=progress)


def test_processes_that_come_apart_are_stopped(processes: Processes) -> None:
    for message in all_raised(processes.run(2, drifting), LetheError):
        assert "same parameters any more" in message


def looped(rank: int, fails_at: str) -> str:
    """A loop of one's own that goes wrong in process 1 at step 3; the error is caught, and whether the engine goes on is told."""
    model = make_network()
    wrong = [""]

    def losses(batch: Any) -> Tensor:
        told = CROSS_ENTROPY(model(batch[0][:, :3] if wrong[0] == "forward" else batch[0]), batch[1])
        return told.mean() if wrong[0] == "loss" else told

    own = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(
        model, own, losses, make_data(), make_network_run("shuffled", noise_multiplier=1.0), options=TrainOptions(physical_size=2)
    )
    optimizer, loader = own, engine.batches()
    batch: Any = None
    try:
        for batch in loader:
            wrong[0] = fails_at if rank == 1 and engine.steps == 2 else ""
            if wrong[0] == "unused":
                continue
            engine.backward(batch)
            optimizer.step()
            if wrong[0] == "early end":
                engine.backward(batch)
        if rank == 1 and fails_at == "after the end":
            engine.backward(batch)
    except Exception as error:
        with pytest.raises(InputError, match="interrupted"):
            engine.backward(batch)
        raise error from None
    return "done"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("fails_at", "what"),
    [("forward", "shapes cannot be"), ("unused", "left out"), ("loss", "one loss a record"), ("early end", "used already")],
)
def test_an_error_in_one_loop_ends_both(processes: Processes, fails_at: str, what: str) -> None:
    began = time.monotonic()
    first, second = processes.run(2, looped, fails_at)
    assert time.monotonic() - began < SECONDS
    assert what in str(second)
    assert isinstance(first, StoppedElsewhere), first
    assert "process 1 of 2 stopped with an error" in str(first)


def vanishing(rank: int) -> Tensor:
    def progress(step: int, steps: int) -> None:
        if rank == 1 and step == 2:
            os._exit(1)

    return plain_fit(rank, progress=progress)


def test_a_process_that_dies_ends_the_other() -> None:
    with Processes(2) as started:
        started.run(2, plain_fit)
        began = time.monotonic()
        (result,) = started.run(2, vanishing, answering=1)
        assert isinstance(result, StoppedElsewhere)
        assert "cannot be reached" in str(result)
        assert time.monotonic() - began < SECONDS
