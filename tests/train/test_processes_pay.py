"""Several processes with one ledger and callbacks: number 0 reserves, settles and is told; where it cannot go on, no process trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from networks import fit_network, make_network_run
from processes import Processes, plain_fit
from shared_work import in_a_loop
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
