"""What a loop makes of the noisy gradient is post-processing, clipping above all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import with_fresh_noise
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from private_loops import Loop
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

import lethe
from lethe.train import TrainOptions, fit


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def clipped_loop(norm: float) -> Loop:
    """A loop with torch's own clipping between backward and step."""
    loop = Loop(optimizer=momentum)
    for batch in loop.loader:
        loop.engine.backward(batch)
        clip_grad_norm_(loop.model.parameters(), norm)
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    return loop


@pytest.mark.slow
def test_torch_s_clipping_in_a_loop_and_in_a_hook_of_the_optimizer_s_own() -> None:
    """The hook runs before the guard's."""
    by_hand = clipped_loop(0.05)
    assert with_fresh_noise(by_hand.engine.recorded_run()) == by_hand.run
    assert not torch.equal(flat(by_hand.model), flat(clipped_loop(1e9).model))
    loop = Loop(optimizer=momentum)
    loop.optimizer.register_step_pre_hook(lambda *_: clip_grad_norm_(loop.model.parameters(), 0.05) and None)
    loop.whole()
    assert torch.equal(flat(loop.model), flat(by_hand.model))


@pytest.mark.slow
def test_clipping_in_fit() -> None:
    norms = []

    def steps(norm: float) -> Tensor:
        model = make_network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer.register_step_pre_hook(lambda *_: norms.append(clip_grad_norm_(model.parameters(), norm)))
        fitted = fit(
            model, CROSS_ENTROPY, make_data(), make_network_run(noise_multiplier=1.0), optimizer=optimizer, options=TrainOptions(seed=0)
        )
        assert lethe.certify(fitted.run.replace(seeded=False), 1e-3).epsilon < float("inf")
        return flat(fitted.model)

    moved = [steps(1e9), steps(1e-9)]
    start = flat(make_network())
    assert float((moved[1] - start).norm()) < 1e-7 < 0.1 < float((moved[0] - start).norm())
    assert min(norms) > 1e-9


@pytest.mark.parametrize("factor", [0.1, 1 / 3, -1.0, 0.0])
def test_any_function_of_the_noisy_gradient_is_a_step(factor: float) -> None:
    loop = Loop()
    before = flat(loop.model)
    loop.engine.backward(next(iter(loop.loader)))
    given = torch.cat([parameter.grad.flatten() for parameter in loop.model.parameters()])
    for parameter in loop.model.parameters():
        parameter.grad.mul_(factor)
    loop.optimizer.step()
    torch.testing.assert_close(flat(loop.model), before - 0.5 * factor * given, rtol=1e-12, atol=1e-15)
