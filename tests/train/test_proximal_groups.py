"""What is added to the steps of a run: regularisers of single layers, averages, teachers and norms, and what is certified of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_fresh_noise
from networks import Loop, by_hand, fit_network, flat, make_data, make_network, make_network_run
from torch import Tensor, nn

import lethe
from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP
from lethe.run.regularisers import L1, L2, Ball, GroupL1
from lethe.run.run import Run
from lethe.train import Checkpoints, Fitted, ProximalGroup

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
    fit_network(run, model, **{"seed": 4, "proximal_groups": [FIRST, LAST], **options})
    return flat(model)


@pytest.mark.sampled(2)
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
@pytest.mark.parametrize("secure", [False, True])
def test_one_group_of_all_is_the_runs_regulariser(secure: bool) -> None:
    run = make_network_run(noise_multiplier=0.0 if secure else 2.0)
    parts = (L1(strength=0.03), L2(strength=0.2))
    options: dict[str, Any] = {"seed": None, "secure": True, "batch_generator": torch.Generator().manual_seed(1)} if secure else {}
    whole = trained(run, proximal_groups=[ProximalGroup(regularisers=parts)], **options)
    if secure:
        options["batch_generator"] = torch.Generator().manual_seed(1)
    assert torch.equal(whole, trained(run.replace(regulariser=parts), proximal_groups=None, **options))


def test_it_is_post_processing_recorded_and_certified_as_composition() -> None:
    run = make_network_run("cyclic", noise_multiplier=2.0)
    recorded = fit_network(run, proximal_groups=[FIRST, LAST]).run
    assert with_fresh_noise(recorded) == run
    certificate = certify(with_fresh_noise(recorded), 1e-5)
    assert certificate.theorem == "composition"
    assert certificate.epsilon == pytest.approx(GDP(math.sqrt(3) / 2.0).epsilon(1e-5))  # 9 steps in 4 slots: one is met thrice


def _averaged(model: nn.Module, **options: Any) -> Fitted[nn.Module]:
    run = make_network_run(noise_multiplier=1.0, **options.pop("run", {}))
    return fit_network(run, model, **options)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("decay", [0.5, 0.999])
@pytest.mark.parametrize("adam", [False, True])
def test_it_is_the_weighted_mean_of_the_iterates(decay: float, adam: bool) -> None:
    model = make_network()
    iterates: list[dict[str, Tensor]] = []

    def note(step: int, steps: int) -> None:
        iterates.append({name: found.detach().clone() for name, found in model.state_dict().items()})

    optimizer = torch.optim.Adam(model.parameters(), lr=0.1) if adam else None
    fitted = _averaged(model, ema=decay, seed=1, progress=note, optimizer=optimizer)
    assert fitted.averaged is not None
    weights = [decay ** (len(iterates) - 1 - place) for place in range(len(iterates))]
    for name, found in fitted.averaged.items():
        expected = sum(weight * iterate[name] for weight, iterate in zip(weights, iterates, strict=True)) / sum(weights)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    make_network().load_state_dict(dict(fitted.averaged))


def test_a_loop_keeps_it_too_and_takes_it_up_again(tmp_path: Path) -> None:
    def begun(folder: str) -> Loop:
        kept = Checkpoints(folder=tmp_path / folder, every=1)
        return Loop(make_network_run("cyclic", noise_multiplier=0.0), ema=0.5, checkpoints=kept, batch_generator=None, noise_generator=None)

    whole, cut = begun("whole"), begun("cut")
    assert not whole.engine.averaged
    whole.whole()
    for batch in cut.loader:
        cut.use(batch)
        if cut.engine.steps == 2:
            break
    cut.engine.save()
    cut.engine.close()
    again = begun("cut")
    assert again.engine.resumed == 2
    again.whole()
    assert whole.engine.averaged is not None
    assert again.engine.averaged is not None
    for name, average in whole.engine.averaged.items():
        torch.testing.assert_close(again.engine.averaged[name], average, rtol=1e-12, atol=1e-13)
    assert [released.name for released in again.engine.record().released] == ["model", "moving average"]


def test_its_seal_knows_both_weights(tmp_path: Path) -> None:
    fitted = _averaged(make_network(), ema=0.9, run={"batches": {"design": "cyclic", "size": 5}})
    certificate = lethe.certify(fitted, 1e-3)
    assert fitted.averaged is not None
    for weights in (fitted.model.state_dict(), dict(fitted.averaged)):
        torch.save(weights, tmp_path / "weights.pt")
        assert lethe.verify(certificate, weights=tmp_path / "weights.pt").belongs.yes
    torch.save({name: found + 1 for name, found in fitted.averaged.items()}, tmp_path / "weights.pt")
    assert not lethe.verify(certificate, weights=tmp_path / "weights.pt").belongs.yes


class Taught(nn.Module):
    """A student with a teacher that is its moving average, and a count of the steps: BYOL's and LitEma's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = make_network(), make_network().requires_grad_(False)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.student(inputs) + 0.1 * self.teacher(inputs)

    def follow(self, *_: object) -> None:
        for own, other in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            own.data.mul_(0.9).add_(other.data, alpha=0.1)
        self.count += 1


@pytest.mark.parametrize("own_loop", [False, True])
def test_a_teacher_may_follow_the_noisy_iterates(own_loop: bool) -> None:
    model, run = Taught(), make_network_run(noise_multiplier=1.0)
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.5)
    optimizer.register_step_post_hook(model.follow)
    if own_loop:
        Loop(run, model=model, optimizer=lambda _: optimizer).whole()
    else:
        fit_network(run, model, optimizer=optimizer)
    assert float(model.count) == 9
    assert not torch.equal(flat(model.teacher), flat(make_network()))
