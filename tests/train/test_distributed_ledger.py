"""Several processes and one ledger: number 0 reserves and settles, once; where it cannot, no process trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from networks import make_network_run
from processes import Processes, plain_fit
from shared_work import in_a_loop
from torch import Tensor

pytest.importorskip("sqlalchemy")

from lethe.errors import BudgetExceededError, InputError
from lethe.ledger import Budget, Ledger, Spending, spending
from lethe.train.distributed.collectives import StoppedElsewhere

pytestmark = pytest.mark.slow  # starting processes takes seconds


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
