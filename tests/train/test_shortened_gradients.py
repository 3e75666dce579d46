"""Clipping the noisy gradient is post-processing: taken where every iterate is released, and nothing else passes for it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import with_fresh_noise
from hypothesis import given
from hypothesis import strategies as st
from lethe.train.engine.shortened_gradients import shortening
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from private_loops import Loop
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

import lethe
from lethe.errors import InputError, LetheError
from lethe.train import fit


def clipped_loop(norm: float, clip: Callable[[Loop], Any] | None = None) -> Loop:
    """A loop with torch's own clipping between backward and step."""
    loop = Loop(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9))
    for inputs, targets in loop.loader:
        loop.engine.backward(loop.losses(inputs, targets))
        if clip is None:
            clip_grad_norm_(loop.model.parameters(), norm)
        else:
            clip(loop)
        before = [parameter.grad.clone() for parameter in loop.model.parameters()]
        assert torch.cat([gradient.flatten() for gradient in before]).norm() <= norm * (1 + 1e-6)
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    return loop


@pytest.mark.slow
def test_torch_s_clipping_in_a_loop() -> None:
    loop = clipped_loop(0.05)
    assert with_fresh_noise(loop.engine.recorded_run()) == loop.run
    assert not torch.equal(flat(loop.model), flat(clipped_loop(1e9).model))


@pytest.mark.nightly(by_day="test_torch_s_clipping_in_a_loop")
@pytest.mark.slow
def test_clipping_in_a_hook_of_the_optimizer_s_own() -> None:
    """The hook runs before the guard's; the loop's and fit's steps are then those of clipping by hand."""
    expected = clipped_loop(0.05).model
    loop = Loop(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9))
    loop.optimizer.register_step_pre_hook(lambda *_: clip_grad_norm_(loop.model.parameters(), 0.05) and None)
    loop.whole()
    assert torch.equal(flat(loop.model), flat(expected))


@pytest.mark.nightly(by_day="test_torch_s_clipping_in_a_loop")
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


def added(gradient: Tensor) -> None:
    gradient.add_(1e-3 * torch.ones_like(gradient))


def one_entry(gradient: Tensor) -> None:
    gradient.view(-1)[0] *= 1 + 1e-6


def longer(gradient: Tensor) -> None:
    gradient.mul_(1e4)


def turned(gradient: Tensor) -> None:
    gradient.neg_()


def gone(gradient: Tensor) -> None:
    gradient.zero_()


def not_finite(gradient: Tensor) -> None:
    gradient.mul_(float("nan"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", [added, one_entry, longer, turned, gone, not_finite])
def test_nothing_else_passes_for_it(change: Callable[[Tensor], None]) -> None:
    loop = Loop()
    inputs, targets = next(iter(loop.loader))
    loop.engine.backward(loop.losses(inputs, targets))
    clip_grad_norm_(loop.model.parameters(), 0.05)
    change(loop.model[0].weight.grad)
    with pytest.raises(LetheError, match=r"(?s)0\.weight: its \.grad is not the noisy gradient.*clip_grad_norm_"):
        loop.optimizer.step()


def scaler_s_step(loop: Loop, scaler: Any) -> None:
    scaler.step(loop.optimizer)
    scaler.update()


def unscaled_first(loop: Loop, scaler: Any) -> None:
    scaler.unscale_(loop.optimizer)
    clip_grad_norm_(loop.model.parameters(), 1e9)
    scaler_s_step(loop, scaler)


@pytest.mark.parametrize("take", [scaler_s_step, unscaled_first])
@pytest.mark.parametrize("fused", [False, True])
def test_a_grad_scaler_is_refused(fused: bool, take: Callable[[Loop, Any], None]) -> None:
    """It divides gradients that were never scaled by the scale of a loss, fused steps inside of themselves: nothing was trained."""
    loop = Loop(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5, fused=fused))
    scaler = torch.amp.GradScaler("cpu")
    before = flat(loop.model)
    losses = loop.losses(*next(iter(loop.loader)))
    scaler.scale(losses.mean())
    loop.engine.backward(losses)
    with pytest.raises(InputError, match=r"(?s)step 1: the noisy gradients.*GradScaler.*bfloat16"):
        take(loop, scaler)
    assert torch.equal(flat(loop.model), before)
    assert loop.engine.steps == 0


def test_a_grad_scaler_that_is_switched_off_does_nothing() -> None:
    loop, scaler = Loop(), torch.amp.GradScaler("cpu", enabled=False)
    for inputs, targets in loop.loader:
        loop.engine.backward(scaler.scale(loop.losses(inputs, targets)))
        scaler_s_step(loop, scaler)
        loop.optimizer.zero_grad()
    other = Loop()
    other.whole()
    assert torch.equal(flat(loop.model), flat(other.model))


@pytest.mark.parametrize(("factor", "refused_at"), [(1 / 3, 2), (0.1, 2), (0.25, 1)])
def test_gradients_that_are_divided_by_a_number_are_refused(factor: float, refused_at: int) -> None:
    """A number of accumulated batches, mostly: no clipping to a norm has the same factor in two steps."""
    loop = Loop()
    batches = iter(loop.loader)

    def step() -> None:
        loop.engine.backward(loop.losses(*next(batches)))
        for parameter in loop.model.parameters():
            parameter.grad.mul_(factor)
        loop.optimizer.step()

    for _ in range(refused_at - 1):
        step()
    with pytest.raises(InputError, match=rf"(?s)step {refused_at}: the noisy gradients are .*number of batches.*engine\.backward divides"):
        step()
    assert loop.engine.steps == refused_at - 1


@given(seed=st.integers(0, 10**6), power=st.floats(-20, 5), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_a_gradient_that_torch_clipped_is_known_again(seed: int, power: float, dtype: torch.dtype) -> None:
    before = torch.randn(257, dtype=dtype, generator=torch.Generator().manual_seed(seed)) * 10.0**power
    parameter = torch.nn.Parameter(torch.zeros(257, dtype=dtype))
    parameter.grad = before.clone()
    clip_grad_norm_([parameter], float(before.norm()) * 0.37)
    found = shortening(parameter.grad, before)  # max_norm / (norm + 1e-6)
    assert found is not None
    assert 0 < found < 0.3701
    assert shortening(before, before) == 1.0
    assert shortening(before, parameter.grad) is None or torch.equal(before, parameter.grad)
    assert shortening(parameter.grad.roll(1), before) is None
