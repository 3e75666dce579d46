"""Layers of a loop of one's own that are frozen and unfrozen between two steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers import with_fresh_noise
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from private_loops import Loop

from lethe.errors import InputError
from lethe.train import TrainOptions, fit

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


def test_a_loop_goes_on_from_a_checkpoint_with_frozen_layers(tmp_path: Path) -> None:
    options = {"checkpoints": tmp_path, "noise_generator": None}
    loop = Loop(RUN.replace(noise_multiplier=1.0), **options)
    loop.model[0].requires_grad_(False)
    for batch in loop.loader:
        loop.use(batch)
        loop.engine.save()
        if loop.engine.steps == 2:
            break
    kept = flat(loop.model)
    loop.engine.close()
    again = Loop(RUN.replace(noise_multiplier=1.0), **options)
    assert (again.engine.resumed, torch.equal(flat(again.model), kept)) == (2, True)
    again.whole()


@pytest.mark.parametrize("correlated", [False, True])
def test_where_all_steps_need_all_parameters_freezing_is_refused(correlated: bool) -> None:
    model = make_network()

    def freeze(step: int, steps: int) -> None:
        model[0].requires_grad_(False)

    if not correlated:
        with pytest.raises(InputError, match="are not those that training began with"):
            fit(model, CROSS_ENTROPY, make_data(), RUN.replace(noise_multiplier=1.0), options=TrainOptions(progress=freeze))
        return
    noise = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.5]}
    run = make_network_run("cyclic", noise_multiplier=1.0, noise=noise)
    loop = Loop(run, model=model)
    batches = iter(loop.loader)
    loop.use(next(batches))
    freeze(1, 1)
    with pytest.raises(InputError, match="are not those that training began with"):
        loop.use(next(batches))
