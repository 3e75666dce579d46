"""Callbacks of training: what they are told, what they never are, and that their errors cost nothing."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_head, fit_linear
from helpers import as_planned
from networks import CROSS_ENTROPY, Loop, fit_network, make_data, make_network, make_network_run
from problems import make_backbone, make_head, make_problem, make_records, make_run
from processes import Processes

from lethe.errors import CallbackWarning, LetheError
from lethe.run.run import Run
from lethe.train import Checkpoints, Fitted
from lethe.train.callbacks.callback import Callback, StepEnd, TrainingEnd
from lethe.train.core.samplers import draw_batches


class Heard(Callback):
    """Keeps all that it is told."""

    def __init__(self, *, private: bool = False) -> None:
        self.private = private
        self.begun, self.steps, self.ends, self.failed = list[tuple[Run, int]](), list[StepEnd](), list[TrainingEnd](), list[str]()

    def on_train_begin(self, run: Run, *, steps_done: int) -> None:
        self.begun.append((run, steps_done))

    def on_step_end(self, step: StepEnd) -> None:
        self.steps.append(step)

    def on_train_end(self, end: TrainingEnd) -> None:
        self.ends.append(end)

    def on_exception(self, kind: str) -> None:
        self.failed.append(kind)


class Failing(Callback):
    """Raises an error at one place."""

    def __init__(self, at: str | int | None, error: type[BaseException] = OSError) -> None:
        self.at, self.error, self.calls = at, error, 0
        self.on_train_begin = lambda run, steps_done: self._reached("begin")
        self.on_step_end = lambda step: self._reached(step.step)
        self.on_train_end = lambda end: self._reached("end")

    def _reached(self, place: str | int) -> None:
        self.calls += 1
        if place == self.at:
            raise self.error("the disk is full")


def network(run: Run, **options: Any) -> Fitted[Any]:
    options = {"batch_generator": torch.Generator().manual_seed(3), "noise_generator": np.random.default_rng(0), **options}
    return fit_network(run, **options)


def in_a_loop(run: Run, **options: Any) -> Loop:
    loop = Loop(run, **options)
    loop.whole()
    return loop


def linear(run: Run, **options: Any) -> Fitted[Any]:
    problem = make_problem("softmax_regression")
    return fit_linear(run, problem.features, problem.targets, classes=problem.classes, seed=4, **options)


def in_processes(rank: int, at: str | int | None = None) -> tuple[list[StepEnd], int]:
    heard = Heard(private=True)
    try:
        fit_network(make_network_run(noise_multiplier=1.0), callbacks=[heard, Failing(at, KeyboardInterrupt)], seed=5)
    except KeyboardInterrupt:
        raise RuntimeError("interrupted") from None  # the tests' processes hand on what is an Exception
    return heard.steps, len(heard.ends)


def test_process_0_is_told_and_no_other(processes: Processes) -> None:
    """The records of the whole batch, not of the share of process 0."""
    alone, _ = in_processes(0)
    (steps, ends), other = processes.run(2, in_processes)
    assert (ends, other) == (1, ([], 0))
    assert [(step.step, step.noise_std, step.private.records) for step in steps] == [
        (step.step, step.noise_std, step.private.records) for step in alone
    ]


@pytest.mark.parametrize("at", ["begin", 3])
def test_an_interrupt_in_a_callback_ends_all(processes: Processes, at: str | int) -> None:
    """Before the first step, too: nobody waits for process 0."""
    root, other = processes.run(2, in_processes, at)
    assert isinstance(root, RuntimeError)
    assert isinstance(other, LetheError)
    assert "process 0" in str(other)


def of_run(run: Run) -> list[StepEnd]:
    """What the run itself says of its steps."""
    same: dict[str, Any] = {"steps": run.total_steps, "clip_norm": run.clip_norm, "batch_size": run.batch_size}
    numbers = zip(run.step_sizes.tolist(), run.noise_stds.tolist(), run.noise_multipliers.tolist(), strict=True)
    return [
        StepEnd(step=step, step_size=size, noise_std=noise_std, noise_multiplier=multiplier, **same)
        for step, (size, noise_std, multiplier) in enumerate(numbers, start=1)
    ]


SCHEDULED = {"step_size": np.linspace(0.5, 0.1, 9).tolist(), "noise_multiplier": np.linspace(1.0, 2.0, 9).tolist()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("train", "run"),
    [
        (network, make_network_run(**SCHEDULED)),
        (network, make_network_run("cyclic", noise_multiplier=1.0, release="last")),
        (network, make_network_run("cyclic", noise_multiplier=1.0, release="last", noise_at="pass_ends", passes=3)),
        (linear, make_run()),
        (linear, make_run(design="poisson", release="all")),
        (lambda run, **given: fit_head(make_backbone(), make_head(bias=False), make_records(), run, seed=4, **given), make_run(records=37)),
    ],
)
def test_they_are_told_what_the_run_says(train: Callable[..., Fitted[Any]], run: Run) -> None:
    heard, asks = Heard(), Heard(private=True)
    fitted = train(run, callbacks=[heard, asks])
    ((begun, done),) = heard.begun
    assert (begun.replace(seeded=False, precision=None), begun.seeded, done) == (run, True, 0)
    assert begun.precision == fitted.run.precision
    assert (begun.precision is None) == (run.release == "all")
    assert heard.steps == of_run(run)
    (end,) = heard.ends
    assert (end.run, end.record, end.steps, end.diagnostics) == (fitted.run, fitted.record, run.total_steps, None)
    assert heard.failed == []
    silent = run.release == "last" or train is not network
    assert all((step.private.loss is None) == silent for step in asks.steps if step.private.records)
    for step in asks.steps:  # numbers: no iterate, no gradient and no record goes with them
        told = [getattr(part, field.name) for part in (step, step.private) for field in fields(part) if field.name != "private"]
        assert {type(value) for value in told} <= {int, float, type(None)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("train", [network, in_a_loop])
def test_what_is_private_is_told_to_those_alone_who_ask(train: Callable[..., Any]) -> None:
    """Poisson batches, whose real sizes are secret, and the mean loss before the step."""
    run = make_network_run(noise_multiplier=1.0)
    asks, does_not = Heard(private=True), Heard()
    train(run, callbacks=[does_not, asks], physical_size=2)
    assert does_not.steps == of_run(run)
    sizes = [len(batch) for batch in draw_batches(run, torch.Generator().manual_seed(3))]
    assert len(set(sizes)) > 3
    assert [step.private.records for step in asks.steps] == sizes
    inputs, targets = make_data()
    first = next(iter(draw_batches(run, torch.Generator().manual_seed(3))))
    losses = CROSS_ENTROPY(make_network()(inputs[first]), targets[first])
    assert asks.steps[0].private.loss == pytest.approx(losses.mean().item(), rel=1e-12)
    assert [step.private.loss is None for step in asks.steps] == [size == 0 for size in sizes]
    assert asks.ends[0].diagnostics is not None
    assert does_not.ends[0].diagnostics is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("train", [network, in_a_loop, linear])
@pytest.mark.parametrize("at", [3, "end"])
def test_a_callback_that_fails_later_is_left_out_and_no_step_is_lost(train: Callable[..., Any], at: str | int) -> None:
    run = make_run(steps=9) if train is linear else make_network_run(noise_multiplier=1.0)
    failing, heard = Failing(at), Heard()
    with pytest.warns(CallbackWarning, match=r"Failing failed at (step 3|the end).*OSError: the disk is full"):
        ended = train(run, callbacks=[failing, heard])
    assert failing.calls == (4 if at == 3 else 11)
    assert heard.steps == of_run(run)
    alone = train(run)
    one, other = ((each.engine.record() if train is in_a_loop else each.record) for each in (ended, alone))
    assert one.run == other.run
    assert [weights.sha256 for weights in one.released] == [weights.sha256 for weights in other.released]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, CallbackWarning])
def test_a_training_broken_off_in_a_callback_goes_on_with_the_next_step(tmp_path: Path, release: str, error: type[BaseException]) -> None:
    """Also where warnings are errors, as here: the step had been counted and saved before anybody was told of it."""
    run = make_network_run("cyclic", noise_multiplier=1.0, release=release)
    kept = {"checkpoints": Checkpoints(folder=tmp_path, every=1), "noise_generator": None}
    failing, heard = Failing(4, KeyboardInterrupt if error is KeyboardInterrupt else OSError), Heard()
    with pytest.raises(error):
        network(run, callbacks=[heard, failing], **kept)
    assert heard.failed == [error.__name__]
    fitted = network(run, callbacks=heard, **kept)
    assert [done for _, done in heard.begun] == [0, 4]
    assert heard.steps == of_run(run)
    assert as_planned(fitted.run) == run
