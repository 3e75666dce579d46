"""Processes with one ledger and callbacks, and what is refused in shards and in DistributedDataParallel, over gloo."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import with_fresh_noise
from networks import fit_network, make_network_run
from processes import Processes, all_raised, plain_fit, received
from shared_work import in_a_loop, journaled, kept, root_dies, written, wrong
from torch import Tensor

from lethe.errors import BudgetExceededError, InputError, LetheError
from lethe.ledger import Budget, Ledger, Spending, spending
from lethe.run.run import Run
from lethe.train import Callback
from lethe.train.callbacks.callback import StepEnd, TrainingEnd
from lethe.train.distributed.collectives import StoppedElsewhere


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


def fitted(rank: int, place: str, multiplier: float, payers: tuple[int, ...] = (0, 1)) -> Tensor:
    ledger = Spending(Ledger.open(place), "patients", by=f"process {rank}", slack=1e-8) if rank in payers else None
    return plain_fit(rank, run=make_network_run("shuffled", noise_multiplier=multiplier), ledger=ledger)


def fitted_within(rank: int, place: str) -> Tensor:
    with spending(Ledger.open(place), "patients", by=f"process {rank}", slack=1e-8):
        return plain_fit(rank, run=make_network_run("shuffled", noise_multiplier=40.0))


def looped(rank: int, place: str) -> None:
    ledger = Spending(Ledger.open(place), "patients", by=f"process {rank}", slack=1e-8)
    in_a_loop(rank, "whole", make_network_run("shuffled", noise_multiplier=40.0), torch.optim.SGD, {"ledger": ledger})


def goes_on(rank: int, place: str, folder: str, stop: int) -> Tensor:
    def progress(step: int, steps: int) -> None:
        if step == stop:
            raise ValueError("enough")

    ledger = Spending(Ledger.open(place), "patients", slack=1e-8)
    return plain_fit(rank, run=make_network_run("shuffled", noise_multiplier=40.0), ledger=ledger, progress=progress, checkpoints=folder)


def test_the_same_call_again_goes_on_under_its_own_reservation(processes: Processes, place: str, tmp_path: Path) -> None:
    assert all(isinstance(result, ValueError) for result in processes.run(2, goes_on, place, str(tmp_path / "kept"), 3))
    assert states(place) == ["started"]
    assert not any(isinstance(result, Exception) for result in processes.run(2, goes_on, place, str(tmp_path / "kept"), 0))
    assert states(place) == ["settled"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("train", "given"), [(fitted_within, ()), (looped, ()), (fitted, (40.0, (0,)))])
def test_process_0_reserves_and_settles_for_all(processes: Processes, place: str, train: object, given: tuple[Any, ...]) -> None:
    assert not any(isinstance(result, Exception) for result in processes.run(2, train, place, *given))
    assert states(place) == ["settled"]
    assert Ledger.open(place).show("patients").lines[0].by == "process 0"


def test_what_does_not_fit_is_trained_by_no_process(processes: Processes, place: str) -> None:
    first, second = processes.run(2, fitted, place, 0.5)
    assert isinstance(first, BudgetExceededError)
    assert "still fits" in str(first)
    assert isinstance(second, StoppedElsewhere)
    assert "process 0" in str(second)
    assert states(place) == []


def test_a_ledger_that_process_0_does_not_have_is_refused_by_all(processes: Processes, place: str) -> None:
    first, second = processes.run(2, fitted, place, 40.0, (1,))
    assert isinstance(first, StoppedElsewhere)
    assert isinstance(second, InputError)
    assert "process 0, which reserves for all, was not" in str(second)
    assert states(place) == []


class Heard(Callback):
    """Keeps the steps, and how many ends there were."""

    private = True

    def __init__(self, fail_at: int | None = None) -> None:
        self.steps: list[StepEnd] = []
        self.ends, self.fail_at = 0, fail_at

    def on_train_begin(self, run: Run, *, steps_done: int) -> None:
        if self.fail_at == steps_done:
            raise KeyboardInterrupt

    def on_step_end(self, step: StepEnd) -> None:
        self.steps.append(step)
        if step.step == self.fail_at:
            raise KeyboardInterrupt

    def on_train_end(self, end: TrainingEnd) -> None:
        self.ends += 1


def heard_in_fit(rank: int, fail_at: int | None = None) -> tuple[list[StepEnd], int]:
    heard = Heard(fail_at)
    try:
        fit_network(make_network_run(noise_multiplier=1.0), callbacks=heard, seed=5)
    except KeyboardInterrupt:
        raise RuntimeError("interrupted") from None  # the tests' processes hand on what is an Exception
    return heard.steps, heard.ends


def test_process_0_is_told_and_no_other(processes: Processes) -> None:
    alone, _ = heard_in_fit(0)
    (steps, ends), other = processes.run(2, heard_in_fit)
    assert other == ([], 0)
    assert ends == 1
    assert [(step.step, step.noise_std, step.private.records) for step in steps] == [
        (step.step, step.noise_std, step.private.records) for step in alone
    ], "the records of the whole batch, not of the share of process 0"


@pytest.mark.parametrize("fail_at", [0, 3])
def test_an_interrupt_in_a_callback_ends_all(processes: Processes, fail_at: int) -> None:
    """Before the first step, too: nobody waits for process 0."""
    root, other = processes.run(2, heard_in_fit, fail_at)
    assert isinstance(root, RuntimeError)
    assert isinstance(other, LetheError)
    assert "process 0" in str(other)


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


def spoil(folder: Path) -> None:
    path = folder / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-100])


def never_begun(journal: Path, step: int) -> None:
    """As if the training had been ended before it wrote this step down."""
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(line for line in lines if line != f"step {step}") + "\n")


def test_another_number_of_processes_goes_on_from_a_checkpoint(processes: Processes, tmp_path: Path) -> None:
    """Ended right after a checkpoint, no step is lost: the result is that of no interruption, with Adam's averages."""
    run, folder = make_network_run("shuffled"), os.fspath(tmp_path / "kept")
    whole, _ = processes.run(2, kept, run, os.fspath(tmp_path / "whole"), None)[0]
    for stopped in processes.run(3, kept, run, folder, 5):
        assert isinstance(stopped, KeyError), stopped
    assert sorted(os.listdir(folder)) == ["checkpoint.pt", "journal"]
    never_begun(tmp_path / "kept" / "journal", 5)
    assert all(float((one[0] - whole).abs().max()) < 1e-9 for one in processes.run(2, kept, run, folder, None))
    spoil(tmp_path / "kept")
    again = processes.run(2, kept, run, folder, None)
    assert "damaged" in str(again[0])
    assert all(isinstance(one, LetheError) for one in again), again


