"""Averages, teachers and norms that are made of the iterates and released with the model: the certificate covers them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import arguments
from networks import COLUMNS, CROSS_ENTROPY, make_data, make_network, make_network_run
from private_loops import Loop
from torch import Tensor, nn
from torch.nn.utils import spectral_norm as hooked_spectral_norm
from torch.nn.utils.parametrizations import spectral_norm

import lethe
from lethe.errors import InputError
from lethe.train import Checkpoints, Fitted, fit


def _averaged(model: nn.Module, **options: Any) -> Fitted[nn.Module]:
    run = make_network_run(noise_multiplier=1.0, **options.pop("run", {}))
    return fit(model, CROSS_ENTROPY, make_data(), run, **arguments(options))


@pytest.mark.slow
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


@pytest.mark.slow
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


def teachers_of(iterates: list[list[Tensor]]) -> list[Tensor]:
    """The recursion by hand."""
    teacher = [tensor.clone() for tensor in make_network().parameters()]
    for iterate in iterates:
        teacher = [0.9 * own + 0.1 * other for own, other in zip(teacher, iterate, strict=True)]
    return teacher


@pytest.mark.parametrize("own_loop", [False, True])
def test_a_teacher_follows_the_noisy_iterates(own_loop: bool) -> None:
    model, iterates = Taught(), list[list[Tensor]]()
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.5)
    optimizer.register_step_post_hook(lambda *_: iterates.append([tensor.detach().clone() for tensor in model.student.parameters()]))
    optimizer.register_step_post_hook(model.follow)
    run = make_network_run(noise_multiplier=1.0)
    if own_loop:
        Loop(run, model=model, optimizer=lambda _: optimizer).whole()
    else:
        fit(model, CROSS_ENTROPY, make_data(), run, optimizer=optimizer)
    assert float(model.count) == len(iterates) == 9
    for own, expected in zip(model.teacher.parameters(), teachers_of(iterates), strict=True):
        torch.testing.assert_close(own.detach(), expected, rtol=1e-12, atol=1e-12)  # the same sums


def discriminator(norm: Callable[[nn.Module], nn.Module]) -> nn.Sequential:
    return nn.Sequential(norm(nn.Linear(COLUMNS, 5)), nn.Tanh(), norm(nn.Linear(5, 3))).double()


@pytest.mark.parametrize("norm", [spectral_norm, hooked_spectral_norm])
def test_spectral_norm_in_training_mode_is_refused_for_what_it_is_every_time(norm: Callable[[nn.Module], nn.Module]) -> None:
    for _ in range(3):
        with pytest.raises(InputError, match=r"(?s)step of power iteration in each forward pass.*register_step_post_hook"):
            fit(discriminator(norm), CROSS_ENTROPY, make_data(), make_network_run(noise_multiplier=1.0))
