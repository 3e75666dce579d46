"""Regularisers of single layers: the recursion by hand, what is certified of it, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from helpers import with_fresh_noise
from networks import CROSS_ENTROPY, by_hand, flat, make_data, make_network, make_network_run
from torch import nn

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP
from lethe.run.regularisers import L1, L2, Ball, GroupL1
from lethe.run.run import Run
from lethe.train import ProximalGroup, TrainOptions, fit

FIRST = ProximalGroup(regularisers=(L1(strength=0.04), Ball(radius=0.8)), parameters=("0.weight", "0.bias"))
LAST = ProximalGroup(regularisers=(GroupL1(strength=0.05), L2(strength=0.3)), parameters=("3.weight",))
FALLING = {"schedule": "exponential", "first": 0.8, "ratio": 0.9}


def proximal_by_hand(model: nn.Module, step_size: float) -> None:
    """FIRST and LAST, from the definitions; the layer norm and the last bias are in no group."""
    named = {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}
    soft = {name: np.sign(x) * np.maximum(np.abs(x) - step_size * 0.04, 0) for name, x in named.items() if name.startswith("0.")}
    length = np.sqrt(sum(float((x**2).sum()) for x in soft.values()))
    named |= {name: x * min(1.0, 0.8 / length) for name, x in soft.items()}
    rows = [row * max(0.0, 1 - step_size * 0.05 / np.linalg.norm(row)) for row in named["3.weight"]]
    named["3.weight"] = np.array(rows) / (1 + step_size * 0.3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(named[name]))


def trained(run: Run, **options: Any) -> torch.Tensor:
    model = make_network()
    fit(model, CROSS_ENTROPY, make_data(), run, **arguments({"seed": 4, "proximal_groups": [FIRST, LAST], **options}))
    return flat(model)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 7])
def test_each_step_ends_with_each_groups_proximal_step(physical_size: int | None) -> None:
    run = make_network_run("full", step_size=FALLING, steps=6)
    model = make_network()
    for step_size in run.step_sizes.tolist():
        by_hand(model, make_data(), run.replace(steps=1, step_size=step_size), torch.Generator())
        proximal_by_hand(model, step_size)
    got = trained(run, physical_size=physical_size)
    assert float((got - flat(model)).abs().max()) < 1e-8  # records are clipped by some 1e-9 less
    assert float((got - trained(run, proximal_groups=None)).abs().max()) > 0.05


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
def test_one_group_of_all_is_the_runs_regulariser(secure: bool) -> None:
    run = make_network_run(noise_multiplier=0.0 if secure else 2.0)
    parts = (L1(strength=0.03), L2(strength=0.2))
    options: dict[str, Any] = {"seed": None, "secure": True, "batch_generator": torch.Generator().manual_seed(1)} if secure else {}
    whole = trained(run, proximal_groups=[ProximalGroup(regularisers=parts)], **options)
    if secure:
        options["batch_generator"] = torch.Generator().manual_seed(1)
    assert torch.equal(whole, trained(run.replace(regulariser=parts), proximal_groups=None, **options))


@pytest.mark.slow
def test_it_is_post_processing_recorded_and_certified_as_composition() -> None:
    run = make_network_run("cyclic", noise_multiplier=2.0)
    recorded = fit(make_network(), CROSS_ENTROPY, make_data(), run, options=TrainOptions(proximal_groups=[FIRST, LAST])).run
    assert with_fresh_noise(recorded) == run
    certificate = certify(with_fresh_noise(recorded), 1e-5)
    assert certificate.theorem == "composition"
    assert certificate.epsilon == pytest.approx(GDP(math.sqrt(3) / 2.0).epsilon(1e-5))  # 9 steps in 4 slots: one is met thrice