@pytest.mark.nightly(by_day="test_nobody_draws_noise_of_a_step_that_is_not_written_down")
def test_a_process_that_dies_leaves_no_release_uncounted(tmp_path: Path) -> None:
    run, folder = make_network_run("shuffled", noise_multiplier=1.0), os.fspath(tmp_path / "kept")
    with Processes(3) as started:
        (result, *_) = started.run(3, kept, run, folder, 5, "die", answering=1)
        assert isinstance(result, StoppedElsewhere), result
    assert journaled(folder) >= 5
    with Processes(2) as started:
        results = started.run(2, kept, run, folder, None)
        assert all(torch.equal(one[0], results[0][0]) and with_fresh_noise(one[1]) == run for one in results), results
        assert journaled(folder) == run.total_steps


@pytest.mark.parametrize("written", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_nobody_draws_noise_of_a_step_that_is_not_written_down(tmp_path: Path, written: bool) -> None:
    folder = os.fspath(tmp_path / "kept")
    with Processes(2) as started:
        with pytest.raises(EOFError):
            started.run(2, root_dies, make_network_run("shuffled", noise_multiplier=1.0), folder, 4, written)
        assert isinstance(received(started._pipes[1]), StoppedElsewhere)
    assert journaled(folder) == 3 + written
    assert [len(Path(f"{folder}-drawn{rank}").read_text().split()) for rank in range(2)] == [3, 3]
