"""What is saved and recorded of watched parameters, and the honest loops that nothing is refused of."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from held_loops import make_loop
from helpers import with_fresh_noise
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from private_loops import Loop

from lethe.errors import HypothesisError
from lethe.train import Checkpoints, fit


@pytest.mark.nightly(by_day="test_a_change_between_two_steps_is_refused_before_the_next")
@pytest.mark.slow
def test_what_was_changed_is_not_saved(tmp_path: Any) -> None:
    """A checkpoint would carry it over into a training that knows nothing of it."""
    model: Any = make_network()

    def change(done: int, steps: int) -> None:
        if done == 3:
            model[0].weight.data.mul_(0.5)

    run = make_network_run(release="last", noise_multiplier=1.0)
    with pytest.raises(HypothesisError, match=r"0\.weight was changed by something else"):
        fit(model, CROSS_ENTROPY, make_data(), run, progress=change, checkpoints=Checkpoints(folder=tmp_path, every=3))
    again = make_network()
    fitted = fit(again, CROSS_ENTROPY, make_data(), run, checkpoints=Checkpoints(folder=tmp_path, every=3))
    assert fitted.run.total_steps == 9

    loop = make_loop(checkpoints=Checkpoints(folder=tmp_path / "loop", every=3))
    batches = iter(loop.loader)
    for _ in range(3):
        loop.use(*next(batches))
    loop.model[0].weight.data.mul_(0.5)
    with pytest.raises(HypothesisError, match="changed by something else"):
        loop.engine.save()
    with pytest.raises(HypothesisError, match="changed by something else"):
        next(batches)
    loop.engine.close()


@pytest.mark.slow
def test_where_all_is_released_it_may_be_recorded_early_and_go_on() -> None:
    loop = make_loop()
    for inputs, targets in loop.loader:
        loop.use(inputs, targets)
        if loop.engine.steps == 4:
            assert with_fresh_noise(loop.engine.recorded_run()) == loop.run
    assert with_fresh_noise(loop.engine.recorded_run()) == loop.run


def reads_only(loop: Loop) -> None:
    assert all(float(parameter.grad.norm()) >= 0 for parameter in loop.model.parameters() if parameter.grad is not None)
    copy.deepcopy(loop.model.state_dict())
    with torch.no_grad():
        loop.model.eval()
        loop.model(make_data()[0])
        loop.model.train()


def swaps_and_swaps_back(loop: Loop) -> None:
    kept = copy.deepcopy(loop.model.state_dict())
    loop.model.load_state_dict(make_network().state_dict())
    loop.model.load_state_dict(kept)


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("change", [reads_only, swaps_and_swaps_back])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_honest_loops_pass(make: Any, change: Callable[[Loop], None]) -> None:
    loop = make_loop(optimizer=lambda parameters: make(parameters, lr=0.5), physical_size=3)
    scheduler = torch.optim.lr_scheduler.StepLR(loop.optimizer, step_size=1, gamma=0.9)
    average = torch.optim.swa_utils.AveragedModel(loop.model)
    for inputs, targets in loop.loader:
        change(loop)
        loop.engine.backward(loop.losses(inputs, targets))
        change(loop)
        loop.optimizer.step()
        change(loop)
        loop.optimizer.zero_grad(set_to_none=False)
        scheduler.step()
        average.update_parameters(loop.model)
    loop.engine.close()
    assert with_fresh_noise(loop.engine.recorded_run()) == loop.run


@pytest.mark.slow
def test_hooks_of_the_optimizer_s_own_are_part_of_its_step_where_all_is_released() -> None:
    loop = make_loop()

    def within(*_: object) -> None:
        loop.model[0].weight.data.clamp_(-0.3, 0.3)

    loop.optimizer.register_step_post_hook(within)
    assert with_fresh_noise(loop.whole()) == loop.run
    assert float(loop.model[0].weight.detach().abs().max()) <= 0.3


def test_parameters_that_are_no_numbers_any_more_are_compared_by_their_bits() -> None:
    loop = make_loop()
    batches = iter(loop.loader)
    loop.use(*next(batches))
    loop.optimizer.param_groups[0]["lr"] = float("inf")
    loop.use(*next(batches))
    assert not bool(torch.isfinite(flat(loop.model)).all())
    loop.losses(*next(batches))  # not refused as a change
