"""The moving average of iterates: what it is, that the certificate covers it, and where it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from doors import arguments
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from private_loops import Loop
from torch import Tensor, nn

import lethe
from lethe.errors import HypothesisError, InputError
from lethe.train import Checkpoints, Fitted, fit


def _fit(model: nn.Module, **options: Any) -> Fitted[nn.Module]:
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
    fitted = _fit(model, ema=decay, seed=1, progress=note, optimizer=optimizer)
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
def test_buffers_are_those_of_the_model() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double().eval()
    model[1].running_mean.fill_(0.25)
    fitted = _fit(model, ema=0.9)
    assert fitted.averaged is not None
    assert fitted.averaged.keys() == model.state_dict().keys()
    assert torch.equal(fitted.averaged["1.running_mean"], torch.full((3,), 0.25, dtype=torch.float64))


@pytest.mark.slow
def test_its_seal_knows_both_weights(tmp_path: Path) -> None:
    fitted = _fit(make_network(), ema=0.9, run={"batches": {"design": "cyclic", "size": 5}})
    certificate = lethe.certify(fitted, 1e-3)
    assert fitted.averaged is not None
    for weights in (fitted.model.state_dict(), dict(fitted.averaged)):
        torch.save(weights, tmp_path / "weights.pt")
        assert lethe.verify(certificate, weights=tmp_path / "weights.pt").belongs.yes
    torch.save({name: found + 1 for name, found in fitted.averaged.items()}, tmp_path / "weights.pt")
    assert not lethe.verify(certificate, weights=tmp_path / "weights.pt").belongs.yes


def test_an_average_of_iterates_that_nobody_may_see_is_refused() -> None:
    with pytest.raises(HypothesisError, match=r"ema: got 0\.9, and release is last"):
        _fit(make_network(), ema=0.9, run={"release": "last"})


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, 2, True, "0.9", float("nan"), float("inf")])
def test_numbers_that_are_no_decay_are_refused(decay: Any) -> None:
    with pytest.raises(InputError, match="ema: got"):
        _fit(make_network(), ema=decay)
