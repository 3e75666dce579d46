"""Loops of one's own: as fit trains, with what people put around them and make of the noisy gradient, and layers frozen for a while."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import DESIGNS, with_fresh_noise
from networks import CROSS_ENTROPY, Loop, fit_network, flat, losses_of, make_data, make_network, make_network_run
from torch import nn

import lethe
from lethe.errors import InputError
from lethe.train import PrivacyEngine, TrainOptions


@pytest.mark.sampled(14)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("physical_size", "make"), [(None, torch.optim.Adam), (4, torch.optim.SGD)])
def test_a_loop_of_one_s_own_is_fit(design: str, physical_size: int | None, make: Callable[..., Any]) -> None:
    run = make_network_run(design, steps=6, noise_multiplier=1.0)
    loop = Loop(run, optimizer=lambda parameters: make(parameters, lr=0.05), physical_size=physical_size)
    names = list(loop.model.state_dict())
    assert with_fresh_noise(loop.whole()) == run
    twin = make_network()
    fit_network(
        run,
        twin,
        optimizer=make(twin.parameters(), lr=0.05),
        batch_generator=torch.Generator().manual_seed(3),
        noise_generator=np.random.default_rng(0),
    )
    assert float((flat(loop.model) - flat(twin)).abs().max()) < 1e-9
    assert list(loop.model.state_dict()) == names == list(make_network().state_dict())
    assert lethe.certify(with_fresh_noise(loop.engine.recorded_run()), delta=1e-5).epsilon == lethe.certify(run, delta=1e-5).epsilon


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


RUN_OF_ALL = make_network_run(noise_multiplier=1.0)


def parts_of(model: nn.Module) -> list[torch.optim.Optimizer]:
    first, *others = model.parameters()
    return [torch.optim.SGD([first], lr=0.5), torch.optim.AdamW(others, lr=0.1)]


def test_several_optimisers_take_the_steps_of_each() -> None:
    """In fit and in a loop of one's own: as one optimiser whose step calls both."""
    ends = []
    for way in ("fit", "loop"):
        model = make_network()
        parts = parts_of(model)
        if way == "fit":
            fit_network(RUN_OF_ALL, model, optimizer=parts, seed=3)
        else:
            engine = PrivacyEngine(model, parts, losses_of(model), make_data(), RUN_OF_ALL, options=TrainOptions(seed=3))
            for batch in engine.batches():
                engine.backward(batch)
                parts[0].step()
                assert engine.steps == engine.drawn - 1
                parts[1].step()
                assert engine.steps == engine.drawn
                for part in parts:
                    part.zero_grad()
            assert engine.recorded_run().total_steps == RUN_OF_ALL.total_steps
        ends.append(flat(model))
    torch.testing.assert_close(*ends, rtol=0, atol=1e-9)
    assert ((ends[0] - flat(make_network())).abs() > 1e-6).all()


def test_a_step_of_some_optimisers_alone_is_no_step(tmp_path: Path) -> None:
    model = make_network()
    parts = parts_of(model)
    kept = TrainOptions(checkpoints=tmp_path)
    engine = PrivacyEngine(model, parts, losses_of(model), make_data(), RUN_OF_ALL, options=kept)
    batches = iter(engine.batches())
    engine.backward(next(batches))
    parts[0].step()
    with pytest.raises(InputError, match="no private gradient"):
        parts[0].step()
    with pytest.raises(InputError, match="step 1 was not taken"):
        next(batches)
    parts[1].step()
    engine.save()
    engine.close()
    again = make_network()
    resumed = PrivacyEngine(again, parts_of(again), losses_of(again), make_data(), RUN_OF_ALL, options=kept)
    assert (resumed.resumed, torch.equal(flat(again), flat(model))) == (1, True)
    resumed.close()


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


RUN = make_network_run("full", noise_multiplier=0.0, steps=3)


def test_a_step_clips_and_moves_what_is_trained_then() -> None:
    """By hand: clipped gradients of the trained layer alone, then of all."""
    loop = Loop(RUN)
    features, targets = make_data()
    by_hand = make_network()
    for step, batch in enumerate(loop.loader):
        frozen = step == 1
        loop.model[0].requires_grad_(not frozen)
        trained = [parameter for name, parameter in by_hand.named_parameters() if not (frozen and name.startswith("0."))]
        sums = [torch.zeros_like(parameter) for parameter in trained]
        for row in range(len(features)):
            loss = CROSS_ENTROPY(by_hand(features[row : row + 1]), targets[row : row + 1]).sum()
            gradients = torch.autograd.grad(loss, trained)
            norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
            scale = min(1.0, float(loop.run.clip_norm or 0.0) / float(norm))
            sums = [total + scale * gradient for total, gradient in zip(sums, gradients, strict=True)]
        with torch.no_grad():
            for parameter, total in zip(trained, sums, strict=True):
                parameter -= 0.5 * total / len(features)
        loop.use(batch)
        assert torch.allclose(flat(loop.model), flat(by_hand), rtol=0, atol=1e-9)
    assert with_fresh_noise(loop.engine.recorded_run()) == loop.run


def test_what_is_frozen_gets_no_noise_and_the_rest_all_of_it() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 60_000)).double()
    loop = Loop(RUN.replace(noise_multiplier=1e4), model=model, noise_generator=None, batch_generator=None, seed=0)
    model[0].requires_grad_(False)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loop.use(next(iter(loop.loader)))
    moved = [one - two.detach() for one, two in zip(before, model.parameters(), strict=True)]
    assert not any(part.any() for part in moved[:2])
    noise = torch.cat([part.flatten() for part in moved[2:]]) / (0.5 * 1e4 * float(RUN.clip_norm or 0.0) / RUN.batch_size)
    assert abs(float(noise.std()) - 1) < 4 / (2 * len(noise)) ** 0.5 < 0.01
