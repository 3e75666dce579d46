from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import DESIGNS, with_fresh_noise
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from private_loops import Loop

import lethe
from lethe.errors import HypothesisError, InputError
from lethe.theorems.truncation import truncation_slack
from lethe.train import TrainOptions, fit
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import draw_batches

SGD = torch.optim.SGD


@pytest.mark.sampled(14)
@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("physical_size", "make"), [(None, torch.optim.Adam), (4, SGD)])
def test_a_loop_of_one_s_own_is_fit(design: str, physical_size: int | None, make: Callable[..., Any]) -> None:
    run = make_network_run(design, steps=6, noise_multiplier=1.0)
    loop = Loop(run, optimizer=lambda parameters: make(parameters, lr=0.05), physical_size=physical_size)
    names = list(loop.model.state_dict())
    assert with_fresh_noise(loop.whole()) == run
    twin = make_network()
    fit(
        twin,
        CROSS_ENTROPY,
        make_data(),
        run,
        optimizer=make(twin.parameters(), lr=0.05),
        options=TrainOptions(batch_generator=torch.Generator().manual_seed(3), noise_generator=np.random.default_rng(0)),
    )
    assert float((flat(loop.model) - flat(twin)).abs().max()) < 1e-9
    assert list(loop.model.state_dict()) == names == list(make_network().state_dict())
    assert lethe.certify(with_fresh_noise(loop.engine.recorded_run()), delta=1e-5).epsilon == lethe.certify(run, delta=1e-5).epsilon


@pytest.mark.nightly(by_day="test_empty_batches_get_noise_and_are_recorded")
@pytest.mark.slow
def test_empty_batches_come_as_a_row_that_does_not_count() -> None:
    run = make_network_run(batches={"design": "poisson", "size": 1}, steps=20, noise_multiplier=1.0)
    loop = Loop(run)
    empty = 0
    for batch in loop.loader:
        assert len(loop.engine.counted) == len(batch[0]) == len(batch[1]) > 0
        empty += not loop.engine.counted.any()
        before = flat(loop.model)
        loop.use(batch)
        assert not torch.equal(before, flat(loop.model))  # the noise of the step
    assert empty > 0
    assert with_fresh_noise(loop.engine.recorded_run()) == run


@pytest.mark.slow
def test_passes_end_at_passes_and_a_loop_may_stop_early() -> None:
    run = make_network_run("shuffled", passes=3, noise_multiplier=1.0)
    loop = Loop(run, physical_size=3)
    ended = []
    for _ in loop.engine.epochs():
        for batch in loop.loader:
            loop.use(batch)
        ended.append(loop.engine.steps)
    assert ended == [4, 8, 12]
    assert with_fresh_noise(loop.engine.recorded_run()) == run
    loop = Loop(run)
    for batch in loop.loader:
        loop.use(batch)
        if loop.engine.steps == 5:
            break
    assert with_fresh_noise(loop.engine.recorded_run()) == run
    early = loop.engine.recorded_run(steps_fixed_in_advance=True)
    assert early.total_steps == 5
    assert early.noise_multipliers.tolist() == [1.0] * 5
    for wrong in (1, "yes", None):
        with pytest.raises(InputError, match="steps_fixed_in_advance: got"):
            loop.engine.recorded_run(steps_fixed_in_advance=wrong)
    assert with_fresh_noise(loop.whole()) == run  # the rest


@pytest.mark.slow
def test_forgetting_zero_grad_does_no_harm_and_steps_of_half_batches_change_nothing() -> None:
    run = make_network_run("full", steps=2, noise_multiplier=1.0)
    loop = Loop(run, physical_size=10, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.5))
    moved = []
    for batch in loop.loader:
        before = flat(loop.model)
        loop.engine.backward(batch)
        loop.optimizer.step()
        moved.append(not torch.equal(before, flat(loop.model)))
    assert moved == [False, False, True, False, False, True]
    assert with_fresh_noise(loop.engine.recorded_run()) == run


@pytest.mark.nightly(by_day="test_passes_end_at_passes_and_a_loop_may_stop_early")
@pytest.mark.slow
def test_a_loop_that_is_left_in_view_of_its_iterates_is_certified_for_all_its_steps() -> None:
    """The moment tells what was seen: a certificate of the steps taken would hold for a number that is fixed in advance."""
    batches = {"design": "poisson", "size": 5, "truncate_at": 14}
    loop = Loop(make_network_run("poisson", batches=batches, steps=50, noise_multiplier=1.0))
    for batch in loop.loader:
        loop.use(batch)
        if loop.engine.steps == 5:
            break
    run, recorded, delta = loop.run, loop.engine.recorded_run(), 1e-2
    assert with_fresh_noise(recorded) == run
    # Of so few records the delta is large, and has to be: the batches are cut.
    planned = lethe.certify(with_fresh_noise(recorded), delta, allow_large_delta=True)
    early = lethe.certify(with_fresh_noise(loop.engine.recorded_run(steps_fixed_in_advance=True)), delta, allow_large_delta=True)
    assert planned.epsilon == lethe.certify(run, delta, allow_large_delta=True).epsilon > early.epsilon
    assert truncation_slack(recorded) == truncation_slack(run) > truncation_slack(early.run)
    assert early.run.total_steps == 5


def test_what_is_not_the_beginning_of_the_plan_is_not_covered_by_it() -> None:
    run = make_network_run("cyclic", passes=3, noise_multiplier=1.0)
    for changed in ({"step_size": 0.6}, {"noise_std": float(run.noise_stds[0]) / 2}):
        recorder = Recorder(run, seeded=False)
        for batch in draw_batches(run.replace(passes=1), torch.Generator()):
            noted = {"step_size": 0.5, "noise_std": float(run.noise_stds[0]), **changed}
            recorder.note(batch=batch, **noted)
        with pytest.raises(HypothesisError, match="are not the first of the plan's 12"):
            recorder.run(run, enforced=False, whole=True)
