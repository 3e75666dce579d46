"""What a loop makes of the noisy gradient is post-processing, clipping above all; a GradScaler's division is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import with_fresh_noise
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from private_loops import Loop, Losses, losses_of
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

import lethe
from lethe.errors import InputError
from lethe.train import fit


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
        fitted = fit(model, CROSS_ENTROPY, make_data(), make_network_run(noise_multiplier=1.0), optimizer=optimizer, seed=0)
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


def scaler_s_step(loop: Loop, scaler: Any) -> None:
    scaler.step(loop.optimizer)
    scaler.update()


def unscaled_first(loop: Loop, scaler: Any) -> None:
    scaler.unscale_(loop.optimizer)
    clip_grad_norm_(loop.model.parameters(), 1e9)
    scaler_s_step(loop, scaler)


def scaled_losses(model: Any, scaler: Any) -> Losses:
    return lambda batch: scaler.scale(losses_of(model)(batch))


@pytest.mark.parametrize("take", [scaler_s_step, unscaled_first])
@pytest.mark.parametrize("fused", [False, True])
def test_a_grad_scaler_is_refused(fused: bool, take: Callable[[Loop, Any], None]) -> None:
    """It divides clipped gradients by the scale of a loss, fused steps inside of themselves: nothing would be trained."""
    scaler, model = torch.amp.GradScaler("cpu"), make_network()
    losses = scaled_losses(model, scaler)
    loop = Loop(model=model, losses=losses, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5, fused=fused))
    before = flat(loop.model)
    loop.engine.backward(next(iter(loop.loader)))
    with pytest.raises(InputError, match=r"(?s)step 1: the noisy gradients.*GradScaler.*bfloat16"):
        take(loop, scaler)
    assert torch.equal(flat(loop.model), before)
    assert loop.engine.steps == 0


def test_a_grad_scaler_that_is_switched_off_does_nothing() -> None:
    scaler, model = torch.amp.GradScaler("cpu", enabled=False), make_network()
    loop = Loop(model=model, losses=scaled_losses(model, scaler))
    for batch in loop.loader:
        loop.engine.backward(batch)
        scaler_s_step(loop, scaler)
        loop.optimizer.zero_grad()
    other = Loop()
    other.whole()
    assert torch.equal(flat(loop.model), flat(other.model))
