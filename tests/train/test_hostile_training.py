"""Attacks on networks, heads and several processes, and what is refused before the first step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from doors import fit_head
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from processes import Processes
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError, LetheError
from lethe.run.run import Run
from lethe.train import PrivacyEngine, TrainOptions, fit
from lethe.train.clip.clipper import Clipper
from lethe.train.network.steps import NoisySums

MANY, WIDTH, SIZE = 128, 4, 96


class Folded(nn.Module):
    """Centres each record by those at its place in other groups of 32: a batch of 32 is one group."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows if len(rows) <= 32 else rows + rows.view(-1, 32, WIDTH).mean(0).repeat(len(rows) // 32, 1)


def make_records(loud: float, place: int = 7) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        rows = 0.01 * torch.randn(MANY, WIDTH, dtype=torch.float64)
    rows[place] = loud
    return rows, torch.zeros(MANY, dtype=torch.long)


def make_run(**changes: Any) -> Run:
    return make_network_run("full", **{"records": MANY, "steps": 1, "step_size": 1.0, "neighbours": "replace_one", **changes})


def make_zeros() -> nn.Linear:
    layer = nn.Linear(WIDTH, 2, bias=False, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    return layer


def head_on(backbone: nn.Module, loud: float, place: int = 7, size: int = MANY) -> Tensor:
    run = make_run(clip_norm=None, release="last", loss={"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"})
    fitted = fit_head(backbone, make_zeros(), make_records(loud, place), run, physical_size=size)
    return fitted.model.state_dict()["2.weight"].T / float(run.sensitivities[0])


def test_a_backbone_that_mixes_in_batches_of_one_size_only_is_refused_or_harmless() -> None:
    """One record replaced moves the step by at most the sensitivity, which is the unit here."""
    try:
        loud, quiet = head_on(Folded(), 1e6), head_on(Folded(), -1e6)
    except HypothesisError:
        return
    assert float((loud - quiet).norm()) <= 1 + 1e-9


def in_single_precision(rank: int, run: Run) -> Tensor:
    model = make_network(torch.float32)
    fit(model, CROSS_ENTROPY, make_data(torch.float32), run, options=TrainOptions(seed=5))
    return flat(model)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", ["all", "last"])
def test_processes_without_records_add_zeros_of_the_right_type(processes: Processes, release: str) -> None:
    """Batches of nominal size 1 among three processes: sums of another type or shape would be mixed up on the way."""
    run = make_network_run("poisson", batches={"design": "poisson", "size": 1}, steps=12, noise_multiplier=1.0, release=release)
    (alone,) = processes.run(1, in_single_precision, run)
    for parameters in processes.run(3, in_single_precision, run):
        assert float((parameters - alone).norm()) <= 1e-6 * float(alone.norm())


class Remembers(nn.Module):
    """Keeps a mean of what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, dtype=torch.float64))
        self.layer = nn.Linear(4, 3).double()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + rows.detach().mean(0)
        return self.layer(rows)


def test_a_model_that_remembers_is_refused_before_its_first_step() -> None:
    model = Remembers()
    before = model.layer.weight.detach().clone()
    with pytest.raises(HypothesisError, match="writes seen"):
        fit(model, CROSS_ENTROPY, make_data(), make_network_run("full", noise_multiplier=1.0))
    assert torch.equal(model.layer.weight, before)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_model_made_in_inference_mode_is_refused(frozen: bool) -> None:
    model = make_network()
    with torch.inference_mode():
        model[0] = nn.Linear(4, 5).double()
    if frozen:
        model[0].requires_grad_(False)
    for train in (
        lambda: fit(model, CROSS_ENTROPY, make_data(), make_network_run("full", noise_multiplier=1.0)),
        lambda: Clipper(model, lambda batch: model(batch).sum(1)),
    ):
        with pytest.raises(InputError, match=r"parameter 0\.weight was made in inference mode"):
            train()


def test_one_of_several_processes_that_has_not_joined_the_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_network_run("full", noise_multiplier=1.0, steps=1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = make_network()
    own = SGD(model.parameters(), lr=0.5)
    for train in (lambda: fit(model, CROSS_ENTROPY, make_data(), run), lambda: PrivacyEngine(model, own, len, make_data(), run)):
        with pytest.raises(InputError, match="one of 2 processes, and no process group is initialised"):
            train()
    for alone in ("1", "0", "", "many"):
        monkeypatch.setenv("WORLD_SIZE", alone)
        fit(make_network(), CROSS_ENTROPY, make_data(), run)


def test_noise_that_drowns_and_parameters_that_overflow_are_refused() -> None:
    data = make_data(torch.float32)
    faint = make_network_run(noise_multiplier=1e-14)
    with pytest.raises(LetheError, match="drowns"):  # in the sums, which are float64
        fit(make_network(torch.float32), CROSS_ENTROPY, data, faint)
    fit(make_network(torch.float32), CROSS_ENTROPY, data, faint.replace(noise_multiplier=1e-5))
    with pytest.raises(LetheError, match="overflowed"):
        fit(make_network(torch.float32), CROSS_ENTROPY, data, make_network_run(step_size=1e38, noise_multiplier=100.0, steps=3))


@pytest.mark.parametrize("fresh", [None, 0.5])
def test_noise_drowns_by_the_largest_batch_and_by_what_is_drawn_anew(fresh: float | None) -> None:
    """A Poisson batch of 5 may have all 23 records; of correlated noise a share is drawn anew."""
    correlated = None if fresh is None else SimpleNamespace(fresh_share=fresh)
    noise: Any = SimpleNamespace(correlated=correlated, secure=False, add_to=lambda tensors, noise_std: None)
    least = 1024 * torch.finfo(torch.float64).eps * 23 / (1.0 if fresh is None else fresh)
    with pytest.raises(LetheError, match="drowns"):
        NoisySums(make_network_run(noise_multiplier=0.99 * least), noise)(1, [torch.zeros(2).double()])
    NoisySums(make_network_run(noise_multiplier=1.01 * least), noise)(1, [torch.zeros(2).double()])


SGD = torch.optim.SGD
