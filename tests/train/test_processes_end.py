"""What processes must agree on, pay for together and are refused in shards; what goes wrong in one ends all, with a reason."""

import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from processes import Processes, all_raised, plain_fit, received
from shared_work import in_a_loop, kept, root_dies, written, wrong
from torch import Tensor, nn

from lethe.errors import BudgetExceededError, InputError, LetheError
from lethe.ledger import Budget, Ledger, Spending, spending
from lethe.train import Group, PrivacyEngine, TrainOptions
from lethe.train.distributed.collectives import StoppedElsewhere


def network_with(change: Callable[[Any], object]) -> nn.Module:
    model = make_network()
    with torch.no_grad():
        change(model)
    return model


def shorter(rank: int) -> dict[str, Any]:
    data = tuple(part[: 23 - rank] for part in make_data())
    return {"data": data, "run": make_network_run("shuffled", noise_multiplier=1.0, records=23 - rank)}


def of_users(rank: int) -> dict[str, Any]:
    run = make_network_run(noise_multiplier=1.0, unit="user", records=8, batches={"design": "poisson", "size": 3})
    return {"run": run, "users": [(place + rank * (place == 20)) // 3 for place in range(23)]}


FIRST = Group(parameters=("0.*",), clip_norm=0.1)
OTHER: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "weights": (lambda rank: {"model": network_with(lambda model: model[3].bias[1].add_(1e-15 * rank))}, "model: not the same"),
    "frozen": (lambda rank: {"model": network_with(lambda model: model[0].bias.requires_grad_(False).add_(rank))}, "model: not the same"),
    "noise": (lambda rank: {"run": make_network_run("shuffled", noise_multiplier=1.0 + rank)}, "run: not the same"),
    "length": (shorter, "run: not the same"),
    "contents": (lambda rank: {"data": make_data(seed=rank)}, "contents of some records"),
    "users": (of_users, "users: not the same"),
    "groups": (lambda rank: {"clip_groups": [FIRST, Group(parameters=("*",), clip_norm=0.2 + rank / 10)]}, "run: not the same"),
    "optimizer": (lambda rank: {"optimizer": partial(torch.optim.Adam, lr=0.1 * (1 + rank))}, "optimizer: not the same"),
}


def begin(rank: int, what: str) -> Tensor:
    given = {"model": make_network(), **OTHER[what][0](rank)}
    return plain_fit(rank, **{name: value(given["model"].parameters()) if name == "optimizer" else value for name, value in given.items()})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", OTHER)
def test_processes_that_begin_differently_are_all_told_so(processes: Processes, what: str) -> None:
    for message in all_raised(processes.run(2, begin, what), InputError):
        assert OTHER[what][1] in message


SECONDS = 60.0  # on a busy machine, 3 at rest; far below the 180 that a process waits for another in vain


@pytest.fixture(scope="module")
def processes(processes: Processes) -> Processes:
    processes.run(2, plain_fit)  # starting is not timed
    return processes


def failing(rank: int, where: str) -> Tensor:
    """`fit` in which something goes wrong in process 1; or, while it steps, in process 0."""
    model, calls = make_network(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        calls[0] += outputs.requires_grad
        if rank == 1 and where == "in the loss" and calls[0] >= 4 and outputs.requires_grad:  # the check of the loss lets errors pass
            raise ZeroDivisionError(where)
        return CROSS_ENTROPY(outputs, targets)

    def progress(step: int, steps: int) -> None:
        if rank == 1 and where == "after the last step" and step == steps:
            raise ZeroDivisionError(where)
        if rank == 1 and where == "vanishing" and step == 2:
            os._exit(1)
        if rank == 0 and where == "drifting":
            optimizer.param_groups[0]["lr"] = 0.2

    size = 0 if rank == 1 and where == "physical_size" else 2
    return plain_fit(rank, model=model, optimizer=optimizer, loss=loss, progress=progress, physical_size=size)


def require_both_ended(processes: Processes, train: Any, where: str, what: str) -> None:
    began = time.monotonic()
    first, second = processes.run(2, train, where)
    assert time.monotonic() - began < SECONDS
    assert what in str(second)
    assert isinstance(first, StoppedElsewhere), first
    assert "process 1 of 2 stopped with an error" in str(first)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("where", ["in the loss", "after the last step", "physical_size"])
def test_an_error_in_one_process_ends_both(processes: Processes, where: str) -> None:
    require_both_ended(processes, failing, where, where)


def test_processes_that_come_apart_are_stopped(processes: Processes) -> None:
    for message in all_raised(processes.run(2, failing, "drifting"), LetheError):
        assert "same parameters any more" in message


def looped(rank: int, fails_at: str) -> str:
    """A loop of one's own that goes wrong in process 1 at step 3; the error is caught, and whether the engine goes on is told."""
    model = make_network()
    wrong = [""]

    def losses(batch: Any) -> Tensor:
        told = CROSS_ENTROPY(model(batch[0][:, :3] if wrong[0] == "forward" else batch[0]), batch[1])
        return told.mean() if wrong[0] == "loss" else told

    optimizer, run = torch.optim.SGD(model.parameters(), lr=0.5), make_network_run("shuffled", noise_multiplier=1.0)
    engine = PrivacyEngine(model, optimizer, losses, make_data(), run, options=TrainOptions(physical_size=2))
    batch: Any = None
    try:
        for batch in engine.batches():
            wrong[0] = fails_at if rank == 1 and engine.steps == 2 else ""
            if wrong[0] == "unused":
                continue
            engine.backward(batch)
            optimizer.step()
            if wrong[0] == "early end":
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
    require_both_ended(processes, looped, fails_at, what)


def test_a_process_that_dies_ends_the_other() -> None:
    with Processes(2) as started:
        started.run(2, plain_fit)
        began = time.monotonic()
        (result,) = started.run(2, failing, "vanishing", answering=1)
        assert isinstance(result, StoppedElsewhere)
        assert "cannot be reached" in str(result)
        assert time.monotonic() - began < SECONDS


@pytest.fixture
def place(tmp_path: Path) -> str:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    budget = Budget(epsilon=2, delta=1e-4)
    made.create("patients", neighbours=make_network_run("shuffled", noise_multiplier=1.0).neighbours, budget=budget, by="keeper")
    made.close()
    return str(tmp_path / "ledger.sqlite")


def states(place: str) -> list[str]:
    ledger = Ledger.open(place)
    ledger.verify()
    return [line.state for line in ledger.show("patients").lines]


def paid(
    rank: int,
    place: str,
    how: str = "argument",
    *,
    multiplier: float = 40.0,
    payers: tuple[int, ...] = (0, 1),
    stop: int = 0,
    **options: Any,
) -> Any:
    """A training whose ledger is an argument, or stands around it, in `fit` or a loop; an error after step `stop`."""

    def progress(step: int, steps: int) -> None:
        if step == stop:
            raise ValueError("enough")

    run, given = make_network_run("shuffled", noise_multiplier=multiplier), (Ledger.open(place), "patients")
    if how == "around":
        with spending(*given, by=f"process {rank}", slack=1e-8):
            return plain_fit(rank, run=run)
    ledger = Spending(*given, by=f"process {rank}", slack=1e-8) if rank in payers else None
    if how == "loop":
        return in_a_loop(rank, "whole", run, torch.optim.SGD, {"ledger": ledger})
    return plain_fit(rank, run=run, ledger=ledger, progress=progress, **options)


def test_the_same_call_again_goes_on_under_its_own_reservation(processes: Processes, place: str, tmp_path: Path) -> None:
    again = partial(paid, place=place, checkpoints=str(tmp_path / "kept"))
    assert all(isinstance(result, ValueError) for result in processes.run(2, partial(again, stop=3)))
    assert states(place) == ["started"]
    assert not any(isinstance(result, Exception) for result in processes.run(2, again))
    assert states(place) == ["settled"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["around", "loop", "argument"])
def test_process_0_reserves_and_settles_for_all(processes: Processes, place: str, how: str) -> None:
    payers = (0,) if how == "argument" else (0, 1)
    assert not any(isinstance(result, Exception) for result in processes.run(2, partial(paid, place=place, how=how, payers=payers)))
    assert states(place) == ["settled"]
    assert Ledger.open(place).show("patients").lines[0].by == "process 0"


def test_what_does_not_fit_is_trained_by_no_process(processes: Processes, place: str) -> None:
    first, second = processes.run(2, partial(paid, place=place, multiplier=0.5))
    assert isinstance(first, BudgetExceededError)
    assert "you can still train once" in str(first)
    assert isinstance(second, StoppedElsewhere)
    assert "process 0" in str(second)
    assert states(place) == []


def test_a_ledger_that_process_0_does_not_have_is_refused_by_all(processes: Processes, place: str) -> None:
    first, second = processes.run(2, partial(paid, place=place, payers=(1,)))
    assert isinstance(first, StoppedElsewhere)
    assert isinstance(second, InputError)
    assert "process 0, which reserves for all, was not" in str(second)
    assert states(place) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("hybrid", r"mesh of 1x2 processes \(replicate, shard\).*HSDP"),
        ("tensor parallel", "DTensor placed as R"),
        ("one of two", "its mesh is of processes"),
        ("first version", "wrapped in FullyShardedDataParallel.*fully_shard"),
        ("inside", "0: wrapped in DistributedDataParallel"),
        ("subgroup", "over 1 processes, and 2 train together.*model.module"),
        ("policy", "noise_policy: given, and the model is in shards"),
        ("regulariser", "run.regulariser: given, and the model is in shards"),
        ("last", "release: last: given, and the model is in shards"),
        ("average kept", "ema, and checkpoints: given, and the model is in shards"),
        ("same noise", "noise_generator: the same in process 1 and in process 0"),
    ],
)
def test_what_is_refused_is_refused_by_name(processes: Processes, what: str, message: str) -> None:
    for said in all_raised(processes.run(2, wrong, what), InputError):
        assert re.search(message, said.replace("\n", " ")), said


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("frozen", "0.weight is frozen, in shards and was moved"),
        ("gathered", "writes 0.weight|changed by something else than fit's own step, in the forward pass or the loss|keeps what it saw"),
        ("in place", "0.weight .*was changed by something else than fit's own step, in the forward pass or the loss of step 5"),
        ("shard", "0.weight .*was changed by something else"),
        ("gradient", "was written to .grad while the model was whole"),
    ],
)
def test_what_somebody_writes_is_found(processes: Processes, tmp_path: Path, what: str, message: str) -> None:
    said = processes.run(2, written, what, os.fspath(tmp_path))
    assert any(re.search(message, str(one)) for one in said), said
    assert all(isinstance(one, LetheError) for one in said), said


