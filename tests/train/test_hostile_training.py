"""Attacks on networks, heads and several processes, and what is refused before the first step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from networks import fit_network, flat, make_data, make_network, make_network_run
from processes import Processes
from torch import Tensor

from lethe.errors import InputError, LetheError
from lethe.run.run import Run
from lethe.train import PrivacyEngine
from lethe.train.network.steps import NoisySums


def in_single_precision(rank: int, run: Run) -> Tensor:
    model = make_network(torch.float32)
    fit_network(run, model, data=make_data(torch.float32), seed=5)
    return flat(model)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", ["all", "last"])
def test_processes_without_records_add_zeros_of_the_right_type(processes: Processes, release: str) -> None:
    """Batches of nominal size 1 among three processes: sums of another type or shape would be mixed up on the way."""
    run = make_network_run("poisson", batches={"design": "poisson", "size": 1}, steps=12, noise_multiplier=1.0, release=release)
    (alone,) = processes.run(1, in_single_precision, run)
    for parameters in processes.run(3, in_single_precision, run):
        assert float((parameters - alone).norm()) <= 1e-6 * float(alone.norm())


def test_one_of_several_processes_that_has_not_joined_the_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_network_run("full", noise_multiplier=1.0, steps=1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = make_network()
    own = SGD(model.parameters(), lr=0.5)
    for train in (lambda: fit_network(run, model), lambda: PrivacyEngine(model, own, len, make_data(), run)):
        with pytest.raises(InputError, match="one of 2 processes, and no process group is initialised"):
            train()
    for alone in ("1", "0", "", "many"):
        monkeypatch.setenv("WORLD_SIZE", alone)
        fit_network(run)


def test_noise_that_drowns_and_parameters_that_overflow_are_refused() -> None:
    data = make_data(torch.float32)
    faint = make_network_run(noise_multiplier=1e-14)
    with pytest.raises(LetheError, match="drowns"):  # in the sums, which are float64
        fit_network(faint, make_network(torch.float32), data=data)
    fit_network(faint.replace(noise_multiplier=1e-5), make_network(torch.float32), data=data)
    with pytest.raises(LetheError, match="overflowed"):
        fit_network(make_network_run(step_size=1e38, noise_multiplier=100.0, steps=3), make_network(torch.float32), data=data)


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
