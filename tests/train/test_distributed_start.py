"""What processes must agree on before they train together, and what they cannot train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from processes import Processes, all_raised, plain_fit
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train import Group, PrivacyEngine
from lethe.train.distributed.workers import Workers

pytestmark = pytest.mark.slow  # starting processes takes seconds


def network_with(change: Callable[[Any], object]) -> nn.Module:
    model = make_network()
    with torch.no_grad():
        change(model)
    return model


def stepped(rank: int) -> dict[str, Any]:
    model = make_network()
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=0.1 * (1 + rank))}


def shorter(rank: int) -> dict[str, Any]:
    run = make_network_run("shuffled", noise_multiplier=1.0, records=23 - rank, batches={"design": "shuffled", "size": 5})
    return {"data": tuple(part[: 23 - rank] for part in make_data()), "run": run}


def clipped(rank: int) -> dict[str, Any]:
    return {"clip_groups": [Group(parameters=("0.*",), clip_norm=0.1), Group(parameters=("*",), clip_norm=0.2 + rank / 10)]}


def correlated(rank: int) -> dict[str, Any]:
    noise = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.5 + 0.1 * rank]}
    return {"run": make_network_run("cyclic", noise_multiplier=1.0, noise=noise)}


def of_users(rank: int) -> dict[str, Any]:
    run = make_network_run(noise_multiplier=1.0, unit="user", records=8, batches={"design": "poisson", "size": 3})
    return {"run": run, "users": [(place + rank * (place == 20)) // 3 for place in range(23)]}


OTHER: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "weights": (lambda rank: {"model": network_with(lambda model: model[3].bias[1].add_(1e-15 * rank))}, "model: not the same"),
    "frozen": (lambda rank: {"model": network_with(lambda model: model[0].bias.requires_grad_(False).add_(rank))}, "model: not the same"),
    "mode": (lambda rank: {"model": make_network().train(rank == 0)}, "model: not the same"),
    "noise": (lambda rank: {"run": make_network_run("shuffled", noise_multiplier=1.0 + rank)}, "run: not the same"),
    "strategy": (correlated, "run: not the same"),
    "length": (shorter, "run: not the same"),
    "contents": (lambda rank: {"data": make_data(seed=rank)}, "contents of some records"),
    "users": (of_users, "users: not the same"),
    "size": (lambda rank: {"physical_size": 4 + rank}, "physical_size: not the same in all processes: 4 in process 0, 5 in process 1"),
    "groups": (clipped, "run: not the same"),
    "isolation": (lambda rank: {"isolation": "checked" if rank else "enforced"}, "isolation: not the same"),
    "optimizer": (stepped, "optimizer: not the same"),
    "secure": (lambda rank: {"secure": rank == 0}, "secure: not the same"),
}


def begin(rank: int, what: str) -> Tensor:
    return plain_fit(rank, **OTHER[what][0](rank))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", OTHER)
def test_processes_that_begin_differently_are_all_told_so(processes: Processes, what: str) -> None:
    for message in all_raised(processes.run(2, begin, what), InputError):
        assert OTHER[what][1] in message


def other_group(rank: int, begun: bool) -> None:
    """An engine that was made in a process group that is gone when it is used, before its first batch or after."""
    model = make_network()
    own = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = lambda batch: CROSS_ENTROPY(model(batch[0]), batch[1])  # noqa: E731
    engine = PrivacyEngine(model, own, losses, make_data(), make_network_run(noise_multiplier=1.0))
    loader = engine.batches()
    if not begun:
        dist.destroy_process_group()
    batch = next(iter(loader))
    dist.destroy_process_group()
    engine.backward(batch)


@pytest.mark.parametrize("begun", [False, True])
def test_an_engine_of_another_process_group_is_refused(processes: Processes, begun: bool) -> None:
    for rank, message in enumerate(all_raised(processes.run(2, other_group, begun), InputError)):
        assert f"the engine was made in process {rank} of 2" in message


def alone(rank: int) -> bool:
    return Workers.current() == Workers() and dist.is_initialized() and bool(plain_fit(rank).isfinite().all())


def test_a_process_group_of_one_is_one_process(processes: Processes) -> None:
    assert processes.run(1, alone) == [True]