def test_another_number_of_processes_goes_on_from_a_checkpoint(processes: Processes, tmp_path: Path) -> None:
    """Ended right after a checkpoint, no step is lost: the result is that of no interruption, with Adam's averages."""
    run, folder = make_network_run("shuffled"), os.fspath(tmp_path / "kept")
    whole, _ = processes.run(2, kept, run, os.fspath(tmp_path / "whole"), None)[0]
    for stopped in processes.run(3, kept, run, folder, 5):
        assert isinstance(stopped, KeyError), stopped
    assert sorted(os.listdir(folder)) == ["checkpoint.pt", "journal"]
    journal, checkpoint = tmp_path / "kept" / "journal", tmp_path / "kept" / "checkpoint.pt"
    journal.write_text(journal.read_text().replace("step 5\n", ""))  # as if it had ended before it wrote this step down
    assert all(float((one[0] - whole).abs().max()) < 1e-9 for one in processes.run(2, kept, run, folder, None))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    again = processes.run(2, kept, run, folder, None)
    assert "damaged" in str(again[0])
    assert all(isinstance(one, LetheError) for one in again), again


@pytest.mark.parametrize("written", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_nobody_draws_noise_of_a_step_that_is_not_written_down(tmp_path: Path, written: bool) -> None:
    folder = os.fspath(tmp_path / "kept")
    with Processes(2) as started:
        with pytest.raises(EOFError):
            started.run(2, root_dies, make_network_run("shuffled", noise_multiplier=1.0), folder, 4, written)
        assert isinstance(received(started._pipes[1]), StoppedElsewhere)
    assert (tmp_path / "kept" / "journal").read_text().splitlines()[-1] == f"step {3 + written}"
    assert [len(Path(f"{folder}-drawn{rank}").read_text().split()) for rank in range(2)] == [3, 3]
