"""Several processes that train together: number 0 calls its callbacks, and what it is told is what one process alone is."""

from __future__ import annotations

import pytest
import torch
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from processes import Processes
from shared_work import in_a_loop

from lethe.errors import LetheError
from lethe.run.run import Run
from lethe.train import Callback, TrainOptions, fit
from lethe.train.callbacks.callback import StepEnd, TrainingEnd

pytestmark = pytest.mark.slow  # starting processes takes seconds


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
        fit(
            make_network(),
            CROSS_ENTROPY,
            make_data(),
            make_network_run(noise_multiplier=1.0),
            callbacks=heard,
            options=TrainOptions(seed=5),
        )
    except KeyboardInterrupt:
        raise RuntimeError("interrupted") from None  # the tests' processes hand on what is an Exception
    return heard.steps, heard.ends


def heard_in_a_loop(rank: int) -> tuple[list[StepEnd], int]:
    heard = Heard()
    in_a_loop(rank, "whole", make_network_run(noise_multiplier=1.0), torch.optim.SGD, {"seed": 5, "callbacks": heard})
    return heard.steps, heard.ends


@pytest.mark.parametrize("train", [heard_in_fit, heard_in_a_loop])
def test_process_0_is_told_and_no_other(processes: Processes, train: object) -> None:
    alone, _ = train(0)
    (steps, ends), other = processes.run(2, train)
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
